"""The core of a parameter server: it decides, and does no IO."""
