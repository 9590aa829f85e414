"""What the node writes into a container's tree, as PVE does it: at creation, and at each start.

The tree is a stranger's: a link in it may point anywhere. So all of this runs with the tree as its root
(``at``), where no path leads out. New files get the owner that the container knows as root.
"""

from __future__ import annotations

import ipaddress
import os
import re
import sys
import threading
from collections.abc import Callable, Mapping
from importlib.abc import MetaPathFinder
from pathlib import Path
from typing import TypeVar

from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from minipve.config import container_nics
from minipve.process import MachineError

T = TypeVar("T")
BEGIN, END = "# --- BEGIN PVE ---", "# --- END PVE ---"
_RELEASES = {"debian": "etc/debian_version", "alpine": "etc/alpine-release", "archlinux": "etc/arch-release"}


class _NoImports(MetaPathFinder):
    """Nothing is imported by a thread whose root is a stranger's tree: it would find the stranger's code."""

    def find_spec(self, fullname: str, path: object, target: object = None) -> None:
        if getattr(_here, "inside", False):
            raise ImportError(f"{fullname} is not to be had in a container's tree")


_here = threading.local()
sys.meta_path.insert(0, _NoImports())


def at(tree: Path, work: Callable[[], T]) -> T:
    """Run ``work`` with ``tree`` as root directory, where no file of the host is; within ``mounts.apart``."""
    outside = os.open("/", os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.chroot(tree)
        os.chdir("/")
        _here.inside = True
        return work()
    finally:
        _here.inside = False
        os.fchdir(outside)
        os.chroot(".")
        os.close(outside)


def os_type() -> str:
    """Which system it is, as far as it matters; within ``at``."""
    found = re.search(r'^ID="?([a-z]+)', _read("/etc/os-release"), re.MULTILINE)
    known = ("debian", "ubuntu", "devuan", "alpine", "fedora", "centos", "archlinux", "gentoo", "opensuse")
    if found and found[1] in known:
        return found[1]
    return next((name for name, file in _RELEASES.items() if Path("/", file).exists()), "unmanaged")


def _systemd_version() -> int | None:
    libraries = (
        Path("/usr/lib").glob("**/systemd/libsystemd-shared-*.so") if Path("/usr/lib").is_dir() else []
    )
    found = (re.search(r"libsystemd-shared-(\d+)", file.name) for file in libraries)
    return next((int(match[1]) for match in found if match), None)


def host_key(name: str) -> tuple[str, str]:
    """A private and a public key for a container's sshd."""
    key = Ed25519PrivateKey.generate()
    form = serialization.PrivateFormat.OpenSSH
    private = key.private_bytes(serialization.Encoding.PEM, form, serialization.NoEncryption())
    public = key.public_key().public_bytes(serialization.Encoding.OpenSSH, serialization.PublicFormat.OpenSSH)
    return private.decode(), f"{public.decode()} root@{name}\n"


def new(hashed: str, keys: str, key: tuple[str, str], owner: int) -> None:
    """What creation writes: root's password (a crypt hash) and ssh keys, the host key; within ``at``."""
    if hashed:
        lines = re.sub(r"(?m)^root:[^:]*:", lambda _: f"root:{hashed}:", _read("/etc/shadow"))
        _write("/etc/shadow", lines or f"root:{hashed}:19000:0:99999:7:::\n", owner, 0o640)
    if keys:
        _folder("/root/.ssh", owner, 0o700)
        _write("/root/.ssh/authorized_keys", keys.rstrip("\n") + "\n", owner, 0o600)
    _host_key(key, owner)


def renew(key: tuple[str, str], owner: int) -> None:
    """What a clone must not share with its source: the host key, the machine id; within ``at``."""
    _host_key(key, owner)
    if Path("/etc/machine-id").exists():
        _write("/etc/machine-id", "", owner, 0o444)


def _host_key(key: tuple[str, str], owner: int) -> None:
    if Path("/etc/ssh").is_dir():
        _write("/etc/ssh/ssh_host_ed25519_key", key[0], owner, 0o600)
        _write("/etc/ssh/ssh_host_ed25519_key.pub", key[1], owner, 0o644)


def at_start(options: Mapping[str, str], owner: int) -> int | None:
    """What each start writes: host name, hosts, name servers, networks, time zone; returns systemd's version.

    Within ``at``. A system that PVE knows nothing of is left alone.
    """
    if options.get("ostype") != "unmanaged":
        _identity(options, owner)
    return _systemd_version()


def _identity(options: Mapping[str, str], owner: int) -> None:
    hostname = options.get("hostname", "localhost")
    _folder("/etc", owner, 0o755)
    _write("/etc/hostname", hostname.partition(".")[0] + "\n", owner, 0o644)
    _write("/etc/hosts", hosts(_read("/etc/hosts"), options), owner, 0o644)
    if "nameserver" in options or "searchdomain" in options:
        _write("/etc/resolv.conf", marked(_read("/etc/resolv.conf"), resolver(options)), owner, 0o644)
    networks(options, owner)
    if zone := options.get("timezone"):
        _zone(zone)


def networks(options: Mapping[str, str], owner: int) -> None:
    """Write the networks, where the container's system reads them; within ``at``."""
    _folder("/etc/network", owner, 0o755)
    _write("/etc/network/interfaces", interfaces(options), owner, 0o644)


def hosts(before: str, options: Mapping[str, str]) -> str:
    """/etc/hosts with the container's own name (pure)."""
    hostname, domain = options.get("hostname", "localhost"), options.get("searchdomain", "").split(" ")[0]
    short = hostname.partition(".")[0]
    full = hostname if "." in hostname else f"{hostname}.{domain}" if domain else ""
    fixed = [address for nic in container_nics.of_config(options).values() for address in nic.addresses]
    address = str(ipaddress.ip_interface(fixed[0]).ip) if fixed else "127.0.1.1"
    own = " ".join(filter(None, [address, full, short]))
    local = "" if re.search(r"^127\.0\.0\.1\s", before, re.MULTILINE) else "127.0.0.1 localhost\n"
    return marked(local + before, own)


def resolver(options: Mapping[str, str]) -> str:
    """The lines of /etc/resolv.conf (pure)."""
    search = options.get("searchdomain", "")
    servers = [
        f"nameserver {server}" for server in re.split(r"[\s,;]+", options.get("nameserver", "")) if server
    ]
    return "\n".join([*([f"search {search}"] if search else []), *servers])


def interfaces(options: Mapping[str, str]) -> str:
    """/etc/network/interfaces for ifupdown (pure)."""
    stanzas = ["auto lo\niface lo inet loopback"]
    for nic in container_nics.of_config(options).values():
        stanzas.append("\n".join([f"auto {nic.name}", *_family(nic, "inet", nic.ip, nic.gateway)]))
        if nic.ip6:
            stanzas.append("\n".join(_family(nic, "inet6", nic.ip6, nic.gateway6)))
    return "\n\n".join(stanzas) + "\n"


def _family(nic: container_nics.ContainerNic, family: str, address: str, gateway: str) -> list[str]:
    if nic.host_managed or "/" not in address:
        method = address if address in ("dhcp", "auto") and not nic.host_managed else "manual"
        return [f"iface {nic.name} {family} {method}"]
    told = [f"\taddress {address}", *([f"\tgateway {gateway}"] if gateway else [])]
    return [f"iface {nic.name} {family} static", *told]


def marked(before: str, section: str) -> str:
    """A file with the node's own section in it, put in the place of the one before (pure)."""
    kept = re.sub(rf"(?ms)^{BEGIN}\n.*?^{END}\n", "", before)
    return f"{kept}{'' if kept.endswith(chr(10)) or not kept else chr(10)}{BEGIN}\n{section}\n{END}\n"


def _zone(zone: str) -> None:
    target = Path("/usr/share/zoneinfo", zone)
    if zone != "host" and target.exists():
        link = Path("/etc/localtime")
        link.unlink(missing_ok=True)
        link.symlink_to(target)


def _read(path: str) -> str:
    """A file's text; what is no file of sane size has none."""
    file = Path(path)
    if not file.is_file() or file.stat().st_size > 2**20:
        return ""
    return file.read_text(errors="replace")


def _write(path: str, text: str, owner: int, mode: int) -> None:
    """Put a file in the place of whatever stands there, be it a link."""
    file = Path(path)
    fresh = file.with_name(f".{file.name}.pve")
    fresh.unlink(missing_ok=True)
    try:
        handle = os.open(fresh, os.O_WRONLY | os.O_CREAT | os.O_EXCL, mode)
        with os.fdopen(handle, "w") as stream:
            os.fchown(handle, owner, owner)
            os.fchmod(handle, mode)
            stream.write(text)
        fresh.replace(file)
    except OSError as failed:
        raise MachineError(f"unable to write {path} in the container: {failed.strerror}") from failed


def _folder(path: str, owner: int, mode: int) -> None:
    """A folder and those above it, where they are not there."""
    for folder in (*reversed(Path(path).parents), Path(path)):
        if not folder.exists():
            folder.mkdir()
            folder.chmod(mode if str(folder) == path else 0o755)
            os.chown(folder, owner, owner)
