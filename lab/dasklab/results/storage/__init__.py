"""A run's files: where they are, how each is read and written, and the table of all samples."""
