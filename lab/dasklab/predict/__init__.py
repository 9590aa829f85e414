"""Predictions: from a measured trial to what a change would bring, with the error found in validation."""

SEEDS = 4  # simulations of a trial or record by default
