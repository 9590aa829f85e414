"""The verdict on each trial: whether what was configured and measured is what was requested."""
