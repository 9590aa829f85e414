"""The verbs of ``dasklab``: thin over the rooms that do the work."""
