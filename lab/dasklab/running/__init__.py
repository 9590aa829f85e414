"""From an experiment's file to its trials' files: what is run, in which order, and by whom."""
