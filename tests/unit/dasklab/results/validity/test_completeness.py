"""A capture is complete only if it holds all that the cluster sent; if not, every command reports it."""

from __future__ import annotations

import json
from collections.abc import Callable
from ipaddress import ip_address
from pathlib import Path
from typing import Any

import pytest
from dasklab import report as page
from dasklab.console.trials import baseline_run
from dasklab.console.trials.progress import execute
from dasklab.model.experiments import experiment
from dasklab.model.files import CaptureReport, Completeness
from dasklab.results.decode import CaptureSummary
from dasklab.results.recording import Recording
from dasklab.results.run import Trial
from dasklab.results.storage import documents
from dasklab.results.validity import completeness
from dasklab.running.driver import driver

from tests.unit.dasklab.conftest import SETUP, FakeLab, Json, capture_report
from tests.unit.daskwire.build import Packet, golden_bytes, packets_of, pcap

GOLDEN = golden_bytes("g3-2026.8.0")
STREAMS = {"stream_seen": 1.0, "lost_by_capture_bytes": 0, "decoded": 1.0}


def judge(streams: Json, **counted: Any) -> Completeness:
    report = CaptureReport.model_validate(capture_report(**counted))
    summary = CaptureSummary(problems=(), messages=9, completeness=streams)
    return completeness.examine(Recording(Path("nowhere"), report, summary, {"matrix": []}), None, None)


def test_capture_that_lost_nothing_is_complete() -> None:
    judged = judge(STREAMS)
    assert (judged.verdict, judged.reasons, judged.received) == ("complete", (), 100)
    assert completeness.line(judged) == completeness.line(None) == ""


LOSSES = [
    ({"dropped_kernel": 3}, {}, "the kernel dropped 3 frames, tcpdump's buffer was full"),
    ({"dropped_interface": 4}, {}, "the capture interface dropped 4 frames"),
    ({"softnet_dropped": 5000}, {}, "the capturing host's backlog dropped 5,000 frames"),
    ({"left_behind": 6}, {}, "tcpdump left 6 received frames behind when it was stopped"),
    ({"nic_statistics": {"rx_missed_errors": 7}}, {}, "the capture interface counted 7 rx_missed_errors"),
    ({"expired": True}, {}, "tcpdump ended before the repeats did"),
    ({"frames": None, "left_behind": None}, {}, "tcpdump did not report what it captured"),
    ({}, {"lost_by_capture_bytes": 1448}, "1,448 bytes were acknowledged but are not in the files"),
]


@pytest.mark.parametrize(("report", "streams", "reason"), LOSSES)
def test_each_loss_is_reported(report: dict[str, Any], streams: dict[str, Any], reason: str) -> None:
    judged = judge(STREAMS | streams, **report)
    assert (judged.verdict, judged.reasons) == ("lost", (reason,))
    assert completeness.line(judged) == f"The capture is incomplete: {reason}"


def write(directory: Path, raw: bytes, **report: Any) -> Path:
    (directory / "capture.pcap").write_bytes(raw)
    (directory / "capture.json").write_text(json.dumps(capture_report(**report)))
    return directory


def test_verdict_is_made_from_the_files_and_stored(tmp_path: Path) -> None:
    completeness.write(Trial(tmp_path))
    assert completeness.read(Trial(tmp_path)) is None and not list(tmp_path.iterdir())
    fresh = completeness.read(Trial(write(tmp_path, GOLDEN)))
    assert fresh is not None
    assert (fresh.verdict, fresh.messages, fresh.stream_seen) == ("complete", 133, 1.0)
    completeness.write(Trial(tmp_path))
    (tmp_path / "capture.pcap").unlink()
    assert completeness.read(Trial(tmp_path)) == fresh


@pytest.mark.parametrize("raw", [b"", GOLDEN[:100_003]])
def test_broken_file_is_a_loss(tmp_path: Path, raw: bytes) -> None:
    judged = completeness.read(Trial(write(tmp_path, raw)))
    assert judged is not None and judged.verdict == "lost" and "capture.pcap: " in judged.reasons[-1]


