"""Validate what-ifs of records: record programs in one cluster, predict others, and measure those.

    python benchmarks/record_predictions.py measure FOLDER     # as root; needs iproute2 and /dev/net/tun
    python benchmarks/record_predictions.py measure FOLDER --only "20 ms" --only "12 workers"
    python benchmarks/record_predictions.py predict FOLDER LOOK [--seeds N]
    python benchmarks/record_predictions.py compare FOLDER LOOK [--keep]

``measure`` starts a cluster in network namespaces for each of ``SETTINGS`` (or for the first one and those
that ``--only`` names) and runs the programs of record_programs.py there; in the first one it records them.
``predict`` predicts each program under each other setting from its record alone, as `dasklab whatif` does,
with seeds 0 to N - 1, and with the list scheduler of list_scheduler.py. ``compare`` prints a row per cell.
All go on where they stopped: what is in FOLDER is neither measured nor predicted again. A LOOK is the name of
a set of predictions, so that those of an earlier state of the code stay.

    measured s     mean of two runs
    predicted s    mean over seeds, and the interval that `dasklab whatif` printed
    by others      the interval, had it been made from the errors of all other programs alone
    list s         what the list scheduler predicts

``--keep`` writes the table to ``docs/results/record-predictions.md``, and the errors to
``lab/dasklab/predict/validated_records.json``, where cells of other settings stay.
"""

from __future__ import annotations

import contextlib
import json
import math
import os
import subprocess
import sys
from argparse import Namespace
from collections.abc import Callable, Iterable, Iterator
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from statistics import mean, median
from typing import Any

from benchmarks.support.command_line import chosen, parse

if __name__ == "__main__":  # before what takes long to import
    ARGUMENTS = parse(
        __doc__,
        {
            "verb": (("measure", "predict", "compare", "all"), "what to do"),
            "folder": (Path, "of what was measured and predicted"),
            "look": ("first", "name of a set of predictions"),
            "--only": ([str], "measure in these settings"),
            "--programs": ([str], "measure these programs"),
            "--seeds": (0, "simulations of each cell, if not as many as `dasklab whatif` makes"),
            "--on": (str, "simulate on this Dask cluster: tcp://10.0.0.2:8786"),
            "--keep": (False, "store the cases and the table in the project"),
        },
        smallest="all {folder} --only '2 workers' --programs tree --seeds 1",
        needs=("root", "ip"),
    )

import numpy as np
from dasklab.errors import LabError
from dasklab.predict import SEEDS, record_whatif
from dasklab.predict.engine.choice import simulations_on
from dasklab.predict.validation import HERE, Case, ValidatedRecords, replace_block
from dasklab.predict.whatif import PAYLOAD
from dasklab.results.run import open_trial
from dasklab.results.storage import documents

from benchmarks import wire_cluster
from benchmarks.namespace_cluster import QUIET, Cluster
from benchmarks.support import list_scheduler
from benchmarks.wire_cluster import Options, sh

DOCUMENT = Path(__file__).parents[1] / "docs" / "results" / "record-predictions.md"
SUPPORT = Path(__file__).parent / "support"
PROGRAMS, WIRE = SUPPORT / "record_programs.py", SUPPORT / "slow_wire.py"


@dataclass(frozen=True)
class Setting:
    """A cluster: workers with one thread each, the rate of every node's link, the round trip of two nodes."""

    workers: int = 4
    rate_mbit: float = 400
    rtt_ms: float = 0.0

    @property
    def changes(self) -> dict[str, Any]:
        """What differs from the recorded cluster, as settings of a what-if."""
        own, recorded = vars(self), vars(SETTINGS["recorded"])
        return {name: value for name, value in own.items() if value != recorded[name]}


SETTINGS = {
    "recorded": Setting(),
    "2 workers": Setting(workers=2),
    "10 workers": Setting(workers=10),
    "40 Mbit/s": Setting(rate_mbit=40),
    "20 ms": Setting(rtt_ms=20),
    "12 workers": Setting(workers=12),
}


