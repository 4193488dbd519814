"""What a user's model module may hold: its functions, optimizers and learning rates."""
