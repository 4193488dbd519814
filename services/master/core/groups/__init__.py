"""Who trains together in an all-reduce job, and which state a group goes on from."""
