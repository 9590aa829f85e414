"""Which node is at which endpoint: names, roles, processes and clusters."""
