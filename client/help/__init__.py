"""The help pages of `edlz`."""
