"""Jobs on this machine: their folders, locks and processes, the supervisor, and what can be seen of them."""
