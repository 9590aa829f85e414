"""What a captured trial said: who sent how much to whom, when, in which words, and how the study counted.

The capture files lie in the trial's directory; ``lab.wire`` reads them. Of an idle cluster only its
heartbeats are of interest.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from lab.report.captures import counting, heartbeats, traffic
from lab.report.captures.heard import Heard, open_recording


def hear(directory: Path, study: Mapping[str, Any]) -> Heard | None:
    """All that is told of a trial's capture, ``study`` being the study's figures; None if it has none."""
    recording = open_recording(directory)
    if recording is None:
        return None
    beats = heartbeats.tell(recording, study["fig4"])
    if recording.idle:
        return beats
    return traffic.tell(recording, study) + counting.tell(recording, study["fig20"]) + beats
