"""The trials of a run: a row and a page for each, with what it offers to download."""
