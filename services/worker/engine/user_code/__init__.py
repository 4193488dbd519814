"""What the user's code raised, and what to do about it."""
