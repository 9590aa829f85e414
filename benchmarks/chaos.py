"""Kill processes at random moments: does a lab survive the death of any process that works on it?

    python benchmarks/chaos.py --kills 60 --seed 1        # a lab of containers, about a minute per kill
    python benchmarks/chaos.py --kills 5 --seed 7 --folder /tmp/chaos    # keeps the folder and its logs
    python benchmarks/chaos.py --victims recorder,detach --minutes 5     # stops after so long, too

Each round takes the next victim of an order that the seed determines. Most start ``dasklab up``, ``run`` or
``destroy`` in a separate lab, wait for a random part of the time that the command takes, and strike:

- ``driver``, ``playbook``, ``worker``, ``endpoint``: SIGKILL to dasklab, to ansible-playbook, to one of its
  workers, or to minipve;
- ``home``: the driver works with another HOME; a ``destroy`` from the usual one must be refused; SIGKILL;
- ``disk``: the file system with state, results and homes is full until the command has ended;
- ``upload``: SIGKILL to the endpoint while it receives an ISO image;
- ``recorder``, ``detach``: SIGKILL to `dasklab record`, or to a Dask worker when it ends (on a cluster of
  their own, see chaos_recorder.py).

Then it checks that

- the command ends, unless it was the victim, and prints no traceback;
- the next ``dasklab up`` completes (the next ``dasklab record``, and the work of the recorded cluster);
- no trial is ``ok`` and incomplete, no upload is cut, no cut record counts as whole;
- the final ``dasklab destroy`` leaves no process, mount, control group, lock or state.

Ctrl-C (or SIGTERM) ends it after the present round, with the final checks. A second one ends it at once, and
the lab stays.

Exit status: 0 if all checks passed, else 1. Requires what a lab of containers requires (``dasklab doctor``);
``disk`` needs mkfs.ext4 and a loop device.
"""

from __future__ import annotations

import argparse
import http.client
import json
import os
import shutil
import signal
import ssl
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from random import Random

from chaos_recorder import RecordedCluster, until, wait
from dasklab.machines.inventory.ansible_inventory import DEFAULT
from dasklab.paths import SHARE as ROOT
from dasklab.running.lock.lock import holders
from minipve.base import process
from minipve.base.paths import Paths
from minipve.endpoint import control
from minipve.guests.lxc import cgroups

COMMANDS = ("up", "run", "run", "destroy")  # runs are drawn twice as often: they have the most to lose
COMMANDS_OF = {  # each victim -> what it works on
    "driver": COMMANDS,
    "playbook": COMMANDS,
    "worker": COMMANDS,
    "endpoint": COMMANDS,
    "home": ("up", "run"),
    "disk": ("up", "run"),
    "upload": ("upload",),
    "recorder": ("record",),
    "detach": ("record",),
}
OF_A_CLUSTER = {"recorder", "detach"}  # the others need a lab
FIRST_GUESS_S = {"up": 40.0, "run": 80.0, "destroy": 8.0}  # replaced by the command's last duration
LIMIT_S = 600.0  # within which a command must end after one of its processes was killed
DISK_BYTES = 8 * 2**30  # with --victims disk; a file without content
UPLOAD_BYTES = 16 * 2**20
EXPERIMENT = """
title: Chaos
question: Does a run survive the death of its processes?
metrics: {compute_s: ~}
factors:
  rate_mbit: {sets: nics.worker-1.rate_mbit, levels: [0, 100]}
workload: {name: array_study, params: {size: 1000, chunk: 250}}
repeats: 3
warmups: 1
blocks: 1
probes: {pings: 3, iperf_runs: 1, iperf_s: 1}
repeat_s: 1
ttl_s: 120
tolerances: {foreign_pct: 100} # other work on this machine does not matter here
"""
DOCUMENTS = ("trial.json", "attempt.json", "configured.json", "measured.json", "timings.json", "hosts.json")


