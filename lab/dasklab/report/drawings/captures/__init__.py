"""The content of a captured trial: who sent how much to whom, when, in which ops, and how the study counted.

The captures were decoded when the trial ended. Of an idle cluster only its heartbeats are described.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from dasklab.report.drawings.captures import counting, heartbeats, traffic
from dasklab.report.drawings.captures.content import Content
from dasklab.results.recording import Recording


def describe(capture: Recording, study: Mapping[str, Any]) -> Content:
    """Return sentences, figures and tables; ``study`` holds the study's figures."""
    beats = heartbeats.describe(capture, study["fig4"])
    if capture.idle:
        return beats
    return traffic.describe(capture, study) + counting.describe(capture, study["fig20"]) + beats
