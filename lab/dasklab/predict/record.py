"""A record of any cluster as a workload: costs, the client's program, and scenarios with other settings."""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from dask.utils import key_split

from dasklab import records
from dasklab.breakdown.model.repeat import INSIDE_TASKS, Extent, Repeat
from dasklab.breakdown.prepare.common_clock import to_common_clock
from dasklab.breakdown.show.explain import Explained, explain_record
from dasklab.errors import LabError, did_you_mean
from dasklab.model.experiments.experiment import merge
from dasklab.model.forms.strict import validate
from dasklab.model.settings.dask_settings import defaults
from dasklab.model.settings.hosts import expand_aliases, host_names
from dasklab.model.settings.link import Link
from dasklab.model.settings.plain_dask import is_plain
from dasklab.model.settings.simulated import MODELLED_DASK, unmodelled, unmodelled_link
from dasklab.model.settings.trial_settings import Settings
from dasklab.model.settings.variants import ResolvedScheduler
from dasklab.predict import record_links, recorded
from dasklab.predict.calibrate import fit
from dasklab.predict.calibration import Calibration, TaskSamples
from dasklab.predict.client_program import ClientProgram, client_program
from dasklab.predict.core_waits import CoreWaits
from dasklab.predict.record_limits import limits
from dasklab.predict.record_links import ClientLink
from dasklab.predict.trial_links import OTHER_QUEUE_BYTES
from dasklab.predict.whatif import PAYLOAD, SimulationSettings, core_waits, shared_fields
from dasklab.records import Frames
from dasklab.results.run import Trial
from dasklab.sim.program import BARRIER, Program
from dasklab.sim.scenario import Scenario

CLIENT_DELAY_MS = 1.0  # a difference between round trips below this is work at their ends
EXPERIMENT_SETTINGS = ("links", "dask")  # of an experiment, which hold for a record, too


@dataclass(frozen=True)
class RecordedWork:
    """What a record says of its cluster and its work.

    Attributes:
        measured_s: how long the recorded block took.
        moved_bytes: what workers sent to each other.
        usual: the block, with event loops that are busy as usual (see ``recorded.usual_turns``).
        usual_handoff_s: the median time of a task from its worker's event loop to its thread, and back.
        client_link: the client's own round trip and rate.
        calibration: costs; the samples of each prefix are in the order of the program's computations.
        dask: settings of Dask that differed from its defaults, as far as they are recorded and simulated.
        limits: sentences on what is known to be simulated otherwise than it was.
    """

    explained: Explained
    client_program: ClientProgram
    usual: Repeat
    usual_handoff_s: float
    calibration: Calibration
    client_link: ClientLink
    dask: dict[str, Any]
    limits: tuple[str, ...]

    @property
    def repeat(self) -> Repeat:
        return self.explained.repeats[0]

    @property
    def measured_s(self) -> float:
        return self.repeat.makespan

    @property
    def moved_bytes(self) -> float:
        return self.repeat.sent_bytes


def read(record: Trial) -> RecordedWork:
    """Return the work of a record.

    Raises:
        LabError: the record does not hold what a simulation needs; the message says what.
    """
    document, frames = records.load_record(record)
    explained = explain_record(record, document, frames)
    repeat = explained.repeats[0]
    if reason := next(_missing(frames, repeat, document.lost), None):
        raise LabError(f"{record.folder}: {reason}")
    aligned = to_common_clock(frames, explained.clocks)
    program = client_program(repeat, aligned, is_recorded=repeat.extent is Extent.BLOCK)
    if not program.program.steps or not any(graph.tasks for graph in program.program.graphs):
        raise LabError(f"{record.folder}: no task ended in this record: there is nothing to simulate")
    usual = recorded.usual_turns(repeat, aligned["busy"])
    dask, left_out = _dask(frames)
    calibration = Calibration(
        experiment="record",
        trial=record.folder.name,
        cell="record",
        machine="unknown",
        versions={},
        tasks=_samples(program.program, frames),
        shuffled_bytes=recorded.shuffled_bytes(frames),
        starved=recorded.starved(frames),
        costs={},
        loop_cpu={role: min(1.0, share) for role, share in recorded.loop_cpu(frames, [usual]).items()},
        driver_s=0.0,
        workers=_most_workers(repeat),
        threads=max(repeat.threads.values()),
        rtt_ms=record_links.rtt_ms(frames),
        uncapped_mbit=record_links.link_mbit(repeat),
        burst_bytes=0.0,
        queue_bytes=OTHER_QUEUE_BYTES,
    )
    return RecordedWork(
        explained,
        program,
        usual,
        recorded.usual_handoff_s(frames),
        calibration,
        record_links.client_link(repeat, frames, program.program),
        dask,
        (*limits(program, repeat, explained.facts, _most_workers(repeat)), *left_out),
    )


