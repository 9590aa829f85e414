"""/nodes and /storage."""
