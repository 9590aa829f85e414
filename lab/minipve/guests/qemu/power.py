"""Start, stop, shut down, reset and pause a machine, and change a NIC while it runs."""

from __future__ import annotations

import ctypes
import math
import mmap
import os
import platform
import select
import subprocess
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import cache
from pathlib import Path

from minipve.base import process
from minipve.base.atomic import write_atomic
from minipve.base.errors import MachineError
from minipve.base.paths import Paths
from minipve.config import drives, nics, values
from minipve.config.nics import Nic
from minipve.config.values import Config
from minipve.guests.qemu import channel, cloudinit, command_line, running
from minipve.guests.qemu.channel import Qmp
from minipve.guests.qemu.running import Accel, clean, has_agent, locks, reap, running_pid
from minipve.image import direct_boot
from minipve.image.direct_boot import Boot
from minipve.network import guest_ports, links
from minipve.network.guest_ports import plug_tap, vhost_works
from minipve.network.links import Log
from minipve.storage.directory import Storage

# Start, stop, shut down, reset and pause a machine. Its QEMU outlives the endpoint.

START_TIMEOUT_S, STOP_TIMEOUT_S = 60.0, 10.0
_SANDBOX = "on,obsolete=deny,elevateprivileges=deny,spawn=deny,resourcecontrol=deny"
_QUIT = '{"execute": "qmp_capabilities"}\n{"execute": "quit"}\n'
_RDTSC = bytes.fromhex("0f31 48c1e220 4809d0 c3")  # rdtsc; shl rdx, 32; or rax, rdx; ret
_TSC_TRIES, _TSC_INTERVAL_S = 50, 0.1
_POLL_MS = 20
_MAX_OUTPUT_BYTES = 2**16


def qemu_argv(vmid: int, config: Config, paths: Paths, accelerator: Accel) -> list[str]:
    """Return QEMU's command line for a machine. Reads files, changes nothing."""
    return [
        *command_line.machine_words(vmid, config, paths, accelerator),
        *sandbox_words(),
        *command_line.boot_words(_boot(config, paths), tsc_khz() if accelerator.name == "tcg" else None),
        *command_line.drive_words(config, lambda _slot, drive: _locate(vmid, drive, paths)),
        *command_line.nic_words(vmid, config, vhost_works()),
    ]


def start(vmid: int, config: Config, paths: Paths, log: Log) -> None:
    """Start a machine: write its cloud-init seed, create its taps, start QEMU. A failure leaves nothing."""
    with locks[paths.run, vmid]:
        if running_pid(vmid, paths) is not None:
            raise MachineError(f"VM {vmid} already running")
        reap(vmid, paths)
        for directory in (paths.run, paths.log):
            directory.mkdir(parents=True, exist_ok=True)
        accelerator = running.Accel("tcg", "kvm: 0") if config.get("kvm") == "0" else running.probe(paths)
        try:
            _seed(vmid, config, paths, log)
            _check(config)
            for index, nic in nics.of_config(config).items():
                plug_tap(vmid, index, nic, log)
            _launch(vmid, qemu_argv(vmid, config, paths, accelerator), paths, log)
            for index, nic in nics.of_config(config).items():
                if nic.link_down:
                    channel.Qmp(vmid, paths).execute("set_link", {"name": f"net{index}", "up": False})
            log(
                f"accelerator: {accelerator.name} ({accelerator.reason})"
            )  # last: clients show the first line
        except BaseException:
            _undo_start(vmid, paths)
            raise


def _check(config: Config) -> None:
    if config.get("template") == "1":
        raise MachineError("you can't start a vm if it's a template")
    limit = os.cpu_count() or 1
    if math.prod(values.sockets_and_cores(config)) > limit:
        raise MachineError(f"MAX {limit} vcpus allowed per VM on this node")


def _seed(vmid: int, config: Config, paths: Paths, log: Log) -> None:
    if any(drives.is_cloudinit(drive) for _, drive in drives.of(config)):
        log("generating cloud-init ISO")
        cloudinit.build(vmid, config, paths)


def _launch(vmid: int, words: list[str], paths: Paths, log: Log) -> None:
    """Start QEMU and wait until its monitor answers; log what it prints until then."""
    monitor = channel.Qmp(vmid, paths)
    try:
        lines = _spawn(words, paths.run, monitor.answers, START_TIMEOUT_S)
    except _EndedError as error:
        for line in error.lines:
            log(line)
        raise MachineError("start failed: QEMU exited with code 1") from error
    for line in lines:
        log(line)
    write_atomic(paths.log / f"{vmid}.command", "\n".join(words) + "\n")
    if running_pid(vmid, paths) is None:
        raise MachineError("start failed: QEMU exited")


def _undo_start(vmid: int, paths: Paths) -> None:
    pid = running_pid(vmid, paths)
    if pid is not None:
        process.end(pid)
    clean(vmid, paths)


