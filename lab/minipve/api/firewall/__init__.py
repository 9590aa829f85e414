"""The firewall of the cluster, of nodes and of guests: stored, never applied."""
