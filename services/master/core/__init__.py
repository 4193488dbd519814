"""The core of the master: it decides, and does no IO."""
