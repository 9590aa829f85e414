"""Answers from the causes: the critical path, bottlenecks, replay, advice."""
