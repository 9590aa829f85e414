"""A capture is complete only if every counter and stream says so, and the reader hears it if not."""

from __future__ import annotations

import gzip
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from conftest import SETUP, FakeLab, Json, capture_report

from lab.commands import baseline
from lab.commands.progress import execute
from lab.model.files import CaptureReport, Completeness
from lab.results import completeness, store
from lab.running import driver

GOLDEN = Path(__file__).parents[2] / "data" / "wire" / "g3-2026.8.0.pcap.gz"
STREAMS = {"stream_seen": 1.0, "lost_by_capture_bytes": 0, "decoded": 1.0}


def judge(streams: Json, **counted: Any) -> Completeness:
    return completeness.judge(CaptureReport.model_validate(capture_report(**counted)), streams, 9)


def test_a_capture_that_lost_nothing_is_complete() -> None:
    found = judge(STREAMS)
    assert (found.verdict, found.reasons, found.received) == ("complete", (), 100)
    assert completeness.line(found) == completeness.line(None) == ""


LOSSES = [
    ({"dropped_kernel": 3}, {}, "the kernel dropped 3 frames, tcpdump's buffer was full"),
    ({"dropped_interface": 4}, {}, "the capture interface dropped 4 frames"),
    ({"softnet_dropped": 5000}, {}, "the capturing machine's backlog dropped 5,000 frames"),
    ({"left_behind": 6}, {}, "tcpdump left 6 received frames behind when it was stopped"),
    ({"nic_statistics": {"rx_missed_errors": 7}}, {}, "the capture interface counted 7 rx_missed_errors"),
    ({"expired": True}, {}, "tcpdump ended before the runs did"),
    ({"frames": None, "left_behind": None}, {}, "tcpdump did not say what it captured"),
    ({}, {"lost_by_capture_bytes": 1448}, "1,448 bytes were acknowledged but are not in the files"),
]


@pytest.mark.parametrize(("report", "streams", "reason"), LOSSES)
def test_each_loss_is_told(report: dict[str, Any], streams: dict[str, Any], reason: str) -> None:
    found = judge(STREAMS | streams, **report)
    assert (found.verdict, found.reasons) == ("lost", (reason,))
    assert completeness.line(found) == f"The capture is incomplete: {reason}"


def write(directory: Path, raw: bytes, **told: Any) -> Path:
    (directory / "capture.pcap").write_bytes(raw)
    (directory / "capture.json").write_text(json.dumps(capture_report(**told)))
    return directory


def test_it_is_judged_from_the_files_and_stored(tmp_path: Path) -> None:
    completeness.write(tmp_path)
    assert completeness.read(tmp_path) is None and not list(tmp_path.iterdir())
    whole = gzip.decompress(GOLDEN.read_bytes())
    fresh = completeness.read(write(tmp_path, whole))
    assert fresh is not None
    assert (fresh.verdict, fresh.messages, fresh.stream_seen) == ("complete", 133, 1.0)
    completeness.write(tmp_path)
    (tmp_path / "capture.pcap").unlink()
    assert completeness.read(tmp_path) == fresh


@pytest.mark.parametrize("raw", [b"", gzip.decompress(GOLDEN.read_bytes())[:100_003]])
def test_a_broken_file_is_a_loss(tmp_path: Path, raw: bytes) -> None:
    found = completeness.read(write(tmp_path, raw))
    assert found is not None and found.verdict == "lost" and "capture.pcap: " in found.reasons[-1]


def test_run_and_baseline_say_it_loudly(
    measured: Callable[..., driver.Ongoing], capsys: pytest.CaptureFixture[str]
) -> None:
    """The fake lab's captures have no files: nothing of what was said is there."""

    def spoil(trial: Json, files: Json) -> int:
        files["capture.json"] = capture_report()
        return 0

    run = measured(FakeLab(spoil=spoil))
    first = run.directory / run.trials[0].trial
    assert store.need(Completeness, first).reasons == ("its files are missing",)
    (first / "result.json").unlink()
    execute(driver.resume(run.directory, SETUP), FakeLab(spoil=spoil))
    assert "The capture is incomplete: its files are missing" in capsys.readouterr().err
    write(first, b"")
    baseline.show(run.directory)
    assert "The capture is incomplete: its files are missing" in capsys.readouterr().out
