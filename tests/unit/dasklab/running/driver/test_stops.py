"""A process notices that it was stopped, and does not mistake its own work for that."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time

from dasklab.running.driver import stops

STOPPED_S = 3.0
PROGRAM = """
import json
from dasklab.running.driver import stops
with stops.watch_own_process() as pauses:
    print("ready", flush=True)
    input()
print(json.dumps([pause.model_dump() for pause in pauses]))
"""


def test_stopped_process_has_a_pause_without_cpu_time() -> None:
    words = [sys.executable, "-c", PROGRAM]
    with subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdin and process.stdout
        assert process.stdout.readline() == "ready\n"
        os.kill(process.pid, signal.SIGSTOP)
        time.sleep(STOPPED_S)
        os.kill(process.pid, signal.SIGCONT)
        answer, _ = process.communicate("\n")  # at once: the stop ends together with the block
    pauses = json.loads(answer)
    longest = max(pauses, key=lambda pause: pause["lasted_s"])
    assert STOPPED_S - 1 < longest["lasted_s"] < STOPPED_S + 5
    assert longest["cpu_s"] + longest["waited_s"] < 0.2 * longest["lasted_s"]


def test_process_that_works_is_not_stopped() -> None:
    with stops.watch_own_process() as pauses:
        end = time.monotonic() + 1
        while time.monotonic() < end:
            _ = 3**100_000  # holds the interpreter for a moment at a time
    assert all(pause.cpu_s + pause.waited_s > 0.5 * pause.lasted_s for pause in pauses)
