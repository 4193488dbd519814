"""The user's callbacks in a job: which of them are run, by whom, and what they see of the model."""
