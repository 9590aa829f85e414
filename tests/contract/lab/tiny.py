"""A container template of a few megabytes: busybox, its libraries and a simple first process.

The first process configures the addresses of /etc/network/interfaces, listens on port 22, and ends on SIGPWR.
"""

from __future__ import annotations

import io
import re
import subprocess
import tarfile
from pathlib import Path

BUSYBOX = Path("/usr/bin/busybox")
APPLETS = ("sh", "awk", "cat", "ip", "ls", "mkdir", "nc", "nproc", "ping", "reboot", "sleep", "true")
INIT = """#!/bin/sh
trap 'exit 0' PWR
ip link set lo up
awk '/^iface/ {n = $2} /address/ {print "ip addr add " $2 " dev " n "\\nip link set " n " up"}
     /gateway/ {print "ip route add default via " $2}' /etc/network/interfaces | sh 2>/dev/null
[ ! -e /etc/stubborn ] || trap '' PWR
while :; do nc -l -p 22 -e true 2>/dev/null || sleep 1; done &
while :; do sleep 1000 & wait $!; done
"""
FILES = {
    "etc/debian_version": "12\n",
    "etc/os-release": 'ID="debian"\nVERSION_ID="12"\n',
    "etc/passwd": "root:x:0:0:root:/root:/bin/sh\n",
    "etc/shadow": "root:*:19000:0:99999:7:::\n",
    "etc/hosts": "127.0.0.1 localhost\n",
}


def template(systemd: bool = False) -> bytes:
    """Return the archive (``.tar.gz``). With ``systemd`` it looks as if systemd were its first process."""
    stream = io.BytesIO()
    with tarfile.open(fileobj=stream, mode="w:gz", compresslevel=1) as archive:
        for name in ("bin", "dev", "etc", "etc/ssh", "proc", "root", "sbin", "sys", "tmp", "usr", "run"):
            _add(archive, name, None, 0o755)
        for name, text in FILES.items():
            _add(archive, name, text.encode(), 0o640 if name == "etc/shadow" else 0o644)
        for file in _busybox():
            _add(archive, str(file).lstrip("/"), file.read_bytes(), 0o755)
        for applet in APPLETS:
            _link(archive, f"bin/{applet}", str(BUSYBOX))
        _add(archive, "sbin/init", INIT.encode(), 0o755)
        if systemd:
            _add(archive, "usr/lib/systemd/libsystemd-shared-252.so", b"", 0o644)
    return stream.getvalue()


def _busybox() -> list[Path]:
    libraries = subprocess.run(["ldd", BUSYBOX], capture_output=True, text=True).stdout
    return [BUSYBOX, *(Path(name) for name in re.findall(r"(/\S+)", libraries))]


def member(name: str, **more: object) -> tarfile.TarInfo:
    """Return an entry of an archive with any attributes, also hostile ones."""
    info = tarfile.TarInfo(name)
    for key, value in more.items():
        setattr(info, key, value)
    return info


def _add(archive: tarfile.TarFile, name: str, content: bytes | None, mode: int) -> None:
    if content is None:
        archive.addfile(member(f"./{name}", type=tarfile.DIRTYPE, mode=mode))
    else:
        archive.addfile(member(f"./{name}", size=len(content), mode=mode), io.BytesIO(content))


def _link(archive: tarfile.TarFile, name: str, target: str) -> None:
    archive.addfile(member(f"./{name}", type=tarfile.SYMTYPE, linkname=target))