SPECIAL_PROGRAMS = ("tiny", "pauses", "data")
"""Programs in which the scheduler, the client or its link takes most of the time, whatever the workers do."""
SEEN_PROGRAMS = ("shuffle", "tree", "completed", "data")
"""The model was changed after somebody looked at what it made of these records."""

GROUP_HEAD = """\
| cells | predicted | median error | inside, half-width | by others | list scheduler | worse |
|---|---|---|---|---|---|---|"""
HEAD = """\
| program | setting | measured s | predicted s | error | by others | list s | error |
|---|---|---|---|---|---|---|---|"""


def file_name(setting: str) -> str:
    return setting.replace("/", " per ")


class SlowCluster(Cluster):
    """A cluster whose nodes are joined by wires that hold frames back."""

    def __init__(self, options: Options, tag: str, setting: Setting) -> None:
        super().__init__(options, tag)
        self.setting = setting

    @contextlib.contextmanager
    def network(self) -> Iterator[None]:
        with super().network():
            if not self.setting.rtt_ms:
                yield
                return
            ends = [f"{self.namespace(node)}={self.port(node)}" for node in self.nodes]
            delay_s = self.setting.rtt_ms / 4e3  # a round trip crosses four wires
            wires = subprocess.Popen(
                [sys.executable, str(WIRE), str(delay_s), self.switch, *ends],
                stdout=subprocess.PIPE,
                text=True,
            )
            try:
                assert wires.stdout is not None
                if wires.stdout.readline() != "ready\n":
                    sys.exit("the wires did not start")
                for node, address in self.nodes.items():
                    sh("ip", "-n", self.switch, "link", "set", self.port(node), "master", "br0", "up")
                    self._address(node, address)
                yield
            finally:
                wires.kill()
                wires.wait()

    def _attach(self, node: str, address: str) -> None:
        if not self.setting.rtt_ms:
            super()._attach(node, address)

    def _address(self, node: str, address: str) -> None:
        for arguments in (
            ["link", "set", "lo", "up"],
            ["addr", "add", f"{address}/24", "dev", "eth0"],
            ["link", "set", "eth0", "up"],
        ):
            sh("ip", "-n", self.namespace(node), *arguments)


def measure(folder: Path, only: list[str], programs: list[str]) -> None:
    """Run programs in the first setting and in those of ``only`` that are not measured yet."""
    for name, setting in SETTINGS.items():
        results = folder / f"{file_name(name)}.json"
        if results.exists() or name not in ("recorded", *only):
            continue
        out = folder / "nodes"
        out.mkdir(parents=True, exist_ok=True)
        nodes = SlowCluster(Options(out, workers=setting.workers), f"rp{os.getpid()}", setting)
        with nodes.network():
            try:
                for node in nodes.nodes:
                    nodes.cap(node, setting.rate_mbit)
                for node in [*nodes.nodes][1:]:
                    nodes.start_dask(node, 1, [], {})
                load = os.getloadavg()[0]
                is_recorded = str(int(name == "recorded"))
                address = f"tcp://{nodes.nodes['scheduler']}:8786"
                argv = [sys.executable, str(PROGRAMS), address, str(folder / "records")]
                argv += [str(setting.workers), is_recorded, *programs]
                process = subprocess.run(
                    ["ip", "netns", "exec", nodes.namespace("client"), *argv],
                    capture_output=True,
                    text=True,
                    env={**os.environ, **QUIET},
                )
            finally:
                for running in nodes.processes.values():
                    wire_cluster.stop(running)
        if process.returncode:
            sys.exit(f"{name}: {process.stderr}")
        results.write_text(json.dumps({"load": load, "seconds": json.loads(process.stdout)}, indent=1))
        print(name, process.stdout, flush=True)


