"""The parts of a plan: API calls with their reasons, in chains that run in parallel, in steps that do not."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Literal

Method = Literal["POST", "PUT", "DELETE", "UPLOAD"]
Value = str | int


@dataclass(frozen=True)
class ExpectedRow:
    """A row that the list at ``path`` will contain once a call has taken effect, for calls without a task."""

    path: str
    row: Mapping[str, Value]


@dataclass(frozen=True)
class Change:
    """One API call and the reason for it.

    Args:
        method: HTTP method; UPLOAD is a POST of ``file``.
        path: path below ``/api2/json``.
        why: the reason, for the printed plan and for errors.
        params: parameters of the call.
        file: local file to upload.
        until: rows to wait for after the call's task has ended.
    """

    method: Method
    path: str
    why: str
    params: Mapping[str, Value] = field(default_factory=dict)
    file: str = ""
    until: tuple[ExpectedRow, ...] = ()

    def described(self) -> dict[str, object]:
        """Return the call and its reason in plain types."""
        return {"method": self.method, "path": self.path, "params": dict(self.params), "why": self.why}

    def __str__(self) -> str:
        params = (f"{k}={'...' if k == 'sshkeys' else v}" for k, v in self.params.items())
        return " ".join([f"{self.method} {self.path}", *params, f" # {self.why}"])


Chain = tuple[Change, ...]


@dataclass(frozen=True)
class Step:
    """Chains that may run in parallel. The calls of a chain run in order."""

    name: str
    chains: tuple[Chain, ...]


def chain(changes: Iterator[Change]) -> tuple[Chain, ...]:
    """Return one chain of these calls, or no chain if there are no calls."""
    calls = tuple(changes)
    return (calls,) if calls else ()


def render(steps: list[Step]) -> str:
    """Return a plan as text: the name of each step, and below it one line per call."""
    lines: list[str] = []
    for step in steps:
        lines.append(f"{step.name}:")
        lines += [f"  {change}" for chain in step.chains for change in chain]
    return "\n".join(lines) + ("\n" if lines else "")
