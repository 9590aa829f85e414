"""What ``chaos.py`` strikes has a file system, a network and a table of processes of its own.

``chaos.py`` starts each bench in new namespaces, so every process in ``/proc`` belongs to the bench. Its file
system is a tmpfs that can be filled to the last byte or inode, and that notes when a file is read: that tells
when a command has begun its work.
"""

from __future__ import annotations

import os
import re
import shutil
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path

from dasklab.machines.inventory.ansible_inventory import DEFAULT
from dasklab.paths import SHARE as ROOT
from minipve.base.paths import Paths
from minipve.guests.lxc import limits

LIMIT_S = 600.0  # within which a command must end, whatever was killed
SETTLE_S = 30.0  # within which all that a command has started must be gone
ATTEMPTS = 3  # a round is repeated, with an earlier moment, if its command ended before it was struck
STOP_S = 30.0  # length of a SIGSTOP
VICTIMS = {  # blow -> the processes that it may kill
    "endpoint": re.compile(r"-m minipve .*run --fd"),
    "playbook": re.compile(r"bin/ansible-playbook "),
    "playbook's worker": re.compile(r"^worker"),
    "Dask worker": re.compile(r"dask worker tcp"),
    "scheduler": re.compile(r"dask scheduler"),
}
KILLS = ("SIGKILL", "SIGTERM", "Ctrl-C", "Ctrl-C twice", "SIGSTOP", *VICTIMS)
WORK = re.compile(r"dask|iperf|tcpdump|ping")  # what must not go on in a guest at rest
OPTIONS = "size=8g,nr_inodes=2m,mode=755,strictatime"


@dataclass(frozen=True)
class Round:
    """What happens in a round: all that chance decides.

    Attributes:
        blow: what strikes; ``with COMMAND`` starts a second command on the same lab.
        share: the moment, as a share of the time that the command works.
        pick: which of several victims, and how long between two Ctrl-C, from 0 to 1.
    """

    number: int
    command: str
    blow: str
    share: float
    pick: float


@dataclass
class Outcome:
    """What a round brought. ``struck``: the command was alive, and had begun its work."""

    number: int
    command: str
    blow: str
    struck: bool = False
    after_s: float = 0.0
    status: int | None = None
    load: float = 0.0
    faults: list[str] = field(default_factory=list)


