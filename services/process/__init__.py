"""What each service process is made of: its event loop, its log, its outputs, its descriptors."""
