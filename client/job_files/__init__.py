"""What jobs have in common, wherever they run: their names, their settings, and what is checked before they begin."""