@dataclass(frozen=True)
class PredictedCell:
    """A program in another cluster than the one it was recorded in. Times are in seconds.

    Attributes:
        recorded_s: of the recorded block.
        list_s, list_unchanged_s: of the list scheduler, here and without a change.
        unchanged_s: of the block's simulation without a change.
        low_s, high_s: ends of the interval that `dasklab whatif` printed.
        simulated_low_s, simulated_high_s: 90 % of the simulations.
        refusal: why there is no prediction.
    """

    program: str
    setting: str
    measured_s: float
    recorded_s: float
    list_s: float
    list_unchanged_s: float
    unchanged_s: float = math.nan
    predicted_s: float = math.nan
    low_s: float = math.nan
    high_s: float = math.nan
    simulated_low_s: float = math.nan
    simulated_high_s: float = math.nan
    refusal: str = ""

    @property
    def error(self) -> float:
        return self.predicted_s / self.measured_s - 1

    @property
    def list_error(self) -> float:
        return self.list_s / self.measured_s - 1

    @property
    def is_special(self) -> bool:
        """Whether more than threads matters: links (another rate or delay), the scheduler, or the client."""
        return self.program in SPECIAL_PROGRAMS or "workers" not in self.setting

    @property
    def is_inside(self) -> bool:
        return self.low_s <= self.measured_s <= self.high_s

    @property
    def half_width(self) -> float:
        return (self.high_s - self.low_s) / 2 / self.predicted_s

    def widened(self, error: float) -> tuple[float, float]:
        """Return the interval of the simulations, widened by a factor of ``1 + error``."""
        return self.simulated_low_s / (1 + error), self.simulated_high_s * (1 + error)


def predict(folder: Path, look: str, seeds: int) -> None:
    """Predict all cells that were measured and not predicted yet."""
    measured = {
        name: json.loads(file.read_text())["seconds"]
        for name in SETTINGS
        if (file := folder / f"{file_name(name)}.json").exists()
    }
    predictions = folder / "predictions" / look
    predictions.mkdir(parents=True, exist_ok=True)
    for program in measured["recorded"]:
        for name in [*measured][1:]:
            file = predictions / f"{program}, {file_name(name)}.json"
            if not file.exists():
                seconds = mean(measured[name][program])
                cell = predict_cell(folder / "records" / program, name, seconds, seeds)
                file.write_text(json.dumps(asdict(cell), indent=1))
                print(row(cell, []), flush=True)


def predict_cell(record: Path, name: str, measured_s: float, seeds: int) -> PredictedCell:
    """Predict a program under another setting, in both ways."""
    repeat, setting = list_scheduler.recorded_repeat(record), SETTINGS[name]
    cell = PredictedCell(
        record.name,
        name,
        measured_s,
        repeat.makespan,
        list_scheduler.predict_s(repeat, setting.workers),
        list_scheduler.predict_s(repeat, SETTINGS["recorded"].workers),
    )
    try:
        prediction = record_whatif.predict(open_trial(record), setting.changes, name, range(seeds))
    except LabError as error:
        return replace(cell, refusal=error.message)
    (_, unchanged, changed), wide = prediction.rows, prediction.wide[-1]
    return replace(
        cell,
        unchanged_s=unchanged.mean_s,
        predicted_s=changed.mean_s,
        low_s=wide.low_s,
        high_s=wide.high_s,
        simulated_low_s=changed.low_s,
        simulated_high_s=changed.high_s,
    )


def predicted_cells(folder: Path, look: str) -> list[PredictedCell]:
    """Return what was predicted, in the order of programs and settings."""
    files = (folder / "predictions" / look).glob("*.json")
    cells = [PredictedCell(**json.loads(file.read_text())) for file in files]
    return sorted(cells, key=lambda cell: (cell.program, [*SETTINGS].index(cell.setting)))


def error_of_others(cell: PredictedCell, cells: list[PredictedCell]) -> float:
    """Return the error that 90 % of the cells of all other programs stay below."""
    factors = [
        abs(math.log(other.predicted_s / other.measured_s))
        for other in cells
        if other.program != cell.program and not other.refusal
    ]
    return math.expm1(float(np.percentile(factors, 90))) if factors else 0.0


