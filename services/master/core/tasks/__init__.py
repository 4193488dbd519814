"""Which worker works on which task, and what becomes of tasks that fail."""
