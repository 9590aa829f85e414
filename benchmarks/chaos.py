"""Kill processes at random moments: does everything survive the death of any process that works on it?

    python benchmarks/chaos.py                                 # the whole plan: an hour on two quiet cores
    python benchmarks/chaos.py --only run,resume --folder /tmp/chaos --seed 7

Each round starts a command, waits until it has begun its work, and strikes at a moment that the seed
determines: SIGKILL, SIGTERM, Ctrl-C once and twice, SIGSTOP for 30 s, or SIGKILL to the endpoint, the
playbook, one of its workers, a Dask worker or the scheduler; a second command on the same lab; a full disk,
no inodes, a read-only home. Afterwards

- the command has ended without a traceback, and what it claims is true (``false ok`` if not);
- finished trials are as they were, and the next command works;
- no process, mount, link, network namespace, control group or draft is left.

A lab and a Dask cluster are struck at the same time, each in namespaces of its own, so no process outlives
the program. Rounds that are done stand in ``FOLDER/*/rounds.jsonl``: started again, it continues after them.
Ctrl-C ends it after the present rounds, a second one at once. The table is ``FOLDER/kills.md``.

Exit status: 0 if nothing was wrong, else 1. It needs root, and for the lab what a lab of containers needs
(``dasklab doctor``).
"""

from __future__ import annotations

import json
import shlex
import signal
import subprocess
import sys
import tempfile
import time
from argparse import Namespace
from collections.abc import Iterator, Sequence
from pathlib import Path
from random import Random
from typing import Any

from benchmarks.support.command_line import chosen, parse

if __name__ == "__main__":  # before what takes long to import
    ARGUMENTS = parse(
        __doc__,
        {
            "--seed": (1, "seed of order and moments"),
            "--only": ("", "commands, such as run,resume; all if none is named"),
            "--rounds": (1000, "at most so many on each target"),
            "--folder": (Path(tempfile.gettempdir()) / "dasklab-chaos", "of what is struck"),
            "--target": (("lab", "cluster"), "(used by the program itself)"),
        },
        smallest="--only pack --rounds 1 --folder {folder}",
        needs=("root", "unshare", "setpriv"),
    )

SIGNALS = ("SIGKILL", "SIGTERM", "Ctrl-C", "Ctrl-C twice", "SIGSTOP")
OF_A_LAB = (*SIGNALS, "endpoint", "playbook", "playbook's worker")
OF_A_CLUSTER = ("Dask worker", "scheduler")
TROUBLES = ("full disk", "no inodes", "read-only home")
BLOWS = (*OF_A_LAB, *OF_A_CLUSTER, *TROUBLES, "with up", "with run", "with destroy")
COMMANDS = {
    "lab": ("up", "configure", "run", "resume", "destroy"),
    "cluster": ("report", "pack", "twin", "whatif", "record", "program"),
}
CYCLES = 6  # lives of a lab: each of its commands is struck once in each
EXTRAS = (  # in each life, before the lab is removed
    (("up", "with destroy"), ("run", "full disk")),
    (("run", "with up"), ("up", "read-only home")),
    (("run", "with destroy"), ("up", "full disk")),
    (("up", "with run"), ("run", "no inodes")),
    (("run", "with run"), ("run", "read-only home")),
    (("up", "with up"),),
)
LAST = {4: ("destroy", "with up"), 5: ("destroy", "with run")}  # how a life ends, if not by a kill


def plan(target: str, seed: int) -> Iterator[tuple[str, str]]:
    """Yield what is struck by what, in an order that the seed determines."""
    dice = Random(seed)
    if target == "cluster":
        rows = [(command, blow) for command in COMMANDS["cluster"] for blow in (*SIGNALS, *TROUBLES)]
        rows = [row for row in rows if row[1] in SIGNALS or row[0] not in ("whatif", "program")]
        rows += [(command, blow) for command in COMMANDS["cluster"][3:] for blow in OF_A_CLUSTER]
        yield from dice.sample(rows, len(rows))
        return
    blows = dice.sample(OF_A_LAB, len(OF_A_LAB))
    for cycle in range(CYCLES):
        for position, command in enumerate(COMMANDS["lab"]):
            blow = blows[(cycle + position) % len(blows)]
            if command in ("run", "resume") and cycle >= CYCLES - len(OF_A_CLUSTER):
                blow = OF_A_CLUSTER[(cycle + position) % len(OF_A_CLUSTER)]
            if command != "destroy":
                yield command, blow
        yield from EXTRAS[cycle]
        yield LAST.get(cycle, ("destroy", blow))


