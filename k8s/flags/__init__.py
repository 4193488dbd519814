"""What the flags of a job on a cluster say, and what is wrong with them."""
