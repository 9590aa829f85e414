"""The groups that a lab's inventory must have. Used by Python and by the playbooks. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

REQUIRED = {
    "lab": "all machines",
    "dask_client": "the client",
    "dask_scheduler": "the scheduler",
    "dask_workers": "the workers",
}


def missing_group(groups: Mapping[str, Sequence[str]]) -> str | None:
    """Return a message about the first required group that has no hosts; None if all have some."""
    for name, members in REQUIRED.items():
        if not groups.get(name):
            return f"has no hosts in group {name!r} ({members})"
    return None
