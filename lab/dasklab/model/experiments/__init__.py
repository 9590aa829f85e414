"""Experiments, their cells, and the trials that they request."""
