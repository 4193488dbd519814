"""What outlives a master: the job's journal, and its last word."""
