"""The files that a trial's page offers: a trace for Perfetto, a profile for speedscope, captures."""

from __future__ import annotations

import json
import os
import shlex
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import quote

from dasklab import records
from dasklab.breakdown.show.explain import Explained
from dasklab.breakdown.show.trace.perfetto import SUFFIX, write
from dasklab.records.speedscope import speedscope
from dasklab.report.trials.trial_rows import TrialRow
from dasklab.terminal import data_size

MOST_TRACED = 20_000  # tasks of a trial; a trace of more takes long, so the page has the command instead


@dataclass(frozen=True)
class Download:
    """A link with its text, and what to open it with; without a link the command that makes the file."""

    link: str
    title: str
    note: str


def downloads(row: TrialRow, explained: Explained | None, folder: Path, page_folder: Path) -> list[Download]:
    """Write a trial's trace and profile, and return all its downloads.

    Args:
        folder: where the trial's page is written.
        page_folder: where it will be, for links to the trial's own folder.
    """
    files = [*_trace(row, explained, folder), *_profile(row, explained, folder)] if explained else []
    return [*files, *_captures(row, page_folder)]


def _trace(row: TrialRow, explained: Explained, folder: Path) -> Iterator[Download]:
    if sum(len(repeat.tasks) for repeat in explained.timed) > MOST_TRACED:
        command = shlex.join(["dasklab", "explain", str(row.trial), "--trace", f"{row.name}{SUFFIX}"])
        yield Download("", "A trace of so many tasks takes long to write. To write it:", command)
        return
    file = folder / f"{row.anchor}{SUFFIX}"
    write(explained, file)
    note = "all timed repeats, with arrows from task to transfer to task; open it at ui.perfetto.dev"
    yield Download(quote(file.name), f"Trace for Perfetto ({_size(file)})", note)


def _profile(row: TrialRow, explained: Explained, folder: Path) -> Iterator[Download]:
    stacks = records.tables_of(row.trial, explained.captured)["profiles"]
    timed = stacks[stacks.repeat.isin([repeat.number for repeat in explained.timed])]
    if timed.empty:
        return
    file = folder / f"{row.anchor}.speedscope.json"
    file.write_text(json.dumps(speedscope(timed, row.name)), encoding="utf-8")
    yield Download(quote(file.name), f"Profile for speedscope ({_size(file)})", "open it at speedscope.app")


def _captures(row: TrialRow, page_folder: Path) -> Iterator[Download]:
    """Yield links into the trial's folder: captures may be too large to copy."""
    trial_folder = quote(os.path.relpath(str(row.trial), page_folder))
    for file in row.trial.captures:
        note = "open it with Wireshark or daskwire"
        yield Download(f"{trial_folder}/{quote(file.name)}", f"{file.name} ({_size(file)})", note)
    yield Download(f"{trial_folder}/", "All files of the trial", str(row.trial))


def _size(file: Path) -> str:
    return data_size(file.stat().st_size)
