"""The user's model, its variables and its embedding tables."""
