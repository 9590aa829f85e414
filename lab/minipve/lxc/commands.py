"""A container's process: LXC's configuration of it, its start and its end.

LXC runs in a mount namespace of the container's own (mounts.py), where its tree is mounted on a folder that
every user id can reach. It becomes a daemon, LXC's monitor, which outlives the endpoint as QEMU does.
"""

from __future__ import annotations

import os
import signal
import subprocess
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TypeVar

from minipve import process
from minipve.config import container_nics, values
from minipve.lxc import cgroups, inotify, mounts, rootfs, running, setup, user_ids
from minipve.network import veths
from minipve.paths import Paths
from minipve.process import MachineError
from minipve.user_error import UserError

T = TypeVar("T")
Log = Callable[[str], None]
_DEFAULTS = Path("/usr/share/lxc/config")
_APPARMOR = Path("/sys/kernel/security/apparmor")
_ROOT = running.LXC / "root"
_HALT = signal.SIGRTMIN + 3  # systemd's; other inits are told of a power failure
START_S = 60
_TIDY_S = 2.0


def require() -> None:
    """Refuse, with the line that mends it, where this machine cannot run containers."""
    user_ids.require_root()
    process.need("lxc-start", "lxc-usernsexec", "nsenter", "tar")
    if not any(cgroups.ROOT.glob("*")):
        raise MachineError("containers need control groups: mount -t cgroup2 none /sys/fs/cgroup")


def lacking() -> str:
    """Why this machine cannot run (unprivileged) containers, with what mends it; empty when it can."""
    try:
        require()
        user_ids.require()
    except (UserError, MachineError) as told:
        return str(told)
    return ""


def owner(options: Mapping[str, str], paths: Paths) -> int:
    """The user id that is root in the container; 0 for a privileged one."""
    return user_ids.first(paths) if options.get("unprivileged") == "1" else 0


def within(vmid: int, paths: Paths, work: Callable[[], T]) -> T:
    """Run ``work`` with the tree of a stopped container as the root directory."""

    def mounted() -> T:
        _mount(vmid, paths)
        return setup.at(_ROOT, work)

    return mounts.apart(mounted)


def within_running(pid: int, work: Callable[[], None]) -> None:
    """Run ``work`` with the tree of a running container (first process ``pid``) as the root directory."""
    mounts.apart(lambda: setup.at(Path(f"/proc/{pid}/root"), work))


def _mount(vmid: int, paths: Paths) -> None:
    """LXC's own folder emptied, for it to leave nothing there, and the container's tree mounted in it."""
    layers = rootfs.layers(vmid, paths)
    mounts.bare_folder(_ROOT.parent)
    _ROOT.mkdir()
    mounts.overlay(*layers, _ROOT)


def configuration(vmid: int, options: Mapping[str, str], paths: Paths, first_id: int) -> str:
    """LXC's configuration of a container."""
    nesting = values.features(options).get("nesting") == "1"
    kind = "rw" if nesting else "mixed"
    includes = ["common.conf", *(["userns.conf"] if first_id else []), *(["nesting.conf"] if nesting else [])]
    lines = [f"lxc.include = {_DEFAULTS / name}" for name in includes if (_DEFAULTS / name).exists()]
    lines += [
        f"lxc.rootfs.path = dir:{_ROOT}",
        f"lxc.uts.name = {options.get('hostname', 'localhost').partition('.')[0]}",
        f"lxc.init.cmd = {options.get('entrypoint', '/sbin/init')}",
        f"lxc.apparmor.profile = {'generated' if _APPARMOR.is_dir() else 'unconfined'}",
        *(["lxc.apparmor.allow_nesting = 1"] if nesting and _APPARMOR.is_dir() else []),
        "lxc.tty.dir =",
        "lxc.mount.auto =",
        f"lxc.mount.auto = proc:{kind} sys:{kind} cgroup:mixed",
        f"lxc.tty.max = {options.get('tty', '2')}",
        "lxc.console.path = none",
        f"lxc.log.file = {_log_file(vmid, paths)}",
        "lxc.log.level = 5",
        *cgroups.lines(vmid, paths),
    ]
    if first_id:
        lines += [f"lxc.idmap = {kind} 0 {first_id} {rootfs.IDS}" for kind in "ug"]
    for index, nic in container_nics.of_config(options).items():
        lines += _network(vmid, index, nic)
    return "\n".join([*lines, ""])


