"""Mutate cells of stored records, and ask every command that reads records about them.

    .venv/bin/python benchmarks/record_fuzz.py                        # 2,000 mutations
    .venv/bin/python benchmarks/record_fuzz.py --mutations 100 --seed 7

A mutation writes a senseless value into a cell (times past any clock, infinities, text where JSON is due,
terminal escapes), or removes, renames or exchanges columns, of one table of one of the records in
`tests/data/records`. Faults are: a traceback, a control character in the output, another exit status than
those of the documentation, more than a minute of CPU time or 4 GiB of memory, and a verdict of
`dasklab check` that contradicts the one without the mutation. Each mutation has a seed, which is printed with
a fault: `--mutations 1 --seed SEED` repeats it.

The program prints the faults, where "damaged or unexpected" was printed, and a line of figures. The exit
status is 1 if there is a fault.
"""

from __future__ import annotations

import json
import random
import resource
import shutil
import sys
import tempfile
import time
import traceback
import zlib
from argparse import Namespace
from array import array
from collections import Counter
from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path
from typing import Any
from unittest import mock

from benchmarks.support.command_line import parse

if __name__ == "__main__":  # before what takes long to import
    ARGUMENTS = parse(
        __doc__,
        {
            "--mutations": (2000, "how many"),
            "--seed": (1, "of the first mutation"),
        },
        smallest="--mutations 3",
    )

from click.testing import CliRunner
from dasklab.breakdown.show import explain as explaining
from dasklab.breakdown.show.explain import Explained, explain
from dasklab.cli import main as dasklab
from dasklab.comparison.check import Verdict, check
from dasklab.errors import UNFORESEEN, DamagedError, LabError
from dasklab.records import chunk_file
from dasklab.records.anonymize import ARRAY_CODES
from dasklab.records.document import RECORD, Record
from dasklab.results.run import Trial, open_trial

RECORDS = Path(__file__).resolve().parents[1] / "tests" / "data" / "records"
SOURCES = (
    "before_and_after",
    "killedworker",
    "netcdf_write",
    "restart_inside",
    "retries",
    "slow_link_gather",
)
EXIT_STATUSES = {0, 1, 3}
LIMIT_PCT = 10.0
MAX_CPU_S = 60.0
MAX_BYTES = 4 * 1024**3  # of address space; a fault is then a MemoryError
APART_S = 1000.0  # between two copies of a record
NUMBERS: dict[str, tuple[float, ...]] = {
    "t": (-1, -2, 0, 10**9, 10**15, 2**62, -(2**63)),
    "i": (-1, 0, 1, 10**6, 2**31, 2**53, 2**63 - 1, -(2**63)),
    "f": (float("nan"), float("inf"), -float("inf"), 1e308, -1e308, 1e18, -1.0, 0.0, 5e-324),
}
BASES: tuple[Any, ...] = (10**400, 1e308, -1e9, 0.0, 5e9, float("nan"), float("inf"), "x", None, [], True)
TEXTS: tuple[Any, ...] = (
    "", "x", "{", "{0.__class__}", "[]", "[1]", "null", "NaN", "1e999", "-1", '"x"', '{"a": 1}', "{}", "\0",
    "\ud800", "\x1b]0;x\x07\x1b[31m", "\x9b2J", "a\u202eb\u2066c", "a\rb\nc", "a" * 5000, "tcp://", "left",
    "\x1f", None, 5, [1], {},
)  # fmt: skip
COMMANDS = (("--json",), ("--json",), ("--why", "--json"), ("--why",), ("--memory",), ("--all",))
Heads = list[list[Any]]
Bodies = list[bytes]


