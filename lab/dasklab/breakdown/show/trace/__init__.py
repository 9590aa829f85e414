"""A trial as a trace for ui.perfetto.dev: threads, transfers and event loops on one clock."""
