"""Use the two doors that need no lab, with nothing but an installed dasklab, on any system (a workflow does).

python tests/two_doors.py
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
import time
from pathlib import Path

import dasklab
from distributed import Client, LocalCluster

CAPTURE = Path(__file__).parent / "data" / "wire" / "g3-2026.8.0.pcap.gz"


def sleep(number: int) -> int:
    time.sleep(0.2)
    return number


def output(module: str, *arguments: str) -> str:
    """Return what a command prints; it has to end well."""
    command = [sys.executable, "-m", module, *arguments]
    return subprocess.run(command, check=True, capture_output=True, encoding="utf-8").stdout


def main() -> None:
    with tempfile.TemporaryDirectory() as temporary:
        record = str(Path(temporary, "record"))
        with (
            LocalCluster(n_workers=2, threads_per_worker=1, dashboard_address=":0") as cluster,
            Client(cluster) as client,
            dasklab.record(client, record),
        ):
            client.gather(client.map(sleep, range(8)))
        answer = output("dasklab", "explain", record)
        print(answer)
        assert "tasks that wait" in " ".join(answer.split())
    messages = output("daskwire", str(CAPTURE))
    print(messages)
    assert "compute-task" in messages


if __name__ == "__main__":
    main()
