"""What the services say to each other, and what they all mean by a job: messages, plan, ledger, layout, status."""
