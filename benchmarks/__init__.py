"""Measurements of edlz against a limit of the machine or a peer; `python -m benchmarks` prints them all."""
