"""The files of a model's state: snapshots and checkpoints, whole or not at all, checked when read."""
