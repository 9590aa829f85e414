"""The critical path, the lines of the program on it, and its replay with a faster network."""
