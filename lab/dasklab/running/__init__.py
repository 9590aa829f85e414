"""Run an experiment: plan its trials, run them one after the other, and record what happened."""
