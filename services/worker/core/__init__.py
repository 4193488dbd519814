"""The core of a worker: it decides, and does no IO and no arithmetic."""