def calibrate(work: RecordedWork) -> Calibration:
    """Return the costs of a record with those of its event loops, which simulations without a change find."""
    loop_s = sum(graph.loop_s for graph in work.client_program.program.graphs)
    return fit(
        work.calibration,
        lambda calibration: scenario(work, calibration, {}, seed=0),
        [work.usual],
        work.usual_handoff_s,
        executions=1,
        scheduler_s=loop_s,
    )


def scenario(work: RecordedWork, calibration: Calibration, changes: dict[str, Any], *, seed: int) -> Scenario:
    """Return the scenario of a record with changed settings.

    Raises:
        LabError: a setting is unknown, impossible or not simulated.
    """
    simulation, settings = check(work, changes)
    workers = simulation.workers or calibration.workers
    if simulation.rate_mbit is None:
        rates = dict.fromkeys(host_names(workers), calibration.uncapped_mbit)
        rates["client"] = work.client_link.mbit
    else:
        rates = dict.fromkeys(host_names(workers), simulation.rate_mbit * PAYLOAD)
    links = expand_aliases(settings.links, workers, "--set links")
    if simulation.rtt_ms is None:
        links = _with_client_delay(links, work.client_link.rtt_ms - calibration.rtt_ms)
    waiting = core_waits(calibration, simulation)
    return Scenario(
        **shared_fields(calibration, simulation, workers, rates, links),
        workload=with_works(work.client_program.program, calibration, waiting, simulation.worker_speed),
        threads=simulation.threads or calibration.threads,
        repeats=1,
        warmups=0,
        dask=merge(work.dask, settings.dask),
        seed=seed,
    )


def _with_client_delay(links: dict[str, Link], additional_ms: float) -> dict[str, Link]:
    """Return links with what the client's own adds to a round trip; a requested delay replaces it."""
    link = links.get("client", Link())
    if additional_ms < CLIENT_DELAY_MS or "delay_ms" in link.model_fields_set or link.clear:
        return links
    delay: dict[str, Any] = {"delay_ms": additional_ms}
    if link == Link():
        delay = {"delay_ms": additional_ms / 2, "direction": "both"}
    return links | {"client": link.model_copy(update=delay)}


def check(work: RecordedWork, changes: dict[str, Any]) -> tuple[SimulationSettings, Settings]:
    """Validate changes.

    Raises:
        LabError: a setting is unknown, impossible or not simulated, or the record lacks what it changes.
    """
    allowed = sorted({*SimulationSettings.model_fields, *EXPERIMENT_SETTINGS})
    for key in changes:
        if key not in allowed:
            hint = did_you_mean(key, allowed)
            raise LabError(f"--set {key}: not a setting of a record; allowed: {', '.join(allowed)}{hint}")
    own = {key: value for key, value in changes.items() if key in SimulationSettings.model_fields}
    simulation = validate(SimulationSettings, own, "--set")
    settings = validate(
        Settings, {key: changes[key] for key in EXPERIMENT_SETTINGS if key in changes}, "--set"
    )
    workers = simulation.workers or work.calibration.workers
    links = expand_aliases(settings.links, workers, "--set links")
    reasons = [*unmodelled(settings, ResolvedScheduler())]
    reasons += [reason for host, link in links.items() for reason in unmodelled_link(host, link)]
    if reasons:
        raise LabError(f"--set {reasons[0]}")
    threads = sorted(set(work.repeat.threads.values()))
    if len(threads) > 1 and simulation.threads is None:
        numbers = ", ".join(map(str, threads))
        raise LabError(
            f"{work.explained.trial.folder}: its workers had different numbers of threads ({numbers}), and "
            "simulated workers all have the same",
            "name one: --set threads=N",
        )
    if simulation.rate_times != 1 and simulation.rate_mbit is None and not work.calibration.uncapped_mbit:
        raise LabError(
            "--set rate_times: the rate of its links is unknown, because hardly any data moved",
            "name a rate: --set rate_mbit=N",
        )
    return simulation, settings


