"""Bottlenecks: what the critical path speaks for, on which grounds, and how certainly."""
