"""Where the time of a run went: one clock, each second of each thread with a cause, and what to say of it."""
