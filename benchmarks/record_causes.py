"""Does the explanation of a record name the right bottleneck and place? Everyday situations with known truth.

    python benchmarks/record_causes.py [--only lock actor] [--seeds 3] [--out FOLDER]

Each situation of `situations/` runs on a fresh cluster on this machine and is recorded; the explanation does
not know which one it is. It is right if the first bottleneck on the critical path is (one of) the
situation's; its place is judged apart. Sizes, numbers and durations differ from seed to seed.

Where a situation names advice that must be given, or must not, that is counted, too.

Waiting for a CPU is left out, except where it is the truth: on a busy machine every situation has it. Where
it is more than half of the record, nothing else can be seen: the case is disturbed, and not counted. Prints a
line per case, then how many were right. --out keeps the records, SITUATION-SEED/, and beside each what a user
sees: SITUATION-SEED.txt, the text of `dasklab explain`.
"""

from __future__ import annotations

import contextlib
import json
import random
import signal
import subprocess
import sys
import tempfile
from argparse import Namespace
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from benchmarks.support.command_line import chosen, parse

if __name__ == "__main__":  # before what takes long to import
    ARGUMENTS = parse(
        __doc__,
        {
            "--only": ([str], "these situations"),
            "--seeds": (1, "number of seeds"),
            "--first": (0, "the first seed"),
            "--out": (Path, "folder that keeps the records"),
        },
        smallest="--only lock",
    )

import dask
import dasklab
from distributed import Client, LocalCluster

from benchmarks.support.situations import SITUATIONS, Situation, is_right_place

DASKLAB = [sys.executable, "-m", "dasklab"]


def run(case: Situation, seed: int, folder: Path) -> Any:
    """Record a situation, and return the place of its truth."""
    chance = random.Random(seed)
    options = {"n_workers": 2, "threads_per_worker": 1, "dashboard_address": ":0", **case.options}
    with dask.config.set(case.config), LocalCluster(**options) as cluster, case.connect(cluster) as client:
        if options["n_workers"]:
            client.gather(client.map(int, range(4), pure=False))
        with contextlib.ExitStack() as surroundings:
            if case.around is not None:
                surroundings.enter_context(case.around(client, cluster, chance))
            with recording(case, client, folder):
                place = case.act(client, cluster, chance)
        return case.place if place is None else place


@contextlib.contextmanager
def recording(case: Situation, client: Client, folder: Path) -> Iterator[None]:
    """Record what the client does meanwhile, or from a shell what the cluster does."""
    if not case.from_shell:
        with dasklab.record(client, folder):
            yield
        return
    argv = [*DASKLAB, "record", client.scheduler_info()["address"], str(folder)]
    recorder = subprocess.Popen(argv, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    try:
        started = recorder.stdout.readline() if recorder.stdout else ""
        assert started.startswith("Recording"), started
        yield
    finally:
        recorder.send_signal(signal.SIGINT)
        recorder.communicate(timeout=60)


def explain(folder: Path, *options: str) -> str:
    """Return what `dasklab explain` prints, or its error."""
    process = subprocess.run(
        [*DASKLAB, "explain", str(folder), *options], capture_output=True, text=True, timeout=300
    )
    return process.stderr + process.stdout if process.returncode else process.stdout


def judge(name: str, seed: int, folder: Path) -> dict[str, Any]:
    """Run a situation, explain its record, compare."""
    case = SITUATIONS[name]
    place = run(case, seed, folder)
    folder.with_name(f"{folder.name}.txt").write_text(explain(folder))
    answer = json.loads(explain(folder, "--json").splitlines()[0])
    advice = [piece["title"] for piece in answer["advice"]]
    ranked = [row for row in answer["bottlenecks"] if row[0] != "cpu" or "cpu" in case.truth]
    first = ranked[0] if ranked else ["", "", 0.0]
    tied = [other for other in answer["first"] if other not in ("cpu", first[0])]
    starved_s = sum(s for bottleneck, _, s in answer["bottlenecks"] if bottleneck == "cpu")
    return {
        "case": name,
        "seed": seed,
        "truth": case.truth,
        "right": first[0] in case.truth or bool(set(tied) & set(case.truth)),
        "right_place": is_right_place(first[0], first[1], place),
        "place": place,
        "tied": tied,
        "disturbed": "cpu" not in case.truth and starved_s > answer["makespan_s"] / 2,
        "ranked": [(bottleneck, where, round(s, 2)) for bottleneck, where, s in ranked[:4]],
        "seconds": round(answer["makespan_s"], 2),
        "violations": answer["violations"],
        "false_advice": case.false_advice(advice),
        "misses_advice": case.misses_advice(advice),
    }


def judged(name: str, seed: int, folder: Path) -> dict[str, Any]:
    """Return the verdict on a situation; one that cannot be recorded or explained is wrong."""
    try:
        return judge(name, seed, folder)
    except Exception as error:  # noqa: BLE001 # whatever it is, the other situations follow
        return {"case": name, "seed": seed, "right": False, "right_place": False, "disturbed": False,
                "error": f"{type(error).__name__}: {error}"}  # fmt: skip


def main(args: Namespace) -> None:
    """Run the requested situations and count."""
    verdicts = []
    for seed in range(args.first, args.first + args.seeds):
        for name in chosen(args.only, SITUATIONS):
            with tempfile.TemporaryDirectory() as temporary:
                out = args.out or Path(temporary)
                out.mkdir(parents=True, exist_ok=True)
                verdicts.append(judged(name, seed, out / f"{name}-{seed}"))
            print(json.dumps(verdicts[-1]), flush=True)
    counted = [verdict for verdict in verdicts if not verdict["disturbed"]]
    right = [verdict for verdict in counted if verdict["right"]]
    right_places = sum(verdict["right_place"] for verdict in right)
    tied = sum(bool(verdict["tied"]) for verdict in right)
    print(f"{len(right)} of {len(counted)} right, {tied} of them beside another bottleneck of like size;")
    print(f"{right_places} of the right ones with the right place; {len(verdicts) - len(counted)} disturbed")
    false, missing = (
        sum(bool(verdict.get(name)) for verdict in counted) for name in ("false_advice", "misses_advice")
    )
    print(f"advice that the situation calls wrong in {false}, its right advice missing in {missing}")
    sys.exit(any("error" in verdict for verdict in verdicts))


if __name__ == "__main__":
    main(ARGUMENTS)