def _boot(config: Config, paths: Paths) -> Boot | None:
    """Return the kernel to boot directly. None if the first disk has a boot loader, or there is no disk."""
    disks = {slot: drive for slot, drive in drives.of(config) if not drives.is_cdrom(drive)}
    first = next((slot for slot in command_line.boot_order(config) if slot in disks), next(iter(disks), None))
    return None if first is None else direct_boot.of_disk(_volume(disks[first]["file"], paths), paths)


def _locate(vmid: int, drive: drives.Drive, paths: Paths) -> Path | None:
    if drives.is_cloudinit(drive):
        return cloudinit.iso_path(vmid, paths)
    return None if drive["file"] in ("none", "cdrom") else _volume(drive["file"], paths)


def _volume(volid: str, paths: Paths) -> Path:
    return Storage(paths.state / "storage").existing(volid)


def stop(vmid: int, paths: Paths) -> None:
    """Power a machine off: SIGTERM, after ten seconds SIGKILL. No effect on a stopped machine."""
    with locks[paths.run, vmid]:
        pid = running_pid(vmid, paths)
        if pid is not None:
            process.end(pid, STOP_TIMEOUT_S)
        clean(vmid, paths)


def ask_to_power_off(vmid: int, paths: Paths) -> None:
    """Ask the guest to shut down, through its agent or else by the power button. Does not wait."""
    if not (has_agent(vmid, paths) and channel.shut_down(vmid, paths)):
        channel.Qmp(vmid, paths).execute("system_powerdown")


def reset(vmid: int, paths: Paths) -> None:
    _command(vmid, paths, "system_reset")


def suspend(vmid: int, paths: Paths) -> None:
    """Pause the virtual CPUs. The guest does not notice."""
    _command(vmid, paths, "stop")


def resume(vmid: int, paths: Paths) -> None:
    """Let the virtual CPUs of a paused machine continue."""
    _command(vmid, paths, "cont")


def _command(vmid: int, paths: Paths, command: str) -> None:
    if running_pid(vmid, paths) is None:
        raise MachineError(f"VM {vmid} not running")
    channel.Qmp(vmid, paths).execute(command)


# The seccomp sandbox limits what a guest can do after it has broken out of QEMU, which runs as the user of
# the endpoint: root, if there are containers.
@cache
def sandbox_words() -> tuple[str, ...]:
    """Return the option that enables the sandbox, or nothing if this QEMU or this kernel does not support it.

    Found out once per process, by starting a QEMU without a machine.
    """
    option = ("-sandbox", _SANDBOX)
    bare = ["-machine", "none", "-nodefaults", "-display", "none", "-qmp", "stdio"]
    try:
        process.run(["qemu-system-x86_64", *bare, *option], stdin=_QUIT, timeout_s=20)
    except MachineError:
        return ()
    return option


# An emulated guest reads the host's time stamp counter and calibrates it against an emulated timer while it
# boots. On a busy host the result has been wrong by a factor of three, and with it all clocks of the guest.
# So the guest gets the frequency on its kernel's command line (``tsc_early_khz``).
@cache
def tsc_khz() -> int | None:
    """Return the frequency of the host's counter in kHz, or None on a host without one. Measured once."""
    if platform.machine() not in {"x86_64", "AMD64"}:
        return None
    with mmap.mmap(-1, mmap.PAGESIZE, prot=mmap.PROT_READ | mmap.PROT_WRITE | mmap.PROT_EXEC) as page:
        page.write(_RDTSC)
        code = ctypes.c_char.from_buffer(page)
        read = ctypes.CFUNCTYPE(ctypes.c_uint64)(ctypes.addressof(code))
        first = _tsc_stamp(read)
        time.sleep(_TSC_INTERVAL_S)
        last = _tsc_stamp(read)
        del code, read
    return round((last[0] - first[0]) / (last[1] - first[1]) / 1e3)


def _tsc_stamp(read: Callable[[], int]) -> tuple[int, float]:
    """Read counter and clock (s) at the same moment: of several tries, the one that took the least time."""
    tries = [(time.perf_counter(), read(), time.perf_counter()) for _ in range(_TSC_TRIES)]
    before, ticks, after = min(tries, key=lambda attempt: attempt[2] - attempt[0])
    return ticks, (before + after) / 2


# QEMU can daemonize itself only in a sandbox that lets it fork. So ``setsid`` forks before it executes QEMU.
# QEMU's output is a pipe, and the end of the output means that QEMU has ended. Once QEMU is ready we close
# the pipe, so that no guest can fill the disk with QEMU's messages.
def _spawn(words: Sequence[str], folder: Path, is_ready: Callable[[], bool], timeout_s: float) -> list[str]:
    """Start a program in a session of its own and return the lines that it printed until it was ready.

    Args:
        words: the command line.
        folder: the program's working directory.
        is_ready: called again and again.
        timeout_s: how long to wait.

    Raises:
        _EndedError: the program ended before it was ready.
        MachineError: it is neither ready nor ended after ``timeout_s``. It keeps running.
    """
    process.require_tools("setsid", words[0])
    deadline, output = time.monotonic() + timeout_s, b""
    command = [str(process.which("setsid")), "--fork", str(process.which(words[0])), *words[1:]]
    with _forked(command, folder) as pipe:
        poll = select.poll()
        poll.register(pipe, select.POLLIN)
        while True:
            if poll.poll(_POLL_MS):
                data = os.read(pipe, 4096)
                if not data:
                    raise _EndedError(_output_lines(output))
                output = (output + data)[:_MAX_OUTPUT_BYTES]
            elif is_ready():
                return _output_lines(output)
            if time.monotonic() > deadline:
                raise MachineError(f"{words[0]} did not _spawn: got timeout")


