"""The report of one or more runs. It is made from the results' directories alone; nothing is measured."""

from dasklab.report.pages.page import write, write_single_file

__all__ = ["write", "write_single_file"]
