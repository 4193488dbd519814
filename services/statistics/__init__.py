"""Statistics of columns: what a task's records give, and the figures that all tasks make together."""
