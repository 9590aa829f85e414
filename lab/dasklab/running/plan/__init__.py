"""From an experiment to its trials, as far as this lab can run them."""
