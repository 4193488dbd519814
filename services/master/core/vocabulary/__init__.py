"""What the master's cores are told, keep and ask for."""
