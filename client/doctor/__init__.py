"""What `edlz doctor` looks at: this machine, its software, its Docker daemon, its cluster."""
