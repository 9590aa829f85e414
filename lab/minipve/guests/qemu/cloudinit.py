"""The cloud-init seed (NoCloud): an ISO labelled ``cidata`` with a machine's name, users, keys and addresses.

The four files are written as Proxmox VE's Cloudinit.pm writes them, so that any image with cloud-init
accepts them and `GET .../cloudinit/dump` returns the same text. The YAML library writes every value that a
user chose, so no value can become a key, a list item or another type. The instance id is a hash of the
content: a new name, key or address makes cloud-init run again, a NIC's new model, rate or link state does
not.
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

from minipve.base import process
from minipve.base.atomic import UNFINISHED
from minipve.base.errors import MachineError
from minipve.base.paths import Paths
from minipve.config import nics
from minipve.config.drives import parse_volume_id
from minipve.config.rules import schema
from minipve.config.values import Config
from minipve.storage.directory import Storage


def build(vmid: int, config: Config, paths: Paths) -> Path:
    """Write the seed of a machine, as Proxmox VE does at each start; returns the ISO's path."""
    texts = _texts(vmid, config, Storage(paths.state / "storage"))
    paths.seeds.mkdir(parents=True, exist_ok=True)
    iso = iso_path(vmid, paths)
    with tempfile.TemporaryDirectory(prefix=f"{UNFINISHED}seed-", dir=paths.seeds) as name:
        scratch = Path(name)
        for file, text in texts.items():
            (scratch / file).write_text(text)
        draft = scratch / "seed.iso"
        process.run(_iso_words(draft, [scratch / file for file in texts]))
        draft.chmod(0o600)
        draft.replace(iso)
    return iso


def _texts(vmid: int, config: Config, storage: Storage) -> dict[str, str]:
    """Return the files of the seed: generated, or a snippet that ``cicustom`` names."""
    snippets = {
        part: _snippet(volid, storage)
        for part, volid in schema.parse_option("cicustom", config.get("cicustom", "")).items()
    }
    user = snippets.get("user", user_data(vmid, config))
    network = snippets.get("network", network_config(config))
    return {
        "user-data": user,
        "network-config": network,
        "meta-data": snippets.get("meta", meta_data(user, network)),
        "vendor-data": snippets.get("vendor", ""),
    }


def _snippet(volid: str, storage: Storage) -> str:
    if parse_volume_id(volid).content != "snippets":
        raise MachineError(f"{volid} is not in the snippets directory")
    return storage.existing(volid).read_text()


def iso_path(vmid: int, paths: Paths) -> Path:
    """The path of a machine's seed."""
    return paths.seeds / f"vm-{vmid}-cloudinit.iso"


def dump(vmid: int, config: Config, kind: str) -> str:
    """Return one generated file: ``kind`` is user, network or meta."""
    user, network = user_data(vmid, config), network_config(config)
    return {"user": user, "network": network, "meta": meta_data(user, network)}[kind]


def user_data(vmid: int, config: Config) -> str:
    """Return the ``#cloud-config``: name, user, keys, whether to upgrade packages (pure)."""
    fqdn = _full_name(vmid, config)
    lines = [f"hostname: {_scalar(fqdn.split('.')[0])}", "manage_etc_hosts: true", f"fqdn: {_scalar(fqdn)}"]
    lines += _user_lines(config)
    lines += ["chpasswd:", "  expire: False"]
    if config.get("ciuser") != "root":
        lines += ["users:", "  - default"]
    if config.get("ciupgrade", "1") == "1":
        lines.append("package_upgrade: true")
    return "\n".join(["#cloud-config", *lines, ""])


def _full_name(vmid: int, config: Config) -> str:
    """Return the machine's name, with the search domain appended if the name has no dot."""
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
    """Return the public keys of the percent-encoded option ``sshkeys`` (pure)."""
    return _key_lines(unquote(config.get("sshkeys", "")))


def _key_lines(text: str) -> list[str]:
    return [line.strip() for line in text.splitlines() if line.strip() and not line.startswith("#")]


def network_config(config: Config) -> str:
    """Return the network configuration, version 1: all NICs with an ``ipconfig``, by MAC address (pure)."""
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
    """Yield the ``subnets`` list of one ``ipconfig``. Without an address it is DHCP for both families."""
    options = dict(part.split("=", 1) for part in text.split(",") if "=" in part)
    if "ip" not in options and "ip6" not in options:
        options.update(ip="dhcp", ip6="dhcp")
    if ip := options.get("ip"):
        yield from _subnet4(ip, options.get("gw"))
    if ip6 := options.get("ip6"):
        yield from _subnet6(ip6, options.get("gw6"))


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
    """Return the ``nameserver`` item. Unlike on Proxmox VE the host's name servers are not the default."""
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
    """Write a text in YAML, quoted only if it would otherwise read back as something else (pure)."""
    return _dumped(text, style=None)


def _quoted(text: str) -> str:
    """Write a text in YAML in single quotes, as Proxmox VE does, or in double quotes if necessary (pure)."""
    return _dumped(text, style="'")


def _dumped(text: str, style: str | None) -> str:
    dumped: str = yaml.safe_dump(text, default_style=style, width=sys.maxsize)
    return dumped.removesuffix("\n").removesuffix("\n...")  # the document end marker


def meta_data(user: str, network: str) -> str:
    """Return the instance id, a hash of the other files (pure)."""
    return f"instance-id: {hashlib.sha1((user + network).encode()).hexdigest()}\n"


def _iso_words(iso: Path, files: list[Path]) -> list[str | Path]:
    quiet = ["-report_about", "FAILURE"]
    return ["xorriso", *quiet, "-as", "mkisofs", "-quiet", "-o", iso, "-V", "cidata", "-J", "-R", *files]


def check_keys(config: Config) -> None:
    """MachineError with Proxmox VE's text if ``sshkeys`` contains something else than public keys."""
    check_key_lines(unquote(config.get("sshkeys", "")))


def check_key_lines(text: str) -> None:
    """Like `check_keys`, for keys that are not percent-encoded."""
    pattern = re.compile(r"^(\S+ )?(ssh-|ecdsa-|sk-)\S+ [A-Za-z0-9+/=]+( .*)?$")
    if not all(pattern.match(key) for key in _key_lines(text)):
        raise MachineError("SSH public key validation error")
