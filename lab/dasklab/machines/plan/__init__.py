"""From what an endpoint has to what the inventory requests: a plan of API calls, and its execution."""
