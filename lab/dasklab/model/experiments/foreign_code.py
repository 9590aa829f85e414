"""What a trial executes besides dasklab and Dask as they are, and whether the user trusts it.

A run is data, also if it comes from somebody else. What it holds is used without a question only if it is
known to be plain: numbers, switches, words from a list, names of hosts, versions of packages that the lab
pins. All else is code, or may name code (`code_of`): it is used only if the user trusts it. The user trusts a
text, not a file: the cache keeps its SHA-256, so that an interrupted run of the user's own experiment can be
continued.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from dasklab import paths
from dasklab.errors import LabError
from dasklab.model.experiments.experiment import merge
from dasklab.model.experiments.trial import RequestedTrial
from dasklab.model.settings.dask_settings import defaults, flatten
from dasklab.model.settings.plain_dask import QUANTITIES, is_plain
from dasklab.model.settings.trial_settings import SharedSettings, Workload
from dasklab.model.settings.variants import SCHEDULER_VARIANTS
from dasklab.model.settings.workloads import built_in

HEAD_LINES = 6
MAX_LINE_CHARACTERS = 100

_trusted: set[str] = set()  # SHA-256; also those that the cache could not keep


@dataclass(frozen=True)
class Code:
    """Something of a run that would be executed, or names what would be.

    Attributes:
        what: what it is, for a sentence.
        text: what the user trusts.
    """

    what: str
    text: str

    @property
    def head(self) -> str:
        """The first lines of the text, indented."""
        lines = [line for line in self.text.splitlines() if line.strip()]
        head_lines = [f"    {line[:MAX_LINE_CHARACTERS]}" for line in lines[:HEAD_LINES]]
        more = len(lines) - HEAD_LINES
        return "\n".join([*head_lines, f"    ... ({more} more)"] if more > 0 else head_lines)

    @property
    def sha256(self) -> str:
        return hashlib.sha256(self.text.encode()).hexdigest()

    @property
    def is_trusted(self) -> bool:
        return self.sha256 in _trusted or (paths.cache() / "trusted-sources" / self.sha256).exists()

    def trust(self) -> None:
        """Let it be executed, now and by later commands of this user."""
        _trusted.add(self.sha256)
        with suppress(OSError):
            folder = paths.cache() / "trusted-sources"
            folder.mkdir(parents=True, exist_ok=True)
            (folder / self.sha256).touch()


def code_of(requested: SharedSettings) -> Iterator[Code]:
    """Yield what a trial, or the settings of a cell, would execute that is not known to be plain.

    Every other setting is plain by its type: a number, a switch, a word from a list, a name of a host, or
    versions of packages that the lab pins.
    """
    scheduler = requested.scheduler.resolve()
    if isinstance(requested, RequestedTrial):
        scheduler = requested.resolved_scheduler
    yield from code_of_workload(requested.workload)
    for command in dict.fromkeys(filter(None, (requested.scheduler.command, scheduler.command))):
        yield Code("the scheduler's command", _named("scheduler.command", command))
    if scheduler.preload not in {variant.preload for variant in SCHEDULER_VARIANTS.values()}:
        yield Code("the scheduler's preload", _named("preload", scheduler.preload))
    for name, value in flatten(merge(requested.dask, scheduler.settings)):
        below = name.removeprefix("distributed.")
        is_default = name in defaults() and value == defaults()[name]
        if not is_default and not (below != name and is_plain(below, value)):
            yield Code(f"Dask's setting {name}", _named(name, value))
    for name, value in requested.spark.items():
        if isinstance(value, str) and not any(re.fullmatch(text, value) for text in QUANTITIES):
            yield Code(f"Spark's setting {name}", _named(name, value))


def code_of_workload(workload: Workload) -> Iterator[Code]:
    """Yield the source of a workload that does not come with dasklab, and the texts that it gets.

    Raises:
        LabError: it has no source, and none comes with dasklab.
    """
    if workload.source is None and workload.name not in built_in():
        raise LabError(f"no workload {workload.name!r}; allowed: {', '.join(built_in())}")
    if workload.source is None or workload.source in _own_sources():
        return
    yield Code(f"workload {workload.name!r}", workload.source)
    texts = {name: value for name, value in workload.params.items() if isinstance(value, str)}
    if texts:
        yield Code(f"the parameters of workload {workload.name!r}", _named("params", texts))


def require_trusted(codes: Iterable[Code]) -> None:
    """Refuse code that is not trusted. All that executes workloads or starts clusters calls this.

    Raises:
        LabError: something may not be executed.
    """
    for code in codes:
        if not code.is_trusted:
            lines = len(code.text.splitlines())
            raise LabError(
                f"{code.what} came with the run and can execute anything ({lines} lines, SHA-256"
                f" {code.sha256[:12]}); it is used only with --trust-source",
                f"it begins:\n{code.head}",
            )


def _named(name: str, value: Any) -> str:
    return f"{name}: {json.dumps(value, sort_keys=True)}"


def _own_sources() -> Iterator[str]:
    return (path.read_text(encoding="utf-8") for path in paths.WORKLOADS.glob("[!_]*.py"))