@dataclass(frozen=True)
class Round:
    """What happens in a round: all that chance decides.

    Attributes:
        share: the moment, as a share of the time that the command takes.
        pick: which of several processes, files or alternatives, from 0 to 1.
        pause_s: before the next command, so that what a killed driver left may end by itself.
    """

    victim: str
    command: str
    share: float
    pick: float
    pause_s: float


def rounds(seed: int, victims: Sequence[str]) -> Iterator[Round]:
    """Yield rounds without end. Each victim comes once before any comes again."""
    dice = Random(seed)
    while True:
        for victim in dice.sample(victims, len(victims)):
            command = dice.choice(COMMANDS_OF[victim])
            pause_s = dice.choice((0.0, dice.uniform(0, 20)))
            yield Round(victim, command, dice.random(), dice.random(), pause_s)


@dataclass
class Bench:
    """A lab in a folder, and the commands of its user."""

    folder: Path
    durations_s: dict[str, float] = field(default_factory=lambda: dict(FIRST_GUESS_S))

    def __post_init__(self) -> None:
        shutil.copytree(DEFAULT.parent, self.disk / "inventory", dirs_exist_ok=True)
        self.experiment.write_text(EXPERIMENT)
        self.logs.mkdir(exist_ok=True)

    @property
    def disk(self) -> Path:
        """The folder with everything that dasklab writes; perhaps a file system of its own."""
        return self.folder / "disk"

    @property
    def inventory(self) -> Path:
        return self.disk / "inventory" / DEFAULT.name

    @property
    def experiment(self) -> Path:
        return self.disk / "chaos.yml"

    @property
    def logs(self) -> Path:
        """The folder with the output of each command."""
        return self.folder / "logs"

    @property
    def paths(self) -> Paths:
        """The folders of the lab's endpoint."""
        return Paths(self.disk / "state", self.disk)

    def start(self, log: str, *words: str, home: str = "home") -> subprocess.Popen[bytes]:
        """Start dasklab with these arguments, its output in a log."""
        (self.disk / home).mkdir(exist_ok=True)
        environment = {
            **os.environ,
            "DASKLAB_INVENTORY": str(self.inventory),
            "DASKLAB_STATE": str(self.disk / "state"),
            "DASKLAB_RESULTS": str(self.disk / "results"),
            "HOME": str(self.disk / home),
            "MINIPVE_CACHE": os.environ.get("MINIPVE_CACHE", str(Path.home() / ".cache" / "minipve")),
            "DASKLAB_CACHE": os.environ.get("DASKLAB_CACHE", str(Path.home() / ".cache" / "dasklab")),
        }
        program = str(Path(sys.executable).with_name("dasklab"))
        with (self.logs / log).open("wb") as output:
            return subprocess.Popen(
                [program, *words],
                cwd=ROOT,
                env=environment,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )

    def run(self, log: str, *words: str) -> int | None:
        """Run dasklab with these arguments. Return its exit status, or None if it did not end in time."""
        start_s = time.monotonic()
        child = self.start(log, *words)
        status = wait(child, LIMIT_S)
        if status == 0:
            self.durations_s[words[0]] = time.monotonic() - start_s
        return status

    def up(self, log: str) -> Iterator[str]:
        """Build or repair the lab. Yield a sentence if that fails."""
        if self.run(log, "up", "--guests", "container") != 0:
            yield f"the next `dasklab up` failed, see {self.logs / log}"

    def words(self, command: str, pick: float) -> list[str]:
        """Return the arguments of a command. An interrupted run is resumed or not."""
        if command == "up":
            return ["up", "--guests", "container"]
        if command == "destroy":
            return ["destroy", "--yes"]
        unfinished = [run for run in self.runs() if len(list(run.glob("*/result.json"))) < 3]
        resumed = unfinished and pick < 0.5
        return ["run", "--no-wait", str(unfinished[-1] if resumed else self.experiment)]

    def runs(self) -> list[Path]:
        """Return the runs of the experiment, oldest first."""
        return sorted((self.disk / "results" / "chaos").glob("*"))

    def processes(self) -> dict[int, str]:
        """Return processes whose command line, environment or open files name the lab's folder.

        Ansible's workers are named ``worker:HOST``, which overwrites the first two.
        """
        lines = {}
        for entry in Path("/proc").glob("[0-9]*"):
            with suppress(OSError):
                line = (entry / "cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
                texts = [line, (entry / "environ").read_bytes().decode(errors="replace"), *open_files(entry)]
                if any(str(self.disk) in text for text in texts):
                    lines[int(entry.name)] = line.strip("\0 ")
        return {pid: line for pid, line in lines.items() if pid not in ancestors()}

    def victim(self, kind: str, driver: subprocess.Popen[bytes], pick: float) -> int | None:
        """Return the process to kill; None if there is none of this kind at the moment."""
        if driver.poll() is not None:
            return None
        if kind == "endpoint":
            return process.recall(self.paths.endpoint_lock)
        if kind == "driver":
            return driver.pid
        if kind == "home":
            lock = self.paths.state.with_name(f"{self.paths.state.name}.lock")
            return driver.pid if driver.pid in holders(lock) else None
        mains = [pid for pid in children(driver.pid) if "ansible-playbook" in command_line(pid)]
        if kind == "playbook":
            return mains[0] if mains else None
        workers = sorted(
            pid for main in mains for pid in children(main) if command_line(pid).startswith("worker")
        )
        return workers[int(pick * len(workers))] if workers else None


@dataclass
class Kill:
    """One round: which process of which command was killed when, and what was wrong afterwards."""

    command: str
    kind: str
    after_s: float
    faults: list[str] = field(default_factory=list)


def open_files(entry: Path) -> list[str]:
    """Return the targets of a process's open file descriptors."""
    return [str(link.readlink()) for link in (entry / "fd").iterdir()]


def command_line(pid: int) -> str:
    """Return the command line of a process, empty if it has ended."""
    with suppress(OSError):
        return Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
    return ""


def children(pid: int) -> list[int]:
    """Return the processes that a process has started and that have not ended."""
    numbers = (int(entry.name) for entry in Path("/proc").glob("[0-9]*"))
    return [number for number in numbers if parent(number) == pid]


def parent(pid: int) -> int:
    """Return the parent of a process, 0 if it has ended."""
    with suppress(OSError, IndexError):
        return int(Path(f"/proc/{pid}/stat").read_text().rpartition(") ")[2].split()[1])
    return 0


def ancestors() -> set[int]:
    """Return this process and its ancestors, whose command lines may contain the folder, too."""
    pids, pid = set(), os.getpid()
    while pid:
        pids.add(pid)
        pid = parent(pid)
    return pids


def play(bench: Bench, number: int, chance: Round) -> Kill | None:
    """Start a command, strike, check, repair. Return None if the command ended before there was a victim."""
    if chance.victim == "upload":
        return interrupt_upload(bench, number, chance)
    home = "other-home" if chance.victim == "home" else "home"
    log = f"{number:03}-{chance.command}.log"
    driver = bench.start(log, *bench.words(chance.command, chance.pick), home=home)
    start_s = time.monotonic()
    with suppress(subprocess.TimeoutExpired):
        driver.wait(chance.share * bench.durations_s[chance.command])
    kill = Kill(chance.command, chance.victim, time.monotonic() - start_s)
    if chance.victim == "disk":
        status = driver.poll()
        struck = status is None
        with full(bench.disk):
            status = wait(driver, LIMIT_S)
    else:
        struck = kill_process(bench, number, chance, driver, kill)
        status = wait(driver, LIMIT_S)
    if status == 0 and not struck:  # it was faster than expected
        bench.durations_s[chance.command] = time.monotonic() - start_s
    if status is None:
        kill.faults.append(f"did not end within {LIMIT_S:.0f} s")
    elif struck and status < 0 and chance.victim not in ("driver", "home"):
        kill.faults.append(f"ended by signal {-status}")
    if "Traceback (most recent call last)" in (bench.logs / log).read_text(errors="replace"):
        kill.faults.append(f"traceback in {bench.logs / log}")
    if struck:
        time.sleep(chance.pause_s)
    kill.faults += bench.up(f"{number:03}-after.log")
    kill.faults += [f"false ok: {trial}: {fault}" for trial, fault in incomplete(bench)]
    return kill if struck or kill.faults else None


def cluster_round(cluster: RecordedCluster, chance: Round) -> Kill | None:
    """Kill a process of the recorded cluster."""
    return Kill(chance.command, chance.victim, *cluster.strike(chance.victim, chance.share))


def kill_process(
    bench: Bench, number: int, chance: Round, driver: subprocess.Popen[bytes], kill: Kill
) -> bool:
    """Kill the victim as soon as there is one. Return False if the command ended before."""
    start_s = time.monotonic() - kill.after_s
    pid = None
    while pid is None and driver.poll() is None:
        pid = bench.victim(chance.victim, driver, chance.pick)
        time.sleep(0.05)
    if pid is None:
        return False
    if chance.victim == "home":
        log = f"{number:03}-other.log"
        status = bench.run(log, "destroy", "--yes")
        if driver.poll() is not None:
            return False
        if status == 0:
            kill.faults.append(f"`dasklab destroy` with another HOME was not refused, see {bench.logs / log}")
    kill.after_s = time.monotonic() - start_s
    with suppress(ProcessLookupError):
        os.kill(pid, signal.SIGKILL)
    return True


@contextmanager
def full(folder: Path) -> Iterator[None]:
    """Fill the file system of a folder to the last byte."""
    ballast = folder / "ballast"
    try:
        with ballast.open("wb") as file:
            step_bytes = DISK_BYTES
            while step_bytes:
                try:
                    os.posix_fallocate(file.fileno(), file.seek(0, os.SEEK_END), step_bytes)
                except OSError:
                    step_bytes //= 2
        yield
    finally:
        ballast.unlink()


@contextmanager
def file_system(folder: Path) -> Iterator[None]:
    """Mount an empty file system of its own on a folder."""
    folder.mkdir(exist_ok=True)
    image = folder.with_suffix(".img")
    with image.open("wb") as file:
        file.truncate(DISK_BYTES)
    subprocess.run(["mkfs.ext4", "-q", "-m", "0", str(image)], check=True)
    subprocess.run(["mount", "-o", "loop", str(image), str(folder)], check=True)
    try:
        yield
    finally:
        subprocess.run(["umount", "--lazy", str(folder)], check=True)  # what is busy was reported
        image.unlink()


def interrupt_upload(bench: Bench, number: int, chance: Round) -> Kill | None:
    """Kill the endpoint while it receives an ISO image. Later the file is there as a whole, or not at all."""
    sender = Upload(bench.paths, f"chaos-{number}.iso")
    start_s = time.monotonic()
    sender.start()
    time.sleep(chance.share)
    pid = process.recall(bench.paths.endpoint_lock)
    if pid is None or not sender.is_alive():
        sender.join()
        return None
    kill = Kill("upload", "upload", time.monotonic() - start_s)
    os.kill(pid, signal.SIGKILL)
    sender.join()
    time.sleep(chance.pause_s)
    kill.faults += bench.up(f"{number:03}-after.log")
    files = {file: file.stat().st_size for file in bench.paths.state.rglob("*.iso") if "chaos" in file.name}
    kill.faults += [f"cut upload {file}" for file, size in files.items() if size != UPLOAD_BYTES]
    kill.faults += [f"left of an upload: {file}" for file in bench.paths.state.rglob("*pveupload*")]
    for file in files:
        file.unlink()
    return kill


class Upload(threading.Thread):
    """Sends an ISO image to the endpoint, for about a second."""

    def __init__(self, paths: Paths, name: str) -> None:
        super().__init__()
        self.facts = control.facts(paths)
        self.name_of_file = name

    def run(self) -> None:
        with suppress(OSError, http.client.HTTPException):  # the endpoint was killed
            self._send()

    def _send(self) -> None:
        facts = self.facts
        context = ssl.create_default_context(cafile=facts["ca_file"])
        link = http.client.HTTPSConnection(facts["host"], facts["port"], timeout=60, context=context)
        fields = '--x\r\nContent-Disposition: form-data; name="content"\r\n\r\niso\r\n--x\r\n'
        fields += f'Content-Disposition: form-data; name="filename"; filename="{self.name_of_file}"\r\n\r\n'
        head, tail = fields.encode(), b"\r\n--x--\r\n"
        link.putrequest("POST", "/api2/json/nodes/pve/storage/local/upload")
        link.putheader(
            "Authorization", f"PVEAPIToken={facts['user']}!{facts['token_id']}={facts['token_secret']}"
        )
        link.putheader("Content-Type", "multipart/form-data; boundary=x")
        link.putheader("Content-Length", str(len(head) + UPLOAD_BYTES + len(tail)))
        link.endheaders()
        link.send(head)
        for _ in range(16):
            link.send(bytes(UPLOAD_BYTES // 16))
            time.sleep(0.05)
        link.send(tail)
        link.getresponse().read()


def incomplete(bench: Bench) -> Iterator[tuple[Path, str]]:
    """Yield trials that count as ok but are not complete, with what is missing."""
    for file in bench.disk.glob("results/*/*/*/result.json"):
        trial = file.parent
        try:
            if json.loads(file.read_text())["status"] != "ok":
                continue
            documents = {name: json.loads((trial / name).read_text()) for name in DOCUMENTS}
        except (OSError, ValueError) as error:
            yield trial, f"damaged: {error}"
            continue
        planned = documents["trial.json"]["repeats"] + documents["trial.json"]["warmups"]
        if len(documents["timings.json"]["samples"]) != planned:
            yield trial, f"{len(documents['timings.json']['samples'])} of {planned} runs"
        if documents["attempt.json"]["exit_status"] or (trial / "failed.json").exists():
            yield trial, "ok, although it failed"


def leftovers(bench: Bench) -> Iterator[str]:
    """Yield what is left of a lab that was destroyed."""
    until(lambda: not bench.processes(), 10)
    yield from (f"process {pid}: {line[:150]}" for pid, line in bench.processes().items())
    mounts = [line.split()[4] for line in Path("/proc/self/mountinfo").read_text().splitlines()]
    yield from (f"mount {mount}" for mount in mounts if mount.startswith(f"{bench.disk}/"))
    if cgroups.exist(bench.paths):
        yield f"control groups {cgroups.folder(bench.paths)}"
    yield from (str(file) for file in bench.disk.glob("state*"))
    yield from (f"lock {file}" for file in bench.disk.glob("*/.local/state/dasklab-locks/*"))
    yield from (f"draft {file}" for file in bench.disk.rglob(".tmp-*"))


def print_table(kills: list[Kill], left: list[str]) -> None:
    """Print the kills by command and victim, and everything that was wrong."""
    counts = Counter((kill.command, kill.kind) for kill in kills)
    bad = Counter((kill.command, kill.kind) for kill in kills if kill.faults)
    print("\nvictim     command   kills   bad")
    for (command, kind), count in sorted(counts.items(), key=lambda row: row[0][::-1]):
        print(f"{kind:10} {command:8} {count:6} {bad[command, kind]:5}")
    faults = [f"{kill.command}, {kill.kind}: {fault}" for kill in kills for fault in kill.faults]
    false_ok = sum(": false ok" in fault for fault in faults)
    print(f"\n{len(kills)} kills, {len(faults)} faults, {false_ok} false ok, {len(left)} leftovers")
    for line in [*faults, *(f"left behind: {line}" for line in left)]:
        print(f"  {line}")


def main() -> None:
    """Parse the command line and run the rounds."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--kills", type=int, default=60, help="number of kills (default %(default)s)")
    parser.add_argument(
        "--minutes", type=float, default=float("inf"), help="begin no round so long after the first"
    )
    parser.add_argument("--seed", type=int, default=1, help="seed of commands, victims and moments")
    parser.add_argument(
        "--victims",
        type=lambda text: text.split(","),
        default=list(COMMANDS_OF),
        help=f"some of {','.join(COMMANDS_OF)} (default: all)",
    )
    parser.add_argument(
        "--folder", type=Path, help="folder of the lab, which is kept (default: a temporary one)"
    )
    args = parser.parse_args()
    if unknown := [victim for victim in args.victims if victim not in COMMANDS_OF]:
        parser.error(f"no such victim: {', '.join(unknown)}; victims are {', '.join(COMMANDS_OF)}")
    with tempfile.TemporaryDirectory(prefix="chaos-") as temporary:
        folder = (args.folder or Path(temporary)).resolve()
        folder.mkdir(parents=True, exist_ok=True)
        sys.exit(1 if survive(folder, args.kills, args.minutes * 60, args.seed, args.victims) else 0)


def survive(folder: Path, count: int, limit_s: float, seed: int, victims: Sequence[str]) -> bool:
    """Kill ``count`` processes. Return whether anything was wrong."""
    kills: list[Kill] = []
    left: list[str] = []
    with ExitStack() as stack:
        if "disk" in victims:
            stack.enter_context(file_system(folder / "disk"))
        bench = build(folder) if set(victims) - OF_A_CLUSTER else None
        cluster = RecordedCluster(folder / "cluster") if set(victims) & OF_A_CLUSTER else None
        stopped = stop_on_signal()
        start_s = time.monotonic()
        for number, chance in enumerate(rounds(seed, victims), 1):
            if len(kills) == count or time.monotonic() > start_s + limit_s or stopped.is_set():
                break
            if cluster and chance.victim in OF_A_CLUSTER:
                kill = cluster_round(cluster, chance)
            elif bench:
                kill = play(bench, number, chance)
            if kill:
                kills.append(kill)
                what = f"{kill.command}: {kill.kind} after {kill.after_s:.1f} s"
                print(f"{len(kills):3}/{count} {what}: {'; '.join(kill.faults) or 'ok'}", flush=True)
        if cluster:
            cluster.close()
        if bench:
            if bench.run("999-destroy.log", "destroy", "--yes") != 0:
                left.append("`dasklab destroy` failed")
            left += leftovers(bench)
    print_table(kills, left)
    return bool(left) or any(kill.faults for kill in kills)


def stop_on_signal() -> threading.Event:
    """Return an event that the first SIGINT or SIGTERM sets. The second one does what it usually does."""
    stopped = threading.Event()

    def stop(signum: int, _frame: object) -> None:
        stopped.set()
        signal.signal(signum, signal.default_int_handler)

    for signum in (signal.SIGINT, signal.SIGTERM):
        signal.signal(signum, stop)
    return stopped


def build(folder: Path) -> Bench:
    """Build the lab."""
    (folder / "disk").mkdir(exist_ok=True)
    bench = Bench(folder)
    if bench.run("000-up.log", "up", "--guests", "container") != 0:
        sys.exit(f"the lab cannot be built: see {bench.logs / '000-up.log'}")
    print(f"lab built in {bench.durations_s['up']:.0f} s; files: {bench.folder}", flush=True)
    return bench


if __name__ == "__main__":
    main()
