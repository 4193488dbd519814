"""What the words of a command line mean: values of flags, and jobs by their names."""
