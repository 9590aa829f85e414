"""A call of the API, as its handler sees it, and an answer with more than data."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from minipve.access.permissions import Permit
from minipve.base.errors import ApiError
from minipve.node.node import Node
from minipve.node.tasks import Task, Work


@dataclass(frozen=True)
class Call:
    """An authenticated, permitted and validated call: the argument of a handler."""

    node: Node
    permit: Permit
    params: dict[str, Any]

    def __getitem__(self, name: str) -> Any:
        return self.params[name]

    def get(self, name: str, default: Any = None) -> Any:
        """Return a parameter, or ``default`` when the caller left it out."""
        return self.params.get(name, default)

    @property
    def vmid(self) -> int:
        """The VMID in the path."""
        return int(self.params["vmid"])

    @property
    def options(self) -> dict[str, Any]:
        """The parameters without those of the path. The alias ``cdrom`` becomes ``ide2``."""
        options = {key: value for key, value in self.params.items() if key not in ("node", "vmid")}
        if "cdrom" in options:
            if "ide2" in options:
                raise ApiError("option ide2 conflicts with cdrom")
            options["ide2"] = f"{options.pop('cdrom')},media=cdrom"
        return options

    def start(self, kind: str, name: object, work: Work) -> str:
        """Start a task that belongs to the caller. Returns its UPID."""
        return self.node.tasks.start(kind, str(name), self.permit.authid, work)

    def start_guest(self, task: Task, start: Callable[[Call], str]) -> None:
        """Start a guest after ``task`` has created it: in another task, of which only warnings count here."""
        upid = start(self)
        self.node.tasks.wait_for(upid, task)
        for warning in self.node.tasks.warnings_of(upid):
            task.log(warning)


@dataclass(frozen=True)
class Reply:
    """An answer with keys beside ``data``: ``total`` of logs, ``changes`` of the network."""

    data: Any
    extra: dict[str, Any]
