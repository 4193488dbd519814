"""The objects of a job: pods, services, secrets.  Pure."""
