"""The files of runs: storage, verdicts, the table of samples, statistics. Start with ``load``."""

from dasklab.results.table import load

__all__ = ["load"]
