"""The parameters of a partition: dense vectors, embedding tables, and how a step changes both."""
