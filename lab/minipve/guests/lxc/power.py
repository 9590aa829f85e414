"""Start, shut down and stop a container.

LXC runs in a mount namespace of the container's own (mounts.py), in which the container's file system is
mounted on a folder that every user ID can reach. LXC's monitor process outlives the endpoint, as QEMU does.
"""

from __future__ import annotations

import os
import re
import signal
import subprocess
import time
from collections.abc import Mapping
from pathlib import Path

from minipve.base import process
from minipve.base.errors import MachineError
from minipve.base.paths import Paths
from minipve.config import container_nics, values
from minipve.guests.lxc import limits, rootfs, running, setup
from minipve.network import guest_ports
from minipve.network.links import Log

START_TIMEOUT_S = 60
_SYSTEMD_HALT = signal.SIGRTMIN + 3
_MONITOR_GRACE_S = 2.0
_SOURCE_PLACE = re.compile(
    r"^lxc-start: (?:\S+: )?(?:\S+\.c: \w+: \d+ )?"
)  # where in LXC's source, on stderr
_INCLUDES = Path("/usr/share/lxc/config")
_APPARMOR = Path("/sys/kernel/security/apparmor")
INOTIFY_LIMIT_FILE = Path("/proc/sys/fs/inotify/max_user_instances")
_PROXMOX_LIMIT = 65536
_PER_CONTAINER, _FOR_HOST = 4, 32


def start(vmid: int, options: dict[str, str], paths: Paths, log: Log) -> None:
    """Start a container with its NICs and limits.

    Raises:
        MachineError: it did not start. Nothing is left behind.
    """
    limits.require()
    nics = container_nics.of_config(options)
    for index, nic in nics.items():
        guest_ports.check(index, nic)
    first_id = limits.of_root(options, paths)
    if message := ensure_inotify_limit(len(running.vmids(paths)) + 1):
        log(message)
    with running.locks[paths.run, vmid]:
        running.clean(vmid, paths)
        _log_file(vmid, paths).unlink(missing_ok=True)
        try:
            rootfs.with_own_mounts(lambda: _start(vmid, options, paths, first_id, log))
            running.remember(vmid, paths)
            limits.apply(vmid, paths, limits.limits(options, limits.version()))
            guest_ports.finish_start(vmid, nics, log)
        except BaseException:
            stop(vmid, paths)
            raise


def _start(vmid: int, options: dict[str, str], paths: Paths, first_id: int, log: Log) -> None:
    rootfs.mount_sys()
    rootfs.mount(vmid, paths)
    systemd = rootfs.at(rootfs.MOUNT_POINT, lambda: setup.at_start(options, first_id))
    if systemd and values.features(options).get("nesting") != "1":
        log(f"WARN: Systemd {systemd} detected. You may need to enable nesting.")
    folder = running.lxc_folder(paths)
    (folder / str(vmid)).mkdir(parents=True)
    (folder / str(vmid) / "config").write_text(lxc_configuration(vmid, options, paths, first_id))
    words = [str(process.which("lxc-start")), "-d", "-C", "-P", str(folder), "-n", str(vmid)]
    result = subprocess.run(
        [*words, "-p", str(paths.runtime(vmid, "monitor"))],
        stdin=subprocess.DEVNULL,
        capture_output=True,
        timeout=START_TIMEOUT_S,
        cwd="/",
        env={"PATH": "/nonexistent"},  # so that LXC maps user IDs itself, see user_ids.words_before
    )
    if result.returncode:
        file = _log_file(vmid, paths)
        log_text = file.read_text(errors="replace") if file.exists() else ""
        cause = failure_cause(log_text, result.stderr.decode(errors="replace"))
        reason = cause or f"lxc-start ended with {result.returncode}; see {file}"
        raise MachineError(f"startup for container '{vmid}' failed: {reason}")


def failure_cause(log_text: str, stderr: str) -> str:
    """Return the first error in LXC's log, the closest to the cause, or else what lxc-start said first. Pure.

    LXC 6 leaves the log empty if it fails early. A line of standard error begins with its place in LXC's
    source (``lxc-start: 101: ../src/lxc/confile.c: set_config: 164``), which is left out.
    """
    logged = (line.rpartition(" - ")[2] for line in log_text.splitlines() if " ERROR " in line)
    messages = (_SOURCE_PLACE.sub("", line).strip() for line in stderr.splitlines())
    return next(logged, "") or "; ".join(list(filter(None, messages))[:2])


def ask_to_shut_down(vmid: int, paths: Paths) -> None:
    """Signal a container's first process to shut down: systemd's halt signal, else a power failure."""
    pid = running.init_pid(vmid, paths)
    if pid is None:
        return
    status = Path(f"/proc/{pid}/status").read_text().splitlines()
    blocked_signals = int(next(line.split()[1] for line in status if "SigBlk" in line), 16)
    is_systemd = blocked_signals >> (_SYSTEMD_HALT - 1) & 1
    os.kill(pid, _SYSTEMD_HALT if is_systemd else signal.SIGPWR)


