"""A job on Kubernetes: its objects, the launcher that makes them run, and the master that holds both."""
