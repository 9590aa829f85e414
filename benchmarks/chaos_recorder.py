"""A Dask cluster under `dasklab record`, of which one process is killed. For ``chaos.py``."""

from __future__ import annotations

import os
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path

from dasklab.errors import LabError
from dasklab.records.document import read_document
from dasklab.records.recorder.base import NAME
from distributed import Client, Future

WORKERS = 2
LIMIT_S = 120.0  # within which everything here must end
SETTLE_S = 30.0  # within which the recorder must have left a cluster whose recorder was killed
CANNOT_DECIDE = 4  # exit status of `dasklab check`


class RecordedCluster:
    """A scheduler and workers on this machine, and the commands of a user who records them."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.logs = folder / "logs"
        self.logs.mkdir(parents=True, exist_ok=True)
        with socket.socket() as unused:
            unused.bind(("127.0.0.1", 0))
            self.address = f"tcp://127.0.0.1:{unused.getsockname()[1]}"
        port = self.address.rpartition(":")[2]
        listen = ["--host", "127.0.0.1", "--port", port, "--no-dashboard"]
        self.processes = [self._start("scheduler", "dask", "scheduler", *listen)]
        self.client = Client(self.address, timeout=LIMIT_S, set_as_default=False)
        self._complete_workers()
        self.whole = self.folder / "whole"
        if self._run("whole.log", "record", self.address, str(self.whole), "--seconds", "1"):
            sys.exit(f"the cluster cannot be recorded: see {self.logs / 'whole.log'}")

    def close(self) -> None:
        self.client.close()
        for process in self.processes:
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()

    def _start(self, name: str, program: str, *words: str) -> subprocess.Popen[bytes]:
        with (self.logs / name).open("ab") as output:
            return subprocess.Popen(
                [str(Path(sys.executable).with_name(program)), *words],
                cwd=self.folder,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                start_new_session=True,
            )

    def _run(self, log: str, *words: str) -> int | None:
        return wait(self._start(log, "dasklab", *words), LIMIT_S)

    def _complete_workers(self) -> None:
        alive = [process for process in self.processes if process.poll() is None]
        for _ in range(1 + WORKERS - len(alive)):
            words = ["worker", self.address, "--no-nanny", "--nthreads", "2", "--no-dashboard"]
            alive.append(self._start("workers.log", "dask", *words))
        self.processes = alive
        self.client.wait_for_workers(WORKERS, timeout=LIMIT_S)

    def strike(self, victim: str, share: float) -> tuple[float, list[str]]:
        """Kill the victim. Return when, and what was wrong afterwards."""
        kill = {"recorder": self._kill_recorder, "detach": self._kill_worker_at_detach}
        return kill[victim](share)

    def _kill_recorder(self, share: float) -> tuple[float, list[str]]:
        """Kill the client that records, up to 8 s after its start."""
        record, log = self._new_record()
        work = self._work()
        recorder = self._start(log, "dasklab", "record", self.address, str(record))
        start_s = time.monotonic()
        with suppress(subprocess.TimeoutExpired):
            recorder.wait(share * 8)
        recorder.kill()
        after_s = time.monotonic() - start_s
        recorder.wait()
        return after_s, [*self._harm(work), *self._false_success(record), *self._next_record(record)]

    def _kill_worker_at_detach(self, share: float) -> tuple[float, list[str]]:
        """Kill a worker within 0.5 s after the end of a recording."""
        record, log = self._new_record()
        work = self._work()
        recorder = self._start(log, "dasklab", "record", self.address, str(record))
        until(lambda: b"Recording" in (self.logs / log).read_bytes() or recorder.poll() is not None)
        recorder.terminate()  # like Ctrl-C, which a shell's background processes ignore
        time.sleep(share * 0.5)
        self.processes[-1].kill()
        start_s = time.monotonic()
        status = wait(recorder, LIMIT_S)
        faults = []
        text = (self.logs / log).read_text()
        if status is None:
            faults.append(f"the recorder did not end within {LIMIT_S:.0f} s")
        if "Traceback" in text:
            faults.append(f"traceback in {self.logs / log}")
        with suppress(OSError, LabError):
            if (status == 0) != (read_document(record).complete is True):
                faults.append(f"exit status {status}, complete: {read_document(record).complete}")
        self.processes[-1].wait()
        self._complete_workers()
        return time.monotonic() - start_s, [*faults, *self._harm(work), *self._next_record(record)]

    def _new_record(self) -> tuple[Path, str]:
        number = len(list(self.folder.glob("record-*")))
        record = self.folder / f"record-{number}"
        record.mkdir()
        return record, f"record-{number}.log"

    def _work(self) -> list[Future]:
        """Start the user's work: some 4 s on all threads."""

        def task(number):
            time.sleep(0.02)
            return number + 1

        return self.client.map(task, range(800), pure=False)

    def _harm(self, work: list[Future]) -> Iterator[str]:
        """Yield what the user notices: a wrong result, or a recorder that stays."""
        if sum(self.client.gather(work)) != sum(range(1, 801)):
            yield "the work of the cluster has another result"
        if not until(lambda: not self._recorders(), SETTLE_S):
            yield f"the recorder is still there after {SETTLE_S:.0f} s: {', '.join(self._recorders())}"

    def _recorders(self) -> list[str]:
        """Return the processes that the recorder is attached to."""
        names = self.client.run_on_scheduler(lambda dask_scheduler: list(dask_scheduler.plugins))
        workers = self.client.run(lambda dask_worker: list(dask_worker.plugins))
        return [address for address, plugins in {"scheduler": names, **workers}.items() if NAME in plugins]

    def _false_success(self, record: Path) -> Iterator[str]:
        """Yield how the record of a killed recorder counts as a whole one."""
        try:
            complete = read_document(record).complete
        except (OSError, LabError):  # killed before there was one
            return
        if complete:
            yield f"false ok: {record} is complete"
        words = ["check", str(record), "--against", str(self.whole), "--allow-different-work"]
        status = self._run(f"{record.name}-check.log", *words)
        if status not in (CANNOT_DECIDE, 3):
            yield f"false ok: `dasklab check` of {record} ended with {status}"

    def _next_record(self, record: Path) -> Iterator[str]:
        log = f"{record.name}-next.log"
        words = ["record", self.address, str(self.folder / f"next-{record.name}"), "--seconds", "1"]
        if self._run(log, *words) != 0:
            yield f"the next `dasklab record` failed, see {self.logs / log}"
        shutil.rmtree(self.folder / f"next-{record.name}", ignore_errors=True)


def wait(child: subprocess.Popen[bytes], limit_s: float) -> int | None:
    """Wait for a command and return its exit status. After ``limit_s`` kill it and return None."""
    try:
        return child.wait(limit_s)
    except subprocess.TimeoutExpired:
        child.kill()
        child.wait()
        return None


def until(condition: Callable[[], bool], limit_s: float = LIMIT_S) -> bool:
    """Wait until a condition holds. Return False if it does not within ``limit_s``."""
    deadline_s = time.monotonic() + limit_s
    while not condition():
        if time.monotonic() > deadline_s:
            return False
        time.sleep(0.05)
    return True
