"""The report of one or more runs, from the results' directories alone: nothing is measured for it."""

from dasklab.report.page import write

__all__ = ["write"]