SCHEDULER, WORKERS = "10.99.7.116", {"worker-1": "10.99.7.117", "worker-2": "10.99.7.118"}
FRAMES = packets_of(GOLDEN)


def ends(frame: Packet) -> set[str]:
    """Return source and destination of an IPv4 frame."""
    data = frame[1]
    return {str(ip_address(data[at : at + 4])) for at in (26, 30)} if data[12:14] == b"\x08\x00" else set()


def sent_by(address: str) -> list[int]:
    """Return the lengths of the frames that a node sent."""
    return [length for _, data, length in FRAMES if data[26:30] == ip_address(address).packed]


HOST_FACTS = {
    "kernel": "",
    "os": "",
    "virtualization": "",
    "cpus": 1,
    "memory_mb": 1,
    "versions": {},
    "cpu": {},
}
HOST_FACTS |= {"congestion_control": "", "clock_ahead_at_most_s": 0, "seconds": 1, "softnet_dropped": 0}


def trial(
    directory: Path, frames: list[Packet], *, timed_runs: int = 1, hosts: bool = True, **report: Any
) -> Path:
    """Write a trial whose capture, of one repeat, holds these frames of a real cluster."""
    run = {
        "repeat": 0,
        "warmup": False,
        "start": 1.0,
        "stop": 2.0,
        "duration_s": 1.0,
        "answer": 0.0,
        "ok": True,
    }
    addresses = {name: f"tcp://{address}:40000" for name, address in WORKERS.items()}
    timings = capture_report()["timings"] | {"cluster": {"workers": 2, "threads": 2, "addresses": addresses}}
    write(directory, pcap(frames), frames=len(frames), timings=timings | {"samples": [run]}, **report)
    (directory / "timings.json").write_text(json.dumps(timings | {"samples": [run] * timed_runs}))
    facts = {
        name: HOST_FACTS | {"tcp": {}, "lab_statistics": {"tx_bytes": timed_runs * sum(sent_by(address))}}
        for name, address in WORKERS.items()
    }
    if hosts:
        document = {"schema": 4, "hypervisor": {"name": None, "accel": "tcg"}, "hosts": facts}
        (directory / "hosts.json").write_text(json.dumps(document))
    return directory


def verdict(*args: Any, **options: Any) -> Completeness:
    judged = completeness.read(Trial(trial(*args, **options)))
    assert judged is not None
    return judged


OF_SCHEDULER = [frame for frame in FRAMES if SCHEDULER in ends(frame)]
OF_OTHERS = [frame for frame in FRAMES if SCHEDULER not in ends(frame)]
WITHOUT_ONE = [frame for frame in FRAMES if WORKERS["worker-2"] not in ends(frame)]
NOT_DASK = [frame for frame in FRAMES if not ends(frame)]
CUT = [(time_ns, data if frame in OF_SCHEDULER else data[:512], length)
       for frame in FRAMES for time_ns, data, length in [frame]]  # fmt: skip
BLIND = [
    (NOT_DASK, {}, "none of its 28 frames is Dask's, though the workers send about 0.165 MB in 1 repeat"),
    (NOT_DASK, {"hosts": False}, "none of its 28 frames is Dask's"),
    ([], {}, "none of its 0 frames is Dask's, though the workers send about 0.165 MB in 1 repeat"),
    (OF_SCHEDULER, {}, "it holds 0.0353 MB of about 0.165 MB that the workers send in 1 repeat"),
    (OF_OTHERS, {}, "it does not hold the messages between the scheduler and worker-1, worker-2"),
    (WITHOUT_ONE, {"hosts": False}, "it does not hold the messages between the scheduler and worker-2"),
]


@pytest.mark.parametrize(("frames", "options", "reason"), BLIND)
def test_frames_that_never_reached_the_capturing_host_make_it_blind(
    tmp_path: Path, frames: list[Packet], options: Json, reason: str
) -> None:
    judged = verdict(tmp_path, frames, **options)
    assert (judged.verdict, judged.reasons) == ("blind", (reason,))
    line = completeness.line(judged)
    assert line.startswith(
        f"The capture is blind: {reason}. What to do: let the capturing host see all frames"
    )
    assert "mirror port" in line and "flooding bridge" in line and "capture on each host" in line


