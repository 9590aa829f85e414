"""Write a container's system files, as PVE does: at its creation, when it is cloned, and at each start.

Everything here runs with the container's file system as the root directory (chroot.py), because its files
are not trusted. New files belong to ``owner``, the user ID on the host of the container's root.
"""

from __future__ import annotations

import ipaddress
import os
import re
from collections.abc import Mapping
from pathlib import Path

from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from minipve.base.errors import MachineError
from minipve.config import container_nics

BEGIN, END = "# --- BEGIN PVE ---", "# --- END PVE ---"
_ID_TYPES = ("debian", "ubuntu", "devuan", "alpine", "fedora", "centos", "archlinux", "gentoo", "opensuse")
_RELEASE_FILES = {
    "debian": "etc/debian_version",
    "alpine": "etc/alpine-release",
    "archlinux": "etc/arch-release",
}


def os_type() -> str:
    """Return PVE's ``ostype`` of the system; "unmanaged" if it is not recognised."""
    match = re.search(r'^ID="?([a-z]+)', _read("/etc/os-release"), re.MULTILINE)
    if match and match[1] in _ID_TYPES:
        return match[1]
    return next((name for name, file in _RELEASE_FILES.items() if Path("/", file).exists()), "unmanaged")


def _systemd_version() -> int | None:
    name, folder = "systemd/libsystemd-shared-*.so", Path("/usr/lib")
    libraries = [*folder.glob(name), *folder.glob(f"*/{name}")]
    matches = (re.search(r"libsystemd-shared-(\d+)", file.name) for file in libraries)
    return next((int(match[1]) for match in matches if match), None)


def new_host_key(name: str) -> tuple[str, str]:
    """Return a new private and public key for the sshd of the container ``name``."""
    key = Ed25519PrivateKey.generate()
    form = serialization.PrivateFormat.OpenSSH
    private = key.private_bytes(serialization.Encoding.PEM, form, serialization.NoEncryption())
    public = key.public_key().public_bytes(serialization.Encoding.OpenSSH, serialization.PublicFormat.OpenSSH)
    return private.decode(), f"{public.decode()} root@{name}\n"


def at_creation(password_hash: str, ssh_keys: str, host_key: tuple[str, str], owner: int) -> None:
    """Write root's password (a crypt hash, or "") and ssh keys (or ""), and the host key."""
    if password_hash:
        lines = re.sub(r"(?m)^root:[^:]*:", lambda _: f"root:{password_hash}:", _read("/etc/shadow"))
        _write("/etc/shadow", lines or f"root:{password_hash}:19000:0:99999:7:::\n", owner, 0o640)
    if ssh_keys:
        _make_folder("/root/.ssh", owner, 0o700)
        _write("/root/.ssh/authorized_keys", ssh_keys.rstrip("\n") + "\n", owner, 0o600)
    _write_host_key(host_key, owner)


def at_clone(host_key: tuple[str, str], owner: int) -> None:
    """Replace what a clone must not share with its source: the host key and the machine id."""
    _write_host_key(host_key, owner)
    if Path("/etc/machine-id").exists():
        _write("/etc/machine-id", "", owner, 0o444)


def _write_host_key(host_key: tuple[str, str], owner: int) -> None:
    if Path("/etc/ssh").is_dir():
        _write("/etc/ssh/ssh_host_ed25519_key", host_key[0], owner, 0o600)
        _write("/etc/ssh/ssh_host_ed25519_key.pub", host_key[1], owner, 0o644)


def at_start(options: Mapping[str, str], owner: int) -> int | None:
    """Write host name, hosts, name servers, networks and time zone; returns the version of systemd, if any.

    A system with ``ostype`` "unmanaged" stays as it is.
    """
    if options.get("ostype") != "unmanaged":
        _write_identity(options, owner)
    return _systemd_version()


