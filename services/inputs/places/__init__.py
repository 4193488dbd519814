"""Places where files of data lie that this machine does not have: whatever fsspec opens."""
