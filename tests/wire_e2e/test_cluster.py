"""Compare a fresh capture of a real cluster in network namespaces with the counters inside it.

Takes a minute or two; needs root, iproute2 and tcpdump. WIRE_E2E_SIZE=10000:1000 runs the study's size.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from daskwire import Capture, open_capture

ROOT = Path(__file__).parents[2]
SIZE = os.environ.get("WIRE_E2E_SIZE", "4000:400")
TASKS = (
    676  # the study's computation on 10 x 10 chunks: 675 tasks after optimisation, and the one that returns
)
NEEDED = ("ip", "tcpdump")


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> tuple[Capture, dict[str, Any]]:
    missing = [tool for tool in NEEDED if shutil.which(tool) is None]
    if missing or os.geteuid() != 0:
        pytest.skip(f"needs root and {', '.join(NEEDED)}; missing: {', '.join(missing) or 'root'}")
    out = tmp_path_factory.mktemp("cluster")
    script = [
        sys.executable,
        str(ROOT / "benchmarks/wire_cluster.py"),
        "--workload",
        f"array:{SIZE}",
        "--out",
        str(out),
    ]
    subprocess.run([*script, "--threads", "2"], check=True, timeout=170)
    truth = json.loads((out / "truth.json").read_text())["nodes"]
    capture = open_capture(out / "capture.pcap")
    (out / "capture.pcap").unlink()  # the mapping keeps it readable
    return capture, truth


def test_result_of_the_workload_is_correct(run: tuple[Capture, dict[str, Any]]) -> None:
    assert run[1]["client"]["answer"] == pytest.approx(16, rel=0.01)


def test_ops_and_messages_match_the_counts_of_the_cluster(run: tuple[Capture, dict[str, Any]]) -> None:
    capture, truth = run
    table = capture.table("ops")
    actual: dict[str, Counter[str]] = {node: Counter() for node in truth}
    for source, op in zip(table["source"], table["op"], strict=True):
        actual[source][op] += 1
    assert actual == {node: Counter(output["ops"]) for node, output in truth.items()}
    assert Counter(capture.table("messages")["source"]) == {
        node: output["messages"] for node, output in truth.items()
    }


def test_every_task_is_decoded(run: tuple[Capture, dict[str, Any]]) -> None:
    tasks = run[0].table("tasks")
    outcomes = Counter(tasks["outcome"])
    assert outcomes["finished"] == TASKS and len(set(tasks["key"])) == TASKS
    assert (
        run[0].messages.op_name.count("compute-task") == TASKS + outcomes["stolen"] + outcomes["rescheduled"]
    )


def test_nothing_was_lost(run: tuple[Capture, dict[str, Any]]) -> None:
    flows = run[0].table("flows")
    assert sum(flows["lost_bytes"]) == sum(flows["unframed_bytes"]) == 0
