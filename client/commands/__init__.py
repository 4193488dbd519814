"""The commands of `edlz`, one module each."""
