"""A node: guests' configurations, tasks, settings; and a call, which works with it."""
