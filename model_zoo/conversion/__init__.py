"""How published files become records: reading them, mixing them, writing shards."""
