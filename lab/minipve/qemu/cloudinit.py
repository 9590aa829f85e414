"""The NoCloud seed: what Proxmox VE tells a machine about itself, on a disc labelled ``cidata``.

The four texts are those of Proxmox VE's Cloudinit.pm, so that any image with cloud-init understands them
and `GET .../cloudinit/dump` answers alike. Every value of a user's is written by the YAML library: no value
can become a key, a list item or another type. The instance id is the hash of what is said: another name, key
or address is another instance, while a NIC's model, rate or link state is not.
"""

from __future__ import annotations

import hashlib
import ipaddress
import re
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import unquote

import yaml

from minipve import process
from minipve.atomic import UNFINISHED
from minipve.config import nics, schema
from minipve.config.values import Config
from minipve.image.storage import Storage, parse
from minipve.paths import Paths
from minipve.process import MachineError


def build(vmid: int, config: Config, paths: Paths) -> Path:
    """Write the seed of a machine anew, as Proxmox VE does at each start; returns the ISO's path."""
    texts = _texts(vmid, config, Storage(paths.state / "storage"))
    paths.seeds.mkdir(parents=True, exist_ok=True)
    iso = iso_path(vmid, paths)
    with tempfile.TemporaryDirectory(prefix=f"{UNFINISHED}seed-", dir=paths.seeds) as name:
        scratch = Path(name)
        for file, text in texts.items():
            (scratch / file).write_text(text)
        fresh = scratch / "seed.iso"
        process.run(_iso_words(fresh, [scratch / file for file in texts]))
        fresh.chmod(0o600)
        fresh.replace(iso)
    return iso


def _texts(vmid: int, config: Config, storage: Storage) -> dict[str, str]:
    """What the seed says, file by file: generated, unless ``cicustom`` names a snippet for it."""
    named = schema.parse_option("cicustom", config.get("cicustom", ""))
    own = {part: _snippet(volid, storage) for part, volid in named.items()}
    user, network = own.get("user", user_data(vmid, config)), own.get("network", network_config(config))
    return {
        "user-data": user,
        "network-config": network,
        "meta-data": own.get("meta", meta_data(user, network)),
        "vendor-data": own.get("vendor", ""),
    }


def _snippet(volid: str, storage: Storage) -> str:
    if parse(volid).content != "snippets":
        raise MachineError(f"{volid} is not in the snippets directory")
    return storage.existing(volid).read_text()


def iso_path(vmid: int, paths: Paths) -> Path:
    """Where the seed of a machine is."""
    return paths.seeds / f"vm-{vmid}-cloudinit.iso"


def dump(vmid: int, config: Config, kind: str) -> str:
    """One of the texts: ``kind`` is user, network or meta."""
    user, network = user_data(vmid, config), network_config(config)
    return {"user": user, "network": network, "meta": meta_data(user, network)}[kind]


def user_data(vmid: int, config: Config) -> str:
    """The ``#cloud-config`` of a machine: name, user, keys, whether to upgrade packages (pure)."""
    fqdn = _name(vmid, config)
    lines = [f"hostname: {_scalar(fqdn.split('.')[0])}", "manage_etc_hosts: true", f"fqdn: {_scalar(fqdn)}"]
    lines += _user_lines(config)
    lines += ["chpasswd:", "  expire: False"]
    if config.get("ciuser") != "root":
        lines += ["users:", "  - default"]
    if config.get("ciupgrade", "1") == "1":
        lines.append("package_upgrade: true")
    return "\n".join(["#cloud-config", *lines, ""])


def _name(vmid: int, config: Config) -> str:
    """The machine's full name: its own, completed by the search domain when it has no dot."""
    name, domain = config.get("name", f"VM{vmid}"), config.get("searchdomain")
    return f"{name}.{domain}" if domain and "." not in name else name


def _user_lines(config: Config) -> Iterator[str]:
    if user := config.get("ciuser"):
        yield f"user: {_scalar(user)}"
        if user == "root":
            yield "disable_root: False"
    if password := config.get("cipassword"):
        yield f"password: {_scalar(password)}"
    if keys := ssh_keys(config):
        yield "ssh_authorized_keys:"
        yield from (f"  - {_scalar(key)}" for key in keys)


def ssh_keys(config: Config) -> list[str]:
    """The public keys of ``sshkeys``, which is percent-encoded, one key a line (pure)."""
    return _key_lines(unquote(config.get("sshkeys", "")))


