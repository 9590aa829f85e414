"""Where the project's own files lie, from wherever it was started."""

from __future__ import annotations

from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
EXPERIMENTS = ROOT / "lab" / "experiments"
WORKLOADS = ROOT / "lab" / "workloads"
PLAYBOOKS = ROOT / "playbooks"
