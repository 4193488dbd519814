"""From the state of a job to a model that others can use, without edlz."""
