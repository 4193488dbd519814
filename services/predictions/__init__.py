"""Predictions of a job: what their files look like, where they lie, and when they are whole."""