def _network(vmid: int, index: int, nic: container_nics.ContainerNic) -> list[str]:
    given = {
        "type": "veth",
        "veth.pair": container_nics.host_name(vmid, index),
        "link": "" if nic.link_down else nic.bridge,
        "name": nic.name,
        "hwaddr": nic.mac,
        "mtu": str(nic.mtu) if nic.mtu else "",
        "flags": "up" if nic.host_managed else "",
        "ipv4.address": nic.ip if nic.host_managed and "/" in nic.ip else "",
        "ipv4.gateway": nic.gateway if nic.host_managed else "",
        "ipv6.address": nic.ip6 if nic.host_managed and "/" in nic.ip6 else "",
        "ipv6.gateway": nic.gateway6 if nic.host_managed else "",
    }
    return [f"lxc.net.{index}.{key} = {value}" for key, value in given.items() if value]


def start(vmid: int, options: dict[str, str], paths: Paths, log: Log) -> None:
    """Start a container, with its NICs plugged and its limits set; MachineError when it does not start."""
    require()
    nics = container_nics.of_config(options)
    for index, nic in nics.items():
        veths.check(index, nic)
    first_id = owner(options, paths)
    if raised := inotify.allow(len(running.running(paths)) + 1):
        log(raised)
    with running.locks[paths.run, vmid]:
        running.clean(vmid, paths)
        _log_file(vmid, paths).unlink(missing_ok=True)
        try:
            mounts.apart(lambda: _start(vmid, options, paths, first_id, log))
            running.remember(vmid, paths)
            cgroups.apply(vmid, paths, cgroups.limits(options, cgroups.version()))
            veths.finish_start(vmid, nics, log)
        except BaseException:
            stop(vmid, paths)
            raise


def _start(vmid: int, options: dict[str, str], paths: Paths, first_id: int, log: Log) -> None:
    mounts.fresh_sys()
    _mount(vmid, paths)
    version = setup.at(_ROOT, lambda: setup.at_start(options, first_id))
    if version and values.features(options).get("nesting") != "1":
        log(f"WARN: Systemd {version} detected. You may need to enable nesting.")
    folder = running.lxc_folder(paths)
    (folder / str(vmid)).mkdir(parents=True)
    (folder / str(vmid) / "config").write_text(configuration(vmid, options, paths, first_id))
    words = [str(process.which("lxc-start")), "-d", "-C", "-P", str(folder), "-n", str(vmid)]
    said = subprocess.run(
        [*words, "-p", str(paths.runtime(vmid, "monitor"))],
        stdin=subprocess.DEVNULL,
        capture_output=True,
        timeout=START_S,
        cwd="/",
        env={"PATH": "/nonexistent"},  # so that LXC maps ids itself, see rootfs.shifted_words
    )
    if said.returncode:
        raise MachineError(f"startup for container '{vmid}' failed: {_complaint(vmid, paths)}")


def _log_file(vmid: int, paths: Paths) -> Path:
    return paths.log / f"lxc-{vmid}.log"


def _complaint(vmid: int, paths: Paths) -> str:
    """The first error in LXC's log, which is nearest to the cause."""
    file = _log_file(vmid, paths)
    lines = file.read_text(errors="replace").splitlines() if file.exists() else []
    errors = (line.rpartition(" - ")[2] for line in lines if " ERROR " in line)
    return next(errors, f"see {file}")


def ask_to_shut_down(vmid: int, paths: Paths) -> None:
    """Tell a container's first process to end in order."""
    pid = running.init_pid(vmid, paths)
    if pid is None:
        return
    blocked = next(
        line.split()[1] for line in Path(f"/proc/{pid}/status").read_text().splitlines() if "SigBlk" in line
    )
    is_systemd = int(blocked, 16) >> (_HALT - 1) & 1
    os.kill(pid, _HALT if is_systemd else signal.SIGPWR)


def stop(vmid: int, paths: Paths, timeout_s: float = 10) -> None:
    """End a container at once, and remove what it leaves; nothing happens when it does not run."""
    with running.locks[paths.run, vmid]:
        end(vmid, paths, timeout_s)
        running.clean(vmid, paths)


def end(vmid: int, paths: Paths, timeout_s: float = 10) -> None:
    """End all processes of a container; LXC's own, which tidies up, only when it does not end by itself."""
    began, monitor = time.monotonic(), running.monitor_pid(vmid, paths)
    while alive := running.all_pids(vmid, paths):
        patient = time.monotonic() < began + _TIDY_S
        for pid in alive - ({monitor} if patient else set()):
            _kill(pid)
        if time.monotonic() > began + timeout_s:
            raise MachineError(f"processes {sorted(alive)} of CT {vmid} do not end")
        time.sleep(0.01)


def _kill(pid: int) -> None:
    try:
        os.kill(pid, signal.SIGKILL)
    except ProcessLookupError:
        return