class _EndedError(MachineError):
    """The program ended before it was ready; ``lines`` is its output."""

    def __init__(self, lines: list[str]) -> None:
        super().__init__("the program ended before it was ready")
        self.lines = lines


@contextmanager
def _forked(words: list[str], folder: Path) -> Iterator[int]:
    """Run ``words`` in ``folder`` and yield the file descriptor from which their output is read."""
    with subprocess.Popen(
        words, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, cwd=folder
    ) as starter:
        assert starter.stdout is not None
        yield starter.stdout.fileno()


def _output_lines(output: bytes) -> list[str]:
    return output.decode(errors="replace").splitlines()


# Change a NIC of a running machine, as Proxmox VE does.
#
# Rate cap, link state and bridge change in place. A change of model, MAC address, queues or MTU unplugs the
# old NIC and plugs in a new one.

UNPLUG_TIMEOUT_S = 6.0


def change_nic(
    vmid: int, index: int, old: str | None, new: str | None, paths: Paths, log: Log = lambda _line: None
) -> None:
    """Change ``net<index>`` of a running machine from one configuration string to another; None: no NIC."""
    if running.running_pid(vmid, paths) is None:
        raise MachineError(f"VM {vmid} not running")
    before, after = (None if text is None else nics.parse(text) for text in (old, new))
    if before is not None and after is not None and not nics.needs_new_device(before, after):
        _adjust(vmid, index, before, after, paths, log)
        return
    if before is not None:
        _unplug(vmid, index, paths)
    if after is not None:
        _plug(vmid, index, after, paths, log)


def _adjust(vmid: int, index: int, old: Nic, new: Nic, paths: Paths, log: Log) -> None:
    """Change a NIC in place. While it moves to another bridge, its link is down for the guest."""
    tap, monitor = nics.tap_name(vmid, index), Qmp(vmid, paths)
    if new.bridge is not None and new.connection != old.connection:
        if not links.exists(new.bridge):
            raise MachineError(f"interface {new.bridge} does not exist")
        if problem := guest_ports.vlan_problem(new.bridge, new.tag, new.trunks):
            raise MachineError(problem)
        monitor.execute("set_link", {"name": f"net{index}", "up": False})
        links.plug_tap(tap, new.bridge)
        guest_ports.apply_vlans(tap, new.bridge, new.tag, new.trunks)
    if new.bridge is not None and new.rate_mib != old.rate_mib:
        guest_ports.apply_rate(tap, index, new, log)
    if (new.link_down, new.connection) != (old.link_down, old.connection):
        monitor.execute("set_link", {"name": f"net{index}", "up": not new.link_down})


def _unplug(vmid: int, index: int, paths: Paths) -> None:
    name, monitor = f"net{index}", Qmp(vmid, paths)
    monitor.execute("device_del", {"id": name})
    deadline = time.monotonic() + UNPLUG_TIMEOUT_S
    while name in _plugged(monitor):
        if time.monotonic() > deadline:
            raise MachineError(f"error on hot-unplugging device '{name}' - still busy in guest?")
        time.sleep(0.1)
    monitor.execute("netdev_del", {"id": name})
    links.unplug([nics.tap_name(vmid, index)])


def _plugged(monitor: Qmp) -> set[str]:
    rows = monitor.execute("qom-list", {"path": "/machine/peripheral"})
    return {channel.member(row, "name", str) for row in (rows if isinstance(rows, list) else [])}


def _plug(vmid: int, index: int, nic: Nic, paths: Paths, log: Log) -> None:
    monitor = Qmp(vmid, paths)
    guest_ports.plug_tap(vmid, index, nic, log)
    try:
        host = command_line.netdev_options(vmid, index, nic, {}, guest_ports.vhost_works())
        monitor.execute("netdev_add", _typed(host))
        try:
            monitor.execute("device_add", command_line.device_options(index, nic))
        except MachineError:
            monitor.execute("netdev_del", {"id": f"net{index}"})
            raise
    except MachineError:
        links.unplug([nics.tap_name(vmid, index)])
        raise
    if nic.link_down:
        monitor.execute("set_link", {"name": f"net{index}", "up": False})


def _typed(options: dict[str, str]) -> dict[str, object]:
    """Convert values to the types that ``netdev_add`` requires."""
    booleans = {"on": True, "off": False}
    return {
        key: booleans.get(value, int(value) if value.isdigit() else value) for key, value in options.items()
    }