def _missing(frames: Frames, repeat: Repeat, lost: dict[str, int]) -> Iterator[str]:
    """Yield why a record cannot be simulated."""
    if lost:
        yield "rows of it were lost, so tasks or what they need are missing: it cannot be simulated"
    if not repeat.threads:
        yield "it shows no worker: it cannot be simulated"
    senders = {str(client) for client in frames["graphs"].client if client}
    if any(client.startswith(INSIDE_TASKS) for client in senders):
        yield "tasks that send tasks of their own (worker_client, get_client) are not simulated"
    if len(senders) > 1:
        yield f"{len(senders)} clients sent work; only the work of one client is simulated"
    if len(frames["actor_calls"]):
        yield "actors are not simulated"
    if frames["tasks"].key.str.startswith(BARRIER).any() and not recorded.shuffled_bytes(frames):
        yield "it does not say how much its peer-to-peer shuffles moved: it cannot be simulated"


def _most_workers(repeat: Repeat) -> int:
    """Return how many workers there were when there were most."""
    changes = [(time, 1) for time in repeat.joined.values()] + [(time, -1) for time in repeat.left.values()]
    present = most = len(repeat.threads) - len(repeat.joined)
    for _, change in sorted(changes):
        present += change
        most = max(most, present)
    return max(1, most)


def _samples(program: Program, frames: Frames) -> dict[str, TaskSamples]:
    """Return the computations by key prefix, in the order of the program, with their share of CPU time."""
    shares = recorded.cpu_shares(frames)
    samples: defaultdict[str, list[tuple[float, int]]] = defaultdict(list)
    for key, works in zip(program.keys, program.works, strict=True):
        prefix = str(key_split(key))
        # A barrier's seconds are mostly its wait for data, which is simulated
        share = shares.get(prefix, 0.0) if prefix == BARRIER else 1.0
        samples[prefix] += [(seconds * share, nbytes) for _, seconds, nbytes in works]
    return {
        prefix: TaskSamples(samples=tuple(own), cpu_share=min(1.0, shares.get(prefix, 1.0)))
        for prefix, own in samples.items()
    }


def with_works(
    program: Program, calibration: Calibration, waiting: CoreWaits, worker_speed: float
) -> Program:
    """Return the program with seconds of a core and of waiting, as the requested cores make them."""
    works = {
        prefix: iter(waiting.records(samples, worker_speed)) for prefix, samples in calibration.tasks.items()
    }
    prefixes = [str(key_split(key)) for key in program.keys]
    return program.model_copy(
        update={
            "works": tuple(
                tuple(next(works[prefix]) for _ in own)
                for prefix, own in zip(prefixes, program.works, strict=True)
            )
        }
    )


def _dask(frames: Frames) -> tuple[dict[str, Any], list[str]]:
    """Return the settings of Dask that are simulated and that differed from its defaults, nested.

    A recorder stores plain values only. Any other setting was put there, and is left out: a sentence says so.
    """
    settings: dict[str, Any] = {}
    left_out: list[str] = []
    config = frames["config"]
    for name, value in zip(config.setting, config.value, strict=True):
        full = f"distributed.{name}".replace("_", "-")
        modelled = any(f"{full}.".startswith(f"{prefix}.") for prefix in MODELLED_DASK)
        parsed = json.loads(value)
        if not modelled or full not in defaults() or parsed == defaults()[full]:
            continue
        if is_plain(name, parsed):
            inner: Any = parsed
            for part in reversed(full.split(".")):
                inner = {part: inner}
            settings = merge(settings, inner)
        else:
            left_out.append(f"Left out: {full}. Its value is none that this setting of Dask has in a record.")
    return settings, [*dict.fromkeys(left_out)]  # each process has its own rows
