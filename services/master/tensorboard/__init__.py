"""A job's curves as files that TensorBoard reads."""
