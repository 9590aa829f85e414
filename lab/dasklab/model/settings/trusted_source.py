"""Which Python source of a workload may be executed: dasklab's own, and what the user has trusted.

A run carries the source of the workload that it measured. A run of somebody else is data: its source is
executed only if it equals one of dasklab's workloads, or if the user trusts it. The user trusts a text, not a
file: the cache keeps its SHA-256, so that an interrupted run of the user's own workload can be continued.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from contextlib import suppress

from daskwire.base.printable import plain

from dasklab import paths
from dasklab.errors import LabError
from dasklab.model.settings.trial_settings import Workload
from dasklab.model.settings.workloads import built_in

HEAD_LINES = 6
MAX_LINE_CHARACTERS = 100

_trusted: set[str] = set()  # SHA-256; also those that the cache could not keep


def trust(source: str) -> None:
    """Let a source be executed, now and by later commands of this user."""
    name = _sha256(source)
    _trusted.add(name)
    with suppress(OSError):
        folder = paths.cache() / "trusted-sources"
        folder.mkdir(parents=True, exist_ok=True)
        (folder / name).touch()


def is_foreign(workload: Workload) -> bool:
    """Return whether executing a workload would execute source that does not come with dasklab."""
    return workload.source is not None and workload.source not in _own_sources()


def require_trusted(workload: Workload) -> None:
    """Refuse a workload whose code is neither dasklab's nor trusted. All that executes workloads calls this.

    Raises:
        LabError: it may not be executed.
    """
    if workload.source is None and workload.name not in built_in():
        raise LabError(f"no workload {workload.name!r}; allowed: {', '.join(built_in())}")
    if workload.source is not None and is_foreign(workload) and not _is_trusted(workload.source):
        lines = len(workload.source.splitlines())
        raise LabError(
            f"workload {workload.name!r} is Python source that came with the run ({lines} lines, SHA-256"
            f" {_sha256(workload.source)[:12]}); it is executed only with --trust-source",
            f"it begins:\n{head(workload.source)}",
        )


def head(source: str) -> str:
    """Return the first lines of a source, indented and safe to print."""
    lines = [line for line in source.splitlines() if line.strip()]
    head_lines = [f"    {plain(line)[:MAX_LINE_CHARACTERS]}" for line in lines[:HEAD_LINES]]
    more = len(lines) - HEAD_LINES
    return "\n".join([*head_lines, f"    ... ({more} more)"] if more > 0 else head_lines)


def _is_trusted(source: str) -> bool:
    name = _sha256(source)
    return name in _trusted or (paths.cache() / "trusted-sources" / name).exists()


def _own_sources() -> Iterator[str]:
    return (path.read_text(encoding="utf-8") for path in paths.WORKLOADS.glob("[!_]*.py"))


def _sha256(source: str) -> str:
    return hashlib.sha256(source.encode()).hexdigest()