class Bench:
    """A file system with everything that dasklab writes, and the commands of its user.

    Attributes:
        goes_on: whether all else goes on while a command is suspended, or the whole machine is.
        work_s: how long each command works if nothing disturbs it.
        nothing, rest: what there is before the bench is up, and while it is up and no command runs.
    """

    goes_on = False

    def __init__(self, folder: Path) -> None:
        self.folder, self.disk, self.logs = folder, folder / "disk", folder / "logs"
        for path in (self.disk, self.logs):
            path.mkdir(parents=True, exist_ok=True)
        run("ip", "link", "set", "lo", "up")
        run("mount", "-t", "tmpfs", "-o", OPTIONS, "chaos", str(self.disk))
        for name in ("home", "tmp"):
            (self.disk / name).mkdir()
        self.work_s: dict[str, float] = {}
        self.text = ""  # what the last command printed
        self.nothing = self.rest = self.things()

    def start(self, log: str, *words: str, program: str = "dasklab") -> subprocess.Popen[bytes]:
        """Start a program of this environment with these arguments, its output in a log."""
        cache = Path.home() / ".cache"
        environment = {
            "MINIPVE_CACHE": str(cache / "minipve"),
            "DASKLAB_CACHE": str(cache / "dasklab"),
            **os.environ,
            "DASKLAB_INVENTORY": str(self.disk / "inventory" / DEFAULT.name),
            "DASKLAB_STATE": str(self.disk / "state"),
            "DASKLAB_RESULTS": str(self.disk / "results"),
            "HOME": str(self.disk / "home"),
            "TMPDIR": str(self.disk / "tmp"),
        }
        argv = [str(Path(sys.executable).with_name(program)), *words]
        with (self.logs / log).open("ab") as output:
            return subprocess.Popen(
                argv, cwd=ROOT, env=environment, stdin=subprocess.DEVNULL, stdout=output, stderr=output,
                start_new_session=True,
            )  # fmt: skip

    def run(self, log: str, *words: str, program: str = "dasklab") -> int | None:
        """Run a program. Return its exit status, or None if it did not end in time."""
        (self.logs / log).unlink(missing_ok=True)
        status = wait(self.start(log, *words, program=program))
        self.text = (self.logs / log).read_text(errors="replace")
        return status

    def measure(self, command: str) -> None:
        """Run a command that nothing disturbs, and note how long it works. End the bench if it fails."""
        self.prepare(command)
        child, begun_s = self.begin(Round(0, command, "", 0, 0), f"000-{command}.log")
        if wait(child) != 0:
            sys.exit(f"{command} fails although nothing is killed: see {self.logs / f'000-{command}.log'}")
        self.work_s[command] = time.monotonic() - begun_s

    def begin(self, plan: Round, log: str) -> tuple[subprocess.Popen[bytes], float]:
        """Start a round's command and wait until it works, or has ended."""
        (self.logs / log).unlink(missing_ok=True)
        start_ns = time.time_ns()
        child = self.start(
            log, *self.words(plan), program="python" if plan.command == "program" else "dasklab"
        )
        until(lambda: self.works(plan, child, start_ns) or child.poll() is not None, LIMIT_S)
        return child, time.monotonic()

    def play(self, plan: Round) -> Outcome:
        """Strike a command, judge, repair. Try an earlier moment if the command was faster than expected."""
        outcome = Outcome(plan.number, plan.command, plan.blow)
        for attempt in range(1, ATTEMPTS + 1):
            self.prepare(plan.command)
            digests = self.kept()
            log = f"{plan.number:03}-{plan.command.replace(' ', '-')}.log"
            with ExitStack() as stack:
                if plan.blow == "read-only home":
                    stack.enter_context(self.trouble(plan.blow))
                child, begun_s = self.begin(plan, log)
                with suppress(subprocess.TimeoutExpired):
                    child.wait(plan.share * self.work_s[plan.command] / attempt)
                outcome.after_s = time.monotonic() - begun_s
                outcome.load = os.getloadavg()[0]
                outcome.struck = child.poll() is None and self.strike(plan, child, outcome.faults)
                outcome.status = wait(child)
            outcome.faults += self.judge(plan, outcome, (self.logs / log).read_text(errors="replace"))
            outcome.faults += self.repair(plan, outcome)
            now = self.kept()
            outcome.faults += [f"lost: {name}" for name in digests if now.get(name) != digests[name]]
            outcome.faults += self.left()
            if outcome.struck or outcome.faults:
                break
        return outcome

    def strike(self, plan: Round, child: subprocess.Popen[bytes], faults: list[str]) -> bool:
        """Do what the round plans. Return False if the command ended before."""
        match plan.blow.split()[0]:
            case "SIGKILL":
                child.kill()
            case "SIGTERM":
                child.terminate()
            case "Ctrl-C":  # as a terminal does it: to the whole process group
                for pause_s in (0, 3 * plan.pick)[: 1 + ("twice" in plan.blow)]:
                    time.sleep(pause_s)
                    with suppress(ProcessLookupError):
                        os.killpg(child.pid, signal.SIGINT)
            case "SIGSTOP":
                self.stop(lambda: {child.pid} if self.goes_on else set(processes()))
            case "full" | "no" | "read-only":
                with self.trouble(plan.blow):
                    struck = child.poll() is None  # it takes a moment until the last byte is used
                    wait(child)
                return struck
            case _:
                return self.kill_victim(plan, child)
        return True

    def kill_victim(self, plan: Round, child: subprocess.Popen[bytes]) -> bool:
        """Kill a process of the round's kind as soon as there is one."""
        while child.poll() is None:
            lines = sorted(processes().items())
            if pids := [pid for pid, line in lines if VICTIMS[plan.blow].search(line)]:
                with suppress(ProcessLookupError):
                    os.kill(pids[int(plan.pick * len(pids))], signal.SIGKILL)
                return True
            time.sleep(0.05)
        return False

    def stop(self, pids: Callable[[], set[int]]) -> None:
        """Suspend processes for half a minute."""
        stopped: set[int] = set()
        for _ in range(2):  # a process may have been started while others were stopped
            for pid in pids() - stopped:
                stopped.add(pid)
                send(pid, signal.SIGSTOP)
        time.sleep(STOP_S)
        for pid in stopped:
            send(pid, signal.SIGCONT)

    @contextmanager
    def trouble(self, blow: str) -> Iterator[None]:
        """Fill the file system, use up its inodes, or make the home read-only."""
        home, ballast = str(self.disk / "home"), self.disk / "ballast"
        if blow == "read-only home":
            run("mount", "--bind", home, home)
            run("mount", "-o", "remount,ro,bind", home)
            yield
            run("umount", "--lazy", home)
            return
        usage = os.statvfs(self.disk)
        limit = f"size={(usage.f_blocks - usage.f_bfree) * usage.f_frsize + 2**24}"
        if blow == "no inodes":
            limit = f"nr_inodes={usage.f_files - usage.f_ffree + 1000}"
        ballast.mkdir()
        run("mount", "-o", f"remount,{limit}", str(self.disk))
        with suppress(OSError):
            for number in range(2**24):
                (ballast / str(number)).write_bytes(bytes(4096 if blow == "full disk" else 0))
        yield
        run("mount", "-o", f"remount,{OPTIONS}", str(self.disk))
        shutil.rmtree(ballast)

    def judge(self, plan: Round, outcome: Outcome, text: str) -> Iterator[str]:
        """Yield what is wrong with the end of a command."""
        if outcome.status is None:
            yield f"did not end within {LIMIT_S:.0f} s"
        elif not outcome.struck and outcome.status not in (0, 4):
            yield f"failed before it was struck, exit status {outcome.status}"
        elif outcome.status < 0 and plan.blow.split()[0] not in ("SIGKILL", "SIGTERM", "Ctrl-C"):
            yield f"ended by signal {-outcome.status}"
        if "Traceback (most recent call last)" in text and plan.command != "program":
            yield "traceback"
        yield from (f"false ok: {claim}" for claim in self.false_claims(plan, outcome))

    def things(self) -> Counter[str]:
        """Return what a command may leave: processes, mounts, links, networks, control groups, drafts."""
        things: Counter[str] = Counter()
        networks = {str(Path("/proc/self/ns/net").readlink()): os.getpid()}
        lab = (self.disk / "state").exists()
        for pid, line in processes().items():
            with suppress(OSError):
                if not lab or "/minipve-" not in Path(f"/proc/{pid}/cgroup").read_text():
                    networks[str(Path(f"/proc/{pid}/ns/net").readlink())] = pid
                elif not WORK.search(line):  # what else runs in a guest is its own affair
                    continue
                things[f"process {re.sub(r'[0-9a-f]{6,}|[0-9]+', 'N', line)[:100]}"] += 1
        things["network namespace"] = len(networks)
        for pid in networks.values():
            words = ["nsenter", f"--net=/proc/{pid}/ns/net", "ip", "-o", "link"]
            lines = subprocess.run(words, capture_output=True, text=True, check=False).stdout.splitlines()
            things.update(f"link {line.split(':')[1].strip()}" for line in lines)
        mounts = (line.split()[4] for line in Path("/proc/self/mountinfo").read_text().splitlines())
        things.update(f"mount {mount}" for mount in mounts)
        groups = limits.folder(Paths(self.disk / "state", self.disk))
        things.update(f"control group {path}" for path in limits.ROOT.glob(f"*/{groups}/*"))
        things.update(f"draft {path}" for path in self.disk.rglob(".tmp-*"))
        return things

    def left(self) -> list[str]:
        """Return what is there beyond what is there at rest, after some time to end."""
        rest = self.rest if self.is_up() else self.nothing
        until(lambda: not self.things() - rest, SETTLE_S)
        return [f"left: {name}" for name in (self.things() - rest).elements()]

    # What follows depends on the bench.
    def is_up(self) -> bool:
        """Return whether there is what commands work on."""
        raise NotImplementedError

    def prepare(self, command: str) -> None:
        """Make what a command works on."""

    def words(self, plan: Round) -> list[str]:
        """Return the arguments of a round's command."""
        raise NotImplementedError

    def works(self, plan: Round, child: subprocess.Popen[bytes], start_ns: int) -> bool:
        """Return whether the command has begun its work."""
        raise NotImplementedError

    def kept(self) -> dict[str, str]:
        """Return what must stay as it is: finished trials, with a digest."""
        return {}

    def false_claims(self, plan: Round, outcome: Outcome) -> Iterator[str]:
        """Yield what the command says it did, and did not."""
        raise NotImplementedError

    def repair(self, plan: Round, outcome: Outcome) -> Iterator[str]:
        """Run the next command. Yield what is wrong with it."""
        raise NotImplementedError


def run(*words: str) -> None:
    """Run a program of the system."""
    subprocess.run(words, check=True)


def send(pid: int, number: int) -> None:
    """Send a signal to a process that may have ended."""
    with suppress(ProcessLookupError):
        os.kill(pid, number)


def processes() -> dict[int, str]:
    """Return the command lines of all processes of the bench but its own."""
    lines = {}
    for entry in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):
            line = (entry / "cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace").strip()
            if line and int(entry.name) not in (1, os.getpid()):  # one that has ended has no command line
                lines[int(entry.name)] = line
    return lines


def wait(child: subprocess.Popen[bytes], limit_s: float = LIMIT_S) -> int | None:
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
