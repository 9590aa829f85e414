"""What the report draws: metrics, captures, timelines, where the time went."""
