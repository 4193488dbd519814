"""The status page of a job, and what else of it can be asked over HTTP: JSON, metrics, health."""
