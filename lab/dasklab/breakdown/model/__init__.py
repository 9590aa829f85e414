"""What a time breakdown works on: causes, stages, intervals, and the columns of a repeat."""
