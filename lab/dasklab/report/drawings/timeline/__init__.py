"""The interactive timeline of a trial: what threads, transfers, messages and links did, on one time axis.

``panels`` makes rectangles of a repeat, with a module for each panel, ``rectangles`` merges those that are
too short to be seen, and ``drawing`` makes a document of them that BokehJS draws in the reader's browser.
"""