def row(cell: PredictedCell, cells: list[PredictedCell]) -> str:
    """Return a row of the table; ``cells`` are those that its interval may be made from."""
    listed = f"{cell.list_s:.2f} | {cell.list_error:+z.0%} |"
    start = f"| {cell.program} | {cell.setting}{' *' if cell.is_special else ''} | {cell.measured_s:.2f} |"
    if cell.refusal:
        return f"{start} refused | | | {listed}"
    low_s, high_s = cell.widened(error_of_others(cell, cells))
    return (
        f"{start} {cell.predicted_s:.2f} ({cell.low_s:.2f} to {cell.high_s:.2f}) | {cell.error:+z.0%} |"
        f" {low_s:.2f} to {high_s:.2f} | {listed}"
    )


def group_row(name: str, cells: list[PredictedCell], all_cells: list[PredictedCell]) -> str:
    """Return a row of the table of what was reached."""
    answered = [cell for cell in cells if not cell.refusal]
    if not answered:
        return f"| {name} | 0 of {len(cells)} | | | | | |"
    ends = [cell.widened(error_of_others(cell, all_cells)) for cell in answered]
    inside = [low <= cell.measured_s <= high for cell, (low, high) in zip(answered, ends, strict=True)]
    widths = [(high - low) / 2 / cell.predicted_s for cell, (low, high) in zip(answered, ends, strict=True)]
    return (
        f"| {name} | {len(answered)} of {len(cells)} | {median(abs(cell.error) for cell in answered):.1%}"
        f" | {mean(cell.is_inside for cell in answered):.0%}, ±{median(c.half_width for c in answered):.0%}"
        f" | {mean(inside):.0%}, ±{median(widths):.0%}"
        f" | {median(abs(cell.list_error) for cell in answered):.1%}"
        f" | {sum(abs(cell.error) > abs(cell.list_error) for cell in answered)} |"
    )


def table(cells: list[PredictedCell]) -> str:
    """Return what was reached, then a row for each cell."""
    groups: dict[str, Callable[[PredictedCell], bool]] = {
        "all": lambda _: True,
        "links, scheduler or client matter (*)": lambda cell: cell.is_special,
        "elsewhere": lambda cell: not cell.is_special,
        "programs not looked at before": lambda cell: cell.program not in SEEN_PROGRAMS,
    }
    reached = [group_row(name, [c for c in cells if belongs(c)], cells) for name, belongs in groups.items()]
    refusals = [f"\n{cell.program}, {cell.setting}: {cell.refusal}" for cell in cells if cell.refusal]
    return "\n".join([GROUP_HEAD, *reached, "", HEAD, *(row(cell, cells) for cell in cells), *refusals])


def cases(cells: list[PredictedCell]) -> Iterator[Case]:
    """Yield what intervals are widened by."""
    for cell in cells:
        if not cell.refusal:
            setting = SETTINGS[cell.setting]
            yield Case(
                workload=cell.program,
                workers=setting.workers,
                threads=1,
                bridge="learning",
                cores="own",
                rate_mbit=setting.rate_mbit * PAYLOAD,
                delay_ms=setting.rtt_ms / 2,
                loss_pct=0.0,
                error=cell.error,
            )


def with_others(own: Iterable[Case]) -> list[Case]:
    """Return these cases after the stored ones of other programs and settings."""
    new = {case.model_copy(update={"error": 0.0}).model_dump_json(): case for case in own}
    stored = ValidatedRecords.read().cases
    others = (case for case in stored if case.model_copy(update={"error": 0.0}).model_dump_json() not in new)
    return [*others, *new.values()]


def main(args: Namespace) -> None:
    if args.verb in ("measure", "all"):
        measure(args.folder, chosen(args.only, SETTINGS), args.programs)
    if args.verb in ("predict", "all"):
        with simulations_on(args.on):
            predict(args.folder, args.look, args.seeds or SEEDS)
    if args.verb in ("compare", "all"):
        cells = predicted_cells(args.folder, args.look)
        print(table(cells))
        if args.keep:
            block = f"{Path(__file__).name} {args.look}"
            DOCUMENT.write_text(replace_block(DOCUMENT.read_text(), block, table(cells)))
            documents.write(HERE, ValidatedRecords(cases=tuple(with_others(cases(cells)))))


if __name__ == "__main__":
    main(ARGUMENTS)
