"""Statistics: answers with intervals, comparisons of cells, runs and levels."""
