"""Where the time of a run went: one clock, every second of every thread with a cause, and what to say of it."""
