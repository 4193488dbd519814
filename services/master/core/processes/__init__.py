"""Which processes should run, which of them live, and where partitions are found."""