def mutated(content: bytes, chance: random.Random) -> tuple[bytes, str]:
    """Return a record's file with one mutation, and what was mutated."""
    frames = list(chunk_file.inflated(content))
    number = chance.randrange(len(frames))
    table, rows, columns = chunk_file.open_chunk(frames[number].chunk)
    heads, bodies = [[name, kind, more] for name, kind, more, _ in columns], [body for *_, body in columns]
    mutation = chance.choices(
        [mutate_cell, mutate_texts_or_base, mutate_columns], [6, 3, 2] if rows else [0, 0, 1]
    )[0]
    what = mutation(heads, bodies, rows, chance)
    described = [[*head, len(body)] for head, body in zip(heads, bodies, strict=True)]
    chunk = b"\n".join([table.encode(), json.dumps([rows, described]).encode(), b"".join(bodies)])
    chunks = [zlib.compress(chunk if at == number else frame.chunk, 1) for at, frame in enumerate(frames)]
    lines = [json.dumps([frame.process, len(chunks[at])]).encode() for at, frame in enumerate(frames)]
    whole = b"".join(line + b"\n" + chunk for line, chunk in zip(lines, chunks, strict=True))
    return whole, f"{frames[number].process} {table}: {what}"


def mutate_cell(heads: Heads, bodies: Bodies, rows: int, chance: random.Random) -> str:
    at, row = chance.randrange(len(heads)), chance.randrange(rows)
    name, kind, more = heads[at]
    values = array(ARRAY_CODES[kind], bodies[at])
    numbers = (-1, len(more), 2**31 - 1, *range(len(more))) if kind == "s" else NUMBERS[kind]
    values[row] = chance.choice(numbers)  # type: ignore[assignment]
    bodies[at] = values.tobytes()
    return f"{name}[{row}] = {values[row]}"


def mutate_texts_or_base(heads: Heads, bodies: Bodies, rows: int, chance: random.Random) -> str:
    at = chance.choice([at for at, head in enumerate(heads) if head[1] in "st"] or [0])
    name, kind, more = heads[at]
    if kind == "s" and more:
        text = chance.choice(TEXTS)
        more[chance.randrange(len(more))] = text
        return f"a text of {name} = {text!r:.40}"
    heads[at][2] = chance.choice(BASES)
    return f"the base of {name} = {heads[at][2]!r:.40}"


def mutate_columns(heads: Heads, bodies: Bodies, rows: int, chance: random.Random) -> str:
    at, other = chance.randrange(len(heads)), chance.randrange(len(heads))
    name = heads[at][0]
    kind = chance.choice(["remove", "rename", "exchange", "exchange", "kind", "cut"])
    if kind == "remove":
        del heads[at], bodies[at]
    elif kind == "rename":
        heads[at][0] = chance.choice(["nth", "pair", "repeat", "", "x", 5, None])
    elif kind == "exchange":
        heads[at][0], heads[other][0] = heads[other][0], name
        return f"{name} and {heads[at][0]} exchanged"
    elif kind == "kind":
        heads[at][1] = chance.choice(["t", "i", "f", "s", "x"])
    else:
        bodies[at] = bodies[at][:-1]
    return f"{kind} {name}"


def copy_of(source: Path, target: Path, number: int) -> None:
    """Write a copy of a record as if another client had recorded the same later."""
    document = json.loads((source / Record.FILE).read_text())
    client, later = document["client"], APART_S * number
    frames = []
    for process, _, chunk in chunk_file.inflated((source / RECORD).read_bytes()):
        table, rows, columns = chunk_file.open_chunk(chunk)
        heads = []
        for name, kind, more, body in columns:
            if kind == "t":
                more += later
            elif kind == "s":
                more = [f"{text}-{number}" if text == client else text for text in more]
            heads.append([name, kind, more, len(body)])
        parts = [table.encode(), json.dumps([rows, heads]).encode(), b"".join(body for *_, body in columns)]
        frames.append((process, zlib.compress(b"\n".join(parts), 1)))
    target.mkdir(parents=True)
    for process, chunk in frames:
        chunk_file.append(target / RECORD, process, [chunk])
    moved = {
        "client": f"{client}-{number}",
        "start": document["start"] + later,
        "stop": document["stop"] + later,
    }
    (target / Record.FILE).write_text(json.dumps(document | moved))