def serve(target: str, folder: Path, seed: int, only: Sequence[str], limit: int) -> None:
    """Play the rounds of a target that are not done. This runs in namespaces of its own."""
    from benchmarks.support.chaos_bench import Round
    from benchmarks.support.chaos_targets import Cluster, Lab

    # A shell's background process ignores Ctrl-C, and so would the commands that it starts.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    log, dice = folder / target / "rounds.jsonl", Random(seed)
    rows = enumerate(plan(target, seed), 1)
    rounds = [Round(number, *row, dice.uniform(0, 0.9), dice.random()) for number, row in rows]
    rounds = [row for row in rounds if row.command in only][:limit]
    todo = [row for row in rounds if row.number not in {row["number"] for row in read(log)}]
    if not todo:
        return
    where = folder / target
    bench = Lab(where) if target == "lab" else Cluster(where, {row.command for row in todo})
    for row in todo:
        if (folder / "stop").exists():
            break
        outcome = bench.play(row)
        with log.open("a") as file:
            file.write(json.dumps(vars(outcome)) + "\n")
        what = f"{row.command}: {row.blow} after {outcome.after_s:.1f} s"
        answer = "; ".join(outcome.faults) or ("ok" if outcome.struck else "did not count")
        place = f"{time.strftime('%H:%M:%S')} {target} {len(read(log))}/{len(rounds)}"
        print(f"{place} {what}: {answer}", flush=True)
    if faults := bench.close():
        sys.exit(f"{target}: {'; '.join(faults)}")


def read(log: Path) -> list[dict[str, Any]]:
    """Return the outcomes of the rounds that are done."""
    return [json.loads(line) for line in log.read_text().splitlines()] if log.exists() else []


def table(outcomes: list[dict[str, Any]]) -> Iterator[str]:
    """Yield the rows of the table: a row per blow."""
    yield "| blow | while | counted | did not count | false ok | other faults | left |"
    yield "|---|---|---|---|---|---|---|"
    totals = [0] * 5
    present = {row["blow"] for row in outcomes}
    for blow in [name for name in BLOWS if name in present]:
        struck = [row for row in outcomes if row["blow"] == blow and row["struck"]]
        faults = [fault for row in outcomes if row["blow"] == blow for fault in row["faults"]]
        commands = [row["command"] for row in struck]
        counts = ", ".join(f"`{name}` {commands.count(name)}" for name in dict.fromkeys(sorted(commands)))
        false_ok = sum("false ok" in fault for fault in faults)
        left = sum(fault.startswith("left: ") for fault in faults)
        uncounted = sum(row["blow"] == blow for row in outcomes) - len(struck)
        numbers = [len(struck), uncounted, false_ok, len(faults) - false_ok - left, left]
        totals = [total + number for total, number in zip(totals, numbers, strict=True)]
        yield f"| {blow} | {counts} | {' | '.join(map(str, numbers))} |"
    yield f"| all | | {' | '.join(map(str, totals))} |"
    loads = [row["load"] for row in outcomes]
    yield f"\nLoad of the machine: {min(loads, default=0):.0f} to {max(loads, default=0):.0f}."


def main(args: Namespace) -> None:
    """Strike both targets, print the table."""
    every = [command for commands in COMMANDS.values() for command in commands]
    folder, only = args.folder.resolve(), chosen([word for word in args.only.split(",") if word], every)
    if args.target:
        serve(args.target, folder, args.seed, only, args.rounds)
        return
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "stop").unlink(missing_ok=True)
    targets = [name for name, commands in COMMANDS.items() if set(commands) & set(only)]
    modules = set(Path("/sys/module").iterdir())
    statuses = strike(targets, folder, args)
    outcomes = [row for target in targets for row in read(folder / target / "rounds.jsonl")]
    text = "\n".join(table(outcomes))
    faults = [f"{row['command']}, {row['blow']}: {fault}" for row in outcomes for fault in row["faults"]]
    faults += [f"left on the host: {path}" for path in set(Path("/sys/module").iterdir()) - modules]
    (folder / "kills.md").write_text(text + "\n")
    print("\n".join(["", text, "", *faults]))
    sys.exit(1 if faults or any(statuses) else 0)


def strike(targets: Sequence[str], folder: Path, args: Namespace) -> list[int]:
    """Start this program for each target in new namespaces, and wait. Return the exit statuses."""
    # All ends with this program. The shell collects the exit status of orphans, as init does.
    alone = ["setpriv", "--pdeathsig", "KILL", "unshare", "-mnpfC", "--mount-proc", "--kill-child"]
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    children = []
    for target in targets:
        words = [sys.executable, __file__, "--target", target, "--folder", str(folder), "--only", args.only]
        words += ["--seed", str(args.seed), "--rounds", str(args.rounds)]
        line = f"{shlex.join(words)} & wait $!"
        children.append(subprocess.Popen([*alone, "sh", "-c", line], start_new_session=True))
    interrupted = False
    while any(child.poll() is None for child in children):
        try:
            for child in children:
                child.wait()
        except KeyboardInterrupt:
            if interrupted:
                for child in children:
                    child.kill()
            interrupted = True
            (folder / "stop").touch()
            print("It ends after the present rounds; Ctrl-C again ends it at once.", flush=True)
    return [child.returncode for child in children]


if __name__ == "__main__":
    main(ARGUMENTS)
