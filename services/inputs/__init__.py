"""What a user brings: the records of a job, and where a model's code lies."""
