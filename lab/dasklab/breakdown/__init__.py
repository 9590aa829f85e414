"""Where the time of a repeat went: one clock, a cause for each second of each thread, and sentences."""