def _key_lines(text: str) -> list[str]:
    return [line.strip() for line in text.splitlines() if line.strip() and not line.startswith("#")]


def network_config(config: Config) -> str:
    """Network configuration, version 1: every NIC that has an ``ipconfig``, by MAC address (pure)."""
    lines = ["version: 1", "config:"]
    for index, nic in sorted(nics.of_config(config).items()):
        if addressing := config.get(f"ipconfig{index}"):
            lines += [
                "    - type: physical",
                f"      name: eth{index}",
                f"      mac_address: {_quoted(nic.mac.lower())}",
                "      subnets:",
                *(f"      {line}" for line in _subnets(addressing)),
            ]
    lines += _name_servers(config)
    return "\n".join([*lines, ""])


def _subnets(text: str) -> Iterator[str]:
    """The ``subnets`` list of one ``ipconfig``; without any address it asks for DHCP on both families."""
    given = dict(part.split("=", 1) for part in text.split(",") if "=" in part)
    if "ip" not in given and "ip6" not in given:
        given.update(ip="dhcp", ip6="dhcp")
    if ip := given.get("ip"):
        yield from _subnet4(ip, given.get("gw"))
    if ip6 := given.get("ip6"):
        yield from _subnet6(ip6, given.get("gw6"))


def _subnet4(ip: str, gateway: str | None) -> Iterator[str]:
    if ip == "dhcp":
        yield "- type: dhcp4"
        return
    interface = ipaddress.IPv4Interface(ip)
    yield "- type: static"
    yield f"  address: {_quoted(str(interface.ip))}"
    yield f"  netmask: {_quoted(str(interface.netmask))}"
    if gateway:
        yield f"  gateway: {_quoted(gateway)}"


def _subnet6(ip: str, gateway: str | None) -> Iterator[str]:
    if ip in ("dhcp", "auto"):
        yield "- type: " + {"dhcp": "dhcp6", "auto": "ipv6_slaac"}[ip]
        return
    yield "- type: static6"
    yield f"  address: {_quoted(ip)}"
    if gateway:
        yield f"  gateway: {_quoted(gateway)}"


def _name_servers(config: Config) -> list[str]:
    """The closing ``nameserver`` item; Proxmox VE falls back to the host's own, an isolated lab has none."""
    servers, domains = (_words(config.get(key)) for key in ("nameserver", "searchdomain"))
    lines = ["    - type: nameserver"] if servers or domains else []
    if servers:
        lines += ["      address:", *(f"      - {_quoted(server)}" for server in servers)]
    if domains:
        lines += ["      search:", *(f"      - {_quoted(domain)}" for domain in domains)]
    return lines


def _words(value: str | None) -> list[str]:
    return re.split(r"[ ,;]+", value.strip()) if value else []


def _scalar(text: str) -> str:
    """A text in YAML: plain where that reads back as the same text, else quoted (pure)."""
    return _dumped(text, style=None)


def _quoted(text: str) -> str:
    """A text in YAML in single quotes, as Proxmox VE writes it, or double ones if need be (pure)."""
    return _dumped(text, style="'")


def _dumped(text: str, style: str | None) -> str:
    dumped: str = yaml.safe_dump(text, default_style=style, width=sys.maxsize)
    return dumped.removesuffix("\n").removesuffix("\n...")  # the end of a document


def meta_data(user: str, network: str) -> str:
    """Only the instance id: the hash of what is said (pure)."""
    return f"instance-id: {hashlib.sha1((user + network).encode()).hexdigest()}\n"


def _iso_words(iso: Path, files: list[Path]) -> list[str | Path]:
    quiet = ["-report_about", "FAILURE"]
    return ["xorriso", *quiet, "-as", "mkisofs", "-quiet", "-o", iso, "-V", "cidata", "-J", "-R", *files]


def check_keys(config: Config) -> None:
    """Refuse what ssh would not take for a public key, with Proxmox VE's text."""
    check_key_lines(unquote(config.get("sshkeys", "")))


def check_key_lines(text: str) -> None:
    """As ``check_keys``, of the keys as they are, one a line."""
    pattern = re.compile(r"^(\S+ )?(ssh-|ecdsa-|sk-)\S+ [A-Za-z0-9+/=]+( .*)?$")
    if not all(pattern.match(key) for key in _key_lines(text)):
        raise MachineError("SSH public key validation error")
