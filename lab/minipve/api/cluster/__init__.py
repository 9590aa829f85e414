"""/cluster and /version."""
