"""How a `JobConfig` comes about: flags, environment and file are read, checked, and explained."""
