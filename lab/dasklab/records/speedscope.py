"""Dask's worker profile as a file that speedscope.app opens: a profile a worker, of several repeats. Pure."""

from __future__ import annotations

from typing import Any

import pandas as pd

SCHEMA = "https://www.speedscope.app/file-format-schema.json"


def speedscope(profiles: pd.DataFrame, name: str) -> dict[str, Any]:
    """The file's content, from the table of that name; seconds are samples times their interval."""
    frames: dict[str, int] = {}
    sampled = []
    for worker, stacks in profiles.groupby("worker"):
        weights = [float(seconds) for seconds in stacks.seconds]
        samples = [[frames.setdefault(frame, len(frames)) for frame in stack] for stack in stacks["stack"]]
        profile = {"type": "sampled", "name": str(worker), "unit": "seconds", "startValue": 0.0}
        sampled.append(profile | {"endValue": sum(weights), "samples": samples, "weights": weights})
    return {
        "$schema": SCHEMA,
        "name": name,
        "exporter": "dasklab",
        "shared": {"frames": [_frame(text) for text in frames]},
        "profiles": sampled,
    }


def _frame(text: str) -> dict[str, Any]:
    """Split the text ``name (file:line)`` of a frame."""
    name, _, where = text.removesuffix(")").rpartition(" (")
    file, _, line = where.rpartition(":")
    return {"name": name, "file": file, "line": int(line)}
