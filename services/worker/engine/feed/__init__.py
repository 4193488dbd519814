"""From the records of tasks to minibatches."""
