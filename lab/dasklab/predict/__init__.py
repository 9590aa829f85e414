"""Predictions: from a measured trial to what a change would bring, with the error found in validation."""