class Fuzzer:
    """Makes mutations in a folder and judges what is printed of them. ``faults`` is what must not be."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.faults = folder, list[str]()
        self.answers, self.unexpected = Counter[str](), Counter[str]()
        self.copies: Callable[[str], list[Explained]] = cache(self._copies)

    def _copies(self, source: str) -> list[Explained]:
        folders = [self.folder / f"{source}-{number}" for number in (1, 2, 3)]
        for number, folder in enumerate(folders, 1):
            copy_of(RECORDS / source, folder, number)
        return [explain(open_trial(folder)) for folder in folders]

    def once(self, seed: int) -> None:
        chance = random.Random(seed)
        source = chance.choice(SOURCES)
        content, what = mutated((RECORDS / source / RECORD).read_bytes(), chance)
        record = self.folder / "mutated"
        shutil.rmtree(record, ignore_errors=True)
        shutil.copytree(RECORDS / source, record)
        (record / RECORD).write_bytes(content)
        explained: list[Explained] = []

        def explain_once(trial: Trial, captured: bool = False) -> Explained:
            if not explained:
                explained.append(explain(trial, captured))
            return explained[0]

        start = time.process_time()
        with mock.patch.object(explaining, "explain", explain_once):
            faults = [*self.command(record, chance), *self.verdict(record, source)]
        if time.process_time() - start > MAX_CPU_S:
            faults.append(f"more than {MAX_CPU_S:g} s of CPU time")
        self.faults += [f"seed {seed}: {source}: {what}: {fault}" for fault in faults]

    def command(self, record: Path, chance: random.Random) -> Iterator[str]:
        """Yield what is wrong with the answer of a command."""
        words = ["explain", str(record), *chance.choice(COMMANDS)]
        if chance.random() < 0.1:
            shutil.rmtree(self.folder / "twin", ignore_errors=True)
            words = ["twin", str(record), "-o", str(self.folder / "twin")]
        result = CliRunner().invoke(dasklab, words)
        self.answers[f"{words[0]}: exit {result.exit_code}"] += 1
        if result.exception is not None and not isinstance(result.exception, SystemExit):
            yield f"{words[2:]}: traceback: {traceback.format_exception(result.exception)[-2:]}"
        elif result.exit_code not in EXIT_STATUSES:
            yield f"{words[2:]}: exit status {result.exit_code}"
        if "unexpected, at" in result.output:
            self.unexpected[result.output.partition("unexpected, at ")[2].partition("\n")[0][:110]] += 1
        if not all(line.isprintable() for line in result.output.split("\n")):
            yield f"{words[2:]}: control characters in the output"

    def verdict(self, record: Path, source: str) -> Iterator[str]:
        """Yield what is wrong with the verdict on a mutated and a whole copy against two whole ones."""
        second, *old = self.copies(source)
        try:
            new = [explaining.explain(open_trial(record)), second]
            verdict = check(new, old, LIMIT_PCT).verdict
        except DamagedError:
            self.answers["check: damaged"] += 1
        except (*UNFORESEEN, MemoryError) as error:
            yield f"check: {error!r}"
        except LabError:
            self.answers["check: refused"] += 1
        else:
            self.answers[f"check: {verdict.name.lower()}"] += 1
            if verdict is Verdict.SLOWER:
                yield "check: slower"


def main(options: Namespace) -> None:
    start = time.monotonic()
    resource.setrlimit(resource.RLIMIT_AS, (MAX_BYTES, MAX_BYTES))
    with tempfile.TemporaryDirectory() as folder:
        fuzzer = Fuzzer(Path(folder))
        for seed in range(options.seed, options.seed + options.mutations):
            before = len(fuzzer.faults)
            fuzzer.once(seed)
            print(*fuzzer.faults[before:], sep="\n", end="\n" if fuzzer.faults[before:] else "", flush=True)
    for place, number in fuzzer.unexpected.most_common():
        print(f"unexpected {number} x: {place}")
    answers = ", ".join(f"{answer} {number}" for answer, number in sorted(fuzzer.answers.items()))
    seconds = time.monotonic() - start
    print(f"{options.mutations} mutations, {len(fuzzer.faults)} faults, {seconds:.0f} s: {answers}")
    sys.exit(1 if fuzzer.faults else 0)


if __name__ == "__main__":
    main(ARGUMENTS)
