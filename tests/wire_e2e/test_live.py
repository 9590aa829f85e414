"""``daskwire live`` in the network namespace of other processes, as one looks into a pod.

Needs root, iproute2 and tcpdump.
"""

from __future__ import annotations

import os
import re
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from benchmarks.wire_cluster import Cluster, Options, stop
from tests.waiting import until

NEEDED = ("ip", "nsenter", "tcpdump")


@pytest.mark.skipif(
    os.geteuid() != 0 or not all(map(shutil.which, NEEDED)), reason=f"needs root and {', '.join(NEEDED)}"
)
def test_interface_of_another_network_namespace(tmp_path: Path) -> None:
    """nsenter changes the network, but /sys still shows the host's interfaces."""
    cluster = Cluster(Options(tmp_path, workload="tasks:50", workers=1))
    with cluster.network(), (tmp_path / "live").open("wb") as output:
        port = cluster.port("scheduler")
        assert not Path("/sys/class/net", port).exists()
        namespace = f"--net=/run/netns/{cluster.switch}"
        live = subprocess.Popen(
            ["nsenter", namespace, sys.executable, "-m", "daskwire", "live", port, "--interval", "0.2"],
            stdout=output, stderr=subprocess.STDOUT,
        )  # fmt: skip

        def shown() -> str:
            return (tmp_path / "live").read_text()

        try:
            until(lambda: "packets/s" in shown(), "the first line")
            cluster.start_cluster()
            assert cluster.start_node("client", "tasks:50").wait(60) == 0
            until(lambda: "task-finished" in shown(), "the tasks")
            live.send_signal(signal.SIGINT)
            assert live.wait(30) == 0, shown()
        finally:
            cluster.stop_cluster()
            stop(live)
    number = re.search(r"([\d,]+) messages in [\d.]+ s; 0 packets dropped", shown())
    assert number and int(number[1].replace(",", "")) > 20
