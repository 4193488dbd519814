"""Jobs from Python: what `from edlz import client` offers to scripts and notebooks."""
