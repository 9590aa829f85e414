"""Pure nouns, each with its facts: NICs, links, metrics, experiments, files. Imports nothing of the lab."""
