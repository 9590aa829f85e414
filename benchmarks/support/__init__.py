"""What several benchmarks share, and what they start themselves. Programs are in the folder above."""
