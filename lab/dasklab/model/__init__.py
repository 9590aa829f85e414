"""The nouns of the lab and their facts: NICs, links, metrics, experiments, files; pure."""
