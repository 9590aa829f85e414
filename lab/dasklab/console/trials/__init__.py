"""What commands that run trials share: progress, outcome, exit status."""
