"""What a screen is told of the job: rates, events, figures."""