def _write_identity(options: Mapping[str, str], owner: int) -> None:
    hostname = options.get("hostname", "localhost")
    _make_folder("/etc", owner, 0o755)
    _write("/etc/hostname", hostname.partition(".")[0] + "\n", owner, 0o644)
    _write("/etc/hosts", hosts(_read("/etc/hosts"), options), owner, 0o644)
    if "nameserver" in options or "searchdomain" in options:
        name_servers = with_section(_read("/etc/resolv.conf"), resolv_conf(options))
        _write("/etc/resolv.conf", name_servers, owner, 0o644)
    write_interfaces(options, owner)
    if zone := options.get("timezone"):
        _set_timezone(zone)


def write_interfaces(options: Mapping[str, str], owner: int) -> None:
    _make_folder("/etc/network", owner, 0o755)
    _write("/etc/network/interfaces", interfaces(options), owner, 0o644)


def hosts(before: str, options: Mapping[str, str]) -> str:
    """Return the content of /etc/hosts: as ``before``, with a section for the container's own name (pure)."""
    hostname, domain = options.get("hostname", "localhost"), options.get("searchdomain", "").split(" ")[0]
    short = hostname.partition(".")[0]
    full = hostname if "." in hostname else f"{hostname}.{domain}" if domain else ""
    static = [address for nic in container_nics.of_config(options).values() for address in nic.addresses]
    address = str(ipaddress.ip_interface(static[0]).ip) if static else "127.0.1.1"
    own_line = " ".join(filter(None, [address, full, short]))
    localhost = "" if re.search(r"^127\.0\.0\.1\s", before, re.MULTILINE) else "127.0.0.1 localhost\n"
    return with_section(localhost + before, own_line)


def resolv_conf(options: Mapping[str, str]) -> str:
    """Return the lines for /etc/resolv.conf (pure)."""
    search = options.get("searchdomain", "")
    servers = [
        f"nameserver {server}" for server in re.split(r"[\s,;]+", options.get("nameserver", "")) if server
    ]
    return "\n".join([*([f"search {search}"] if search else []), *servers])


def interfaces(options: Mapping[str, str]) -> str:
    """Return the content of /etc/network/interfaces for ifupdown (pure)."""
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
    attributes = [f"\taddress {address}", *([f"\tgateway {gateway}"] if gateway else [])]
    return [f"iface {nic.name} {family} static", *attributes]


def with_section(before: str, section: str) -> str:
    """Return a file's text with the section that the node manages replaced or appended (pure)."""
    rest = re.sub(rf"(?ms)^{BEGIN}\n.*?^{END}\n", "", before)
    line_break = "" if rest.endswith("\n") or not rest else "\n"
    return f"{rest}{line_break}{BEGIN}\n{section}\n{END}\n"


def _set_timezone(zone: str) -> None:
    target = Path("/usr/share/zoneinfo", zone)
    if zone != "host" and target.exists():
        link = Path("/etc/localtime")
        link.unlink(missing_ok=True)
        link.symlink_to(target)


def _read(path: str) -> str:
    """Return a file's text; "" if it is not a file, or larger than 1 MiB."""
    file = Path(path)
    if not file.is_file() or file.stat().st_size > 2**20:
        return ""
    return file.read_text(errors="replace")


def _write(path: str, text: str, owner: int, mode: int) -> None:
    """Replace a file, or a link, by a new file."""
    file = Path(path)
    draft = file.with_name(f".{file.name}.pve")
    draft.unlink(missing_ok=True)
    try:
        handle = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL, mode)
        with os.fdopen(handle, "w") as stream:
            os.fchown(handle, owner, owner)
            os.fchmod(handle, mode)
            stream.write(text)
        draft.replace(file)
    except OSError as failed:
        raise MachineError(f"unable to write {path} in the container: {failed.strerror}") from failed


def _make_folder(path: str, owner: int, mode: int) -> None:
    """Create a folder and its parents where they do not exist."""
    for folder in (*reversed(Path(path).parents), Path(path)):
        if not folder.exists():
            folder.mkdir()
            folder.chmod(mode if str(folder) == path else 0o755)
            os.chown(folder, owner, owner)
