"""What a captured trial said: who sent how much to whom, when, in which ops, and how the study counted.

Read from what was decoded when the trial ended. Of an idle cluster only its heartbeats are of interest.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from dasklab.report.captures import counting, heartbeats, traffic
from dasklab.report.captures.content import Content
from dasklab.results.storage.recording import Recording


def describe(capture: Recording, study: Mapping[str, Any]) -> Content:
    """All that the report says of a capture, ``study`` being the study's figures."""
    beats = heartbeats.describe(capture, study["fig4"])
    if capture.idle:
        return beats
    return traffic.describe(capture, study) + counting.describe(capture, study["fig20"]) + beats
