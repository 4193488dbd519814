"""How the jobs of one machine share its slots."""
