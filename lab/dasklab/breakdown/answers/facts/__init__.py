"""What a record knows beside times: settings, capacity, clients, failures, memory."""
