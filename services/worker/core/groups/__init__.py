"""A worker of an all-reduce job: its replica, its chunk of the sum, and what it tells other members."""