def stop(vmid: int, paths: Paths, timeout_s: float = 10) -> None:
    """End a container and remove what it leaves. No effect on the processes if it does not run."""
    with running.locks[paths.run, vmid]:
        end(vmid, paths, timeout_s)
        running.clean(vmid, paths)


def end(vmid: int, paths: Paths, timeout_s: float = 10) -> None:
    """End all processes of a container. LXC's monitor gets two seconds to clean up and exit by itself."""
    start_s, monitor = time.monotonic(), running.monitor_pid(vmid, paths)
    while alive := running.all_pids(vmid, paths):
        spare_monitor = time.monotonic() < start_s + _MONITOR_GRACE_S
        for pid in alive - ({monitor} if spare_monitor else set()):
            _kill(pid)
        if time.monotonic() > start_s + timeout_s:
            raise MachineError(f"processes {sorted(alive)} of CT {vmid} do not end")
        time.sleep(0.01)


def _kill(pid: int) -> None:
    try:
        os.kill(pid, signal.SIGKILL)
    except ProcessLookupError:
        return


def _log_file(vmid: int, paths: Paths) -> Path:
    return paths.log / f"lxc-{vmid}.log"


def lxc_configuration(vmid: int, options: Mapping[str, str], paths: Paths, first_id: int) -> str:
    """Return LXC's configuration.

    Args:
        vmid: the container.
        options: its options.
        paths: its node's paths.
        first_id: the user ID of its root on the host; 0 for a privileged container.
    """
    nesting = values.features(options).get("nesting") == "1"
    access = "rw" if nesting else "mixed"
    includes = ["common.conf", *(["userns.conf"] if first_id else []), *(["nesting.conf"] if nesting else [])]
    lines = [f"lxc.include = {_INCLUDES / name}" for name in includes if (_INCLUDES / name).exists()]
    lines += [
        f"lxc.rootfs.path = dir:{rootfs.MOUNT_POINT}",
        f"lxc.uts.name = {options.get('hostname', 'localhost').partition('.')[0]}",
        f"lxc.init.cmd = {options.get('entrypoint', '/sbin/init')}",
        f"lxc.apparmor.profile = {'generated' if _APPARMOR.is_dir() else 'unconfined'}",
        *(["lxc.apparmor.allow_nesting = 1"] if nesting and _APPARMOR.is_dir() else []),
        "lxc.tty.dir =",
        "lxc.mount.auto =",
        f"lxc.mount.auto = proc:{access} sys:{access} cgroup:mixed",
        f"lxc.tty.max = {options.get('tty', '2')}",
        "lxc.console.path = none",
        f"lxc.log.file = {_log_file(vmid, paths)}",
        "lxc.log.level = 5",
        *limits.lxc_lines(vmid, paths),
    ]
    if first_id:
        lines += [f"lxc.idmap = {kind} 0 {first_id} {limits.COUNT}" for kind in "ug"]
    for index, nic in container_nics.of_config(options).items():
        lines += _nic_lines(vmid, index, nic)
    return "\n".join([*lines, ""])


def _nic_lines(vmid: int, index: int, nic: container_nics.ContainerNic) -> list[str]:
    settings = {
        "type": "veth",
        "veth.pair": container_nics.host_name(vmid, index),
        "link": "" if nic.link_down or nic.tag or nic.trunks else nic.bridge,
        "name": nic.name,
        "hwaddr": nic.mac,
        "mtu": str(nic.mtu) if nic.mtu else "",
        "flags": "up" if nic.host_managed else "",
        "ipv4.address": nic.ip if nic.host_managed and "/" in nic.ip else "",
        "ipv4.gateway": nic.gateway if nic.host_managed else "",
        "ipv6.address": nic.ip6 if nic.host_managed and "/" in nic.ip6 else "",
        "ipv6.gateway": nic.gateway6 if nic.host_managed else "",
    }
    return [f"lxc.net.{index}.{key} = {value}" for key, value in settings.items() if value]


# systemd watches files with inotify, and all containers of a host count as one user. With the kernel's
# default of 128 instances about the 35th container ends as soon as it starts. Proxmox VE's packages raise
# the limit too.
def ensure_inotify_limit(containers: int) -> str:
    """Raise the limit of inotify instances if it is too low for so many containers; return a message.

    Raises:
        MachineError: the limit is too low and cannot be raised.
    """
    limit = int(INOTIFY_LIMIT_FILE.read_text())
    if containers * _PER_CONTAINER + _FOR_HOST <= limit:
        return ""
    try:
        INOTIFY_LIMIT_FILE.write_text(str(_PROXMOX_LIMIT))
    except OSError as error:
        command = f"sysctl -w fs.inotify.max_user_instances={_PROXMOX_LIMIT}"
        raise MachineError(
            f"{limit} inotify instances are too few for {containers} containers: {command}"
        ) from error
    return f"fs.inotify.max_user_instances raised from {limit} to {_PROXMOX_LIMIT}, as on a Proxmox VE node"
