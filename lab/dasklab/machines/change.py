"""What a plan is made of: API calls with their why, in chains side by side, in steps one after another."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Literal

Method = Literal["POST", "PUT", "DELETE", "UPLOAD"]
Value = str | int


@dataclass(frozen=True)
class Await:
    """A row that a list holds once a call has had its effect, which no task tells."""

    path: str
    row: Mapping[str, Value]


@dataclass(frozen=True)
class Change:
    """One API call and why it is made. ``path`` is below ``/api2/json``; UPLOAD is a POST of ``file``.

    It is done when its task is, and when what ``until`` says is there.
    """

    method: Method
    path: str
    why: str
    params: Mapping[str, Value] = field(default_factory=dict)
    file: str = ""
    until: tuple[Await, ...] = ()

    def __str__(self) -> str:
        shown = {k: ("..." if k == "sshkeys" else v) for k, v in self.params.items()}
        text = " ".join(f"{k}={v}" for k, v in shown.items())
        return f"{self.method} {self.path}{' ' + text if text else ''}  # {self.why}"


Chain = tuple[Change, ...]


@dataclass(frozen=True)
class Step:
    """Chains that may run side by side; within a chain calls run in order."""

    name: str
    chains: tuple[Chain, ...]


def chain(changes: Iterator[Change]) -> tuple[Chain, ...]:
    """One chain of these calls; none if there are none."""
    made = tuple(changes)
    return (made,) if made else ()


def render(steps: list[Step]) -> str:
    """Return a plan as people read it: one line per call, below its step."""
    lines: list[str] = []
    for step in steps:
        lines.append(f"{step.name}:")
        lines += [f"  {change}" for chain in step.chains for change in chain]
    return "\n".join(lines) + ("\n" if lines else "")
