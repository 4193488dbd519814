"""Images of jobs: their Dockerfile, what is sent to the Docker daemon, and what it answers."""