@pytest.mark.parametrize(
    ("frames", "options"),
    [(FRAMES, {}), (CUT, {}), (FRAMES, {"timed_runs": 7}), (FRAMES, {"hosts": False}), (FRAMES + FRAMES, {})],
    ids=["all", "snaplen", "more timed runs", "no counters", "all twice"],
)
def test_capture_of_all_frames_is_complete(tmp_path: Path, frames: list[Packet], options: Json) -> None:
    judged = verdict(tmp_path, frames, **options)
    assert (judged.verdict, judged.reasons) == ("complete", ())
    ip_bytes = sum(length - 14 for address in WORKERS.values() for length in sent_by(address))
    assert judged.seen_bytes == ip_bytes * (len(frames) // len(FRAMES))


def test_blind_capture_also_reports_its_losses(tmp_path: Path) -> None:
    blind = verdict(tmp_path, NOT_DASK, dropped_kernel=3)
    assert blind.verdict == "blind" and "the kernel dropped 3 frames" in completeness.line(blind)


def test_capture_that_was_cut_short_is_not_blind(tmp_path: Path) -> None:
    short = verdict(tmp_path, OF_SCHEDULER[:9], expired=True)
    assert (short.verdict, short.reasons) == ("lost", ("tcpdump ended before the repeats did",))


def test_run_and_baseline_report_an_incomplete_capture(
    measured: Callable[..., driver.ActiveRun], capsys: pytest.CaptureFixture[str]
) -> None:
    """The captures of the fake lab have no files."""

    def spoil(trial: Json, files: Json) -> int:
        files["capture.json"] = capture_report()
        return 0

    run = measured(FakeLab(spoil=spoil))
    first = run.stored.folder / run.trials[0].trial
    assert documents.require(Completeness, first).reasons == ("its files are missing",)
    (first / "result.json").unlink()
    execute(driver.resume(run.opened_again(), SETUP), FakeLab(spoil=spoil))
    assert "The capture is incomplete: its files are missing" in capsys.readouterr().err
    write(first, b"")
    baseline_run.show(run.opened_again())
    assert "The capture is incomplete: its files are missing" in capsys.readouterr().out


class CapturingLab(FakeLab):
    """A fake lab whose capturing host sees these frames only."""

    def __init__(self, frames: list[Packet]) -> None:
        super().__init__()
        self.frames = frames

    def run_trial(self, stored: Trial) -> int:
        status = super().run_trial(stored)
        texts = {name: (stored.folder / name).read_text() for name in ("timings.json", "hosts.json")}
        trial(stored.folder, self.frames)
        for name, text in texts.items():
            (stored.folder / name).write_text(text)
        return status


@pytest.mark.usefixtures("undrawn")
def test_report_uses_no_blind_capture(tmp_path: Path) -> None:
    """If one worker is missing, the shares of the others would be wrong."""
    name, content = experiment.load("traffic_capture", quick=True)
    texts = []
    for frames in (FRAMES, WITHOUT_ONE):
        run = driver.start(tmp_path / f"{len(frames)}", name, content, SETUP, quick=True)
        driver.execute(run, CapturingLab(frames), lambda trial, state: None)
        texts.append(
            page.write([run.opened_again()], run.stored.folder / "page").with_name("report.md").read_text()
        )
    assert ["Workers sent each other" in text for text in texts] == [True, False]
    assert ["The capture is blind" in text for text in texts] == [False, True]


@pytest.mark.usefixtures("undrawn")
def test_run_baseline_and_report_report_a_blind_capture(
    tmp_path: Path, sweep: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    run = driver.start(tmp_path, "x", sweep, SETUP, quick=False)
    execute(run, CapturingLab(NOT_DASK[:7]))
    blind = "The capture is blind: none of its 7 frames is Dask's. What to do: "
    assert capsys.readouterr().err.count(blind) == 1
    baseline_run.show(run.opened_again())
    assert f"\n{blind}" in capsys.readouterr().out
    text = page.write([run.opened_again()], tmp_path / "page").with_name("report.md").read_text()
    assert text.count(blind) == 1
