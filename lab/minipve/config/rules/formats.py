"""PVE's named value formats (``pve-vmid``, ``dns-name``, ...) and its error texts.

The facts come from pve-common's JSONSchema, qemu-server and pve-access-control. A check takes the text and
returns a complaint or None. ``PROPERTY_FORMATS`` holds property strings that the published schema only names.
"""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Callable
from typing import Any

from minipve.config.rules.privileges import PRIVILEGES

Check = Callable[[str], str | None]
_STORE = r"[a-z][a-z0-9\-_.]*[a-z0-9]"
_LABEL = r"[a-zA-Z0-9](?:[a-zA-Z0-9\-]*[a-zA-Z0-9])?"
_REALM = r"[A-Za-z][A-Za-z0-9.\-_]+"
_BOOT_DEVICE = (
    r"(?:ide[0-3]|sata[0-5]|scsi(?:[12]?\d|30)|virtio(?:\d|1[0-5])|net(?:[12]?\d|3[01])|usb\d+|hostpci\d+)"
)
_UUID = r"[a-fA-F0-9]{8}(?:-[a-fA-F0-9]{4}){3}-[a-fA-F0-9]{12}"


def split_list(text: str) -> list[str]:
    """Split a list (a value of a ``*-list`` format) at commas, semicolons and white space."""
    return [item for item in re.split(r"[\s,;\0]+", text) if item]


def _matches(pattern: str, complaint: str, flags: int = 0) -> Check:
    compiled = re.compile(pattern, flags | re.ASCII)
    return lambda text: None if compiled.fullmatch(text) else complaint.format(text)


def _lacks(pattern: str, complaint: str) -> Check:
    compiled = re.compile(pattern, re.ASCII)
    return lambda text: complaint.format(text) if compiled.search(text) else None


def _parses(parse: Callable[[str], object], complaint: str) -> Check:
    def check(text: str) -> str | None:
        try:
            parse(text)
        except ValueError:
            return complaint.format(text)
        return None

    return check


def _either(complaint: str, *checks: Check) -> Check:
    return lambda text: None if any(check(text) is None for check in checks) else complaint.format(text)


def _cidr(version: int) -> Callable[[str], object]:
    def parse(text: str) -> object:
        address, slash, length = text.partition("/")
        is_length = bool(slash) and re.fullmatch(r"[0-9]{1,3}", length)
        if not is_length or ipaddress.ip_address(address).version != version:
            raise ValueError(text)
        return ipaddress.ip_interface(text)

    return parse


def _subnet_id(text: str) -> str | None:
    """Accept a network in CIDR notation, or a subnet's id: ``zone-10.0.0.0-24``."""
    network = text if "/" in text else "/".join(text.split("-")[1:3])
    if _cidr4(network) is None or _cidr6(network) is None:
        return None
    return "value does not look like a valid CIDR network"


def _userid(text: str) -> str | None:
    if len(text) < 3:
        return f"user name '{text}' is too short"
    if len(text) > 64:
        return f"user name '{text}' is too long ({len(text)} > 64)"
    if not re.fullmatch(rf"[^\s:/!]+@{_REALM}", text):  # "!" separates a user from its token
        return f"value '{text}' does not look like a valid user name"
    return None


def _sshkeys(text: str) -> str | None:
    if not re.fullmatch(r"[-%a-zA-Z0-9_.!~*'()]*", text):
        return f"invalid urlencoded string: {text}"
    return None


def _hotplug(text: str) -> str | None:
    features = {"network", "disk", "cpu", "memory", "usb", "cloudinit"}
    if text in ("0", "1") or set(split_list(text)) <= features:
        return None
    return "unable to parse hotplug option"


_name = _matches(rf"(?:{_LABEL}\.)*{_LABEL}", "value does not look like a valid DNS name")
_ipv4 = _parses(ipaddress.IPv4Address, "value does not look like a valid IPv4 address")
_ipv6 = _parses(ipaddress.IPv6Address, "value does not look like a valid IPv6 address")
_cidr4 = _parses(_cidr(4), "value does not look like a valid IPv4 network")
_cidr6 = _parses(_cidr(6), "value does not look like a valid IPv6 network")
_volume = _matches(rf"{_STORE}:.+", "unable to parse volume ID '{}'", re.IGNORECASE)
_alias = _matches(r"(?:(?:dc|guest)/)?[A-Za-z][A-Za-z0-9\-_]+", "")
_path = _matches(r"/.+", "")

CHECKS: dict[str, Check] = {
    "pve-vmid": _matches(r"[1-9][0-9]{2,8}", "value does not look like a valid VM ID"),
    "pve-node": _matches(_LABEL, "value does not look like a valid node name"),
    "pve-configid": _matches(r"[a-z][a-z0-9_-]+", "invalid configuration ID '{}'", re.IGNORECASE),
    "pve-storage-id": _matches(_STORE, "storage ID '{}' contains illegal characters", re.IGNORECASE),
    "pve-storage-content": _matches(
        r"images|rootdir|vztmpl|iso|backup|snippets|import|none", "invalid content type '{}'"
    ),
    "pve-poolid": _matches(r"[\w.\-]+(?:/[\w.\-]+){0,2}", "pool name '{}' contains invalid characters"),
    "pve-roleid": _matches(r"[\w.\-]+", "role name '{}' contains invalid characters"),
    "pve-groupid": _matches(r"[\w.\-]+", "group name '{}' contains invalid characters"),
    "pve-realm": _matches(_REALM, "value does not look like a valid realm"),
    "pve-priv": lambda text: None if text in PRIVILEGES else f"invalid privilege '{text}'",
    "pve-userid": _userid,
    "pve-tokenid": _matches(
        rf"[^\s:/]+@{_REALM}![A-Za-z][\w.\-]+", "value '{}' does not look like a valid token ID"
    ),
    "email": _matches(r"[^\s@]+@[^\s@]+", "value does not look like a valid email address"),
    "dns-name": _name,
    "address": _either("value does not look like a valid address: {}", _ipv4, _ipv6, _name),
    "ip": _either("value does not look like a valid IP address", _ipv4, _ipv6),
    "ipv4": _ipv4,
    "ipv6": _ipv6,
    "ipv4mask": _parses(
        lambda text: ipaddress.IPv4Network(f"0.0.0.0/{text}"), "value does not look like a valid IP netmask"
    ),
    "CIDRv4": _cidr4,
    "CIDRv6": _cidr6,
    "CIDR": _either("value does not look like a valid CIDR network", _cidr4, _cidr6),
    "IPorCIDR": _either("value does not look like a valid IP or CIDR", _ipv4, _ipv6, _cidr4, _cidr6),
    "IPorCIDRorAlias": _either(
        "value does not look like a valid IP, CIDR or alias", _ipv4, _ipv6, _cidr4, _cidr6, _alias
    ),
    "pve-ipv4-config": _either(
        "value does not look like a valid ipv4 network configuration", _matches("dhcp|manual", ""), _cidr4
    ),
    "pve-ipv6-config": _either(
        "value does not look like a valid ipv6 network configuration",
        _matches("dhcp|auto|manual", ""),
        _cidr6,
    ),
    "mac-addr": _matches(
        r"[a-f0-9][02468ace](?::[a-f0-9]{2}){5}",
        "value does not look like a valid unicast MAC address",
        re.IGNORECASE,
    ),
    "pve-iface": _matches(
        r"[a-z][a-z0-9_]{1,20}(?:[:.]\d+)?", "invalid network interface name '{}'", re.IGNORECASE
    ),
    "pve-bridge-id": _matches(r"[-_.\w]+", "invalid bridge ID '{}'"),
    "pve-vlan-id-or-range": _matches(r"\d{1,4}(?:-\d{1,4})?", "invalid VLAN configuration '{}'"),
    "disk-size": _matches(r"\d+(?:\.\d+)?[KMGT]?", "value does not look like a valid disk size: {}"),
    "urlencoded": _sshkeys,
    "pve-volume-id": _volume,
    "pve-volume-id-or-qm-path": _either(
        "unable to parse volume ID '{}'", _matches("none|cdrom", ""), _path, _volume
    ),
    "pve-volume-id-or-absolute-path": _either("unable to parse volume ID '{}'", _path, _volume),
    "pve-tag": _matches(r"[a-z0-9_][a-z0-9_\-+.]*", "invalid characters in tag", re.IGNORECASE),
    "pve-qm-bootdev": _matches(_BOOT_DEVICE, "invalid boot device '{}'"),
    "pve-qm-bootdisk": _matches(r"(?:ide|sata|scsi|virtio)\d+", "invalid boot disk '{}'"),
    "pve-hotplug-features": _hotplug,
    "pve-startup-order": _matches(
        r"(?:(?:order=)?\d+|up=\d+|down=\d+)(?:,(?:order=\d+|up=\d+|down=\d+))*",
        "unable to parse startup options",
    ),
    "pve-task-status-type": _matches(r"ok|error|warning|unknown", "invalid status type '{}'"),
    "pve-command-batch": lambda text: None,
    "pve-lxc-mp-string": _lacks(r"/\.\.?(?:/|\n?\Z)|\A\.\./", "{} contains illegal character sequences"),
    "pve-lxc-dev-string": _lacks(r"/\.\.?(?:/|\n?\Z)|\A(?!/dev/)", "{} is not a valid device path"),
    "pve-sdn-subnet-id": _subnet_id,
    "pve-ct-timezone": _matches(r"host|[\w+\-]+(?:/[\w+\-]+){0,2}", "invalid time zone '{}'"),
    "lxc-ip-with-ll-iface": _either(
        "value does not look like a valid IP address", _ipv4, _ipv6, _matches(r"fe80:[0-9a-f:]+%\w+", "")
    ),
}

# Formats of options that minipve stores but never uses. They are not checked.
UNCHECKED = {
    "pve-acme-alias",
    "pve-acme-domain",
    "pve-fw-addr-spec", "pve-fw-conntrack-helper", "pve-fw-dport-spec", "pve-fw-icmp-type-spec",
    "pve-fw-protocol-spec", "pve-fw-sport-spec",
    "pve-cpuset", "pve-qemu-sev-fmt", "pve-qemu-tdx-fmt", "pve-qm-hostpci", "storage-pair", "pve-qm-ide",
    "pve-sdn-fabric-id", "pve-sdn-ipam-id", "pve-sdn-bgp-rt-list",
}  # fmt: skip

_SDN_ID = {"pattern": "[a-zA-Z][a-zA-Z0-9]*[a-zA-Z0-9]", "maxLength": 8}
LIMITS: dict[str, dict[str, Any]] = {"pve-sdn-zone-id": _SDN_ID, "pve-sdn-vnet-id": _SDN_ID}
"""Formats that are checked as a pattern and a length, with the error texts of those."""

PROPERTY_FORMATS: dict[str, dict[str, Any]] = {
    "pve-qm-boot": {
        "legacy": {"type": "string", "default_key": 1, "optional": 1, "pattern": "[acdn]{1,4}"},
        "order": {"type": "string", "optional": 1, "format": "pve-qm-bootdev-list"},
    },
    "pve-qm-ipconfig": {
        "ip": {"type": "string", "optional": 1, "format": "pve-ipv4-config"},
        "gw": {"type": "string", "optional": 1, "format": "ipv4", "requires": "ip"},
        "ip6": {"type": "string", "optional": 1, "format": "pve-ipv6-config"},
        "gw6": {"type": "string", "optional": 1, "format": "ipv6", "requires": "ip6"},
    },
    "pve-qm-rng": {
        "source": {"type": "string", "default_key": 1, "enum": ["/dev/urandom", "/dev/random", "/dev/hwrng"]},
        "max_bytes": {"type": "integer", "optional": 1},
        "period": {"type": "integer", "optional": 1},
    },
    "pve-vm-cpu-conf": {
        "cputype": {"type": "string", "default_key": 1, "optional": 1, "pattern": r"(?:custom-)?[\w.\-]+"},
        "reported-model": {"type": "string", "optional": 1},
        "hidden": {"type": "boolean", "optional": 1},
        "hv-vendor-id": {"type": "string", "optional": 1, "pattern": r"[a-zA-Z0-9]{1,12}"},
        "flags": {"type": "string", "optional": 1, "pattern": r"[+-][\w\-.]+(?:;[+-][\w\-.]+)*"},
        "phys-bits": {"type": "string", "optional": 1, "pattern": r"\d{1,2}|host"},
        "guest-phys-bits": {"type": "integer", "optional": 1, "minimum": 32, "maximum": 64},
    },
    "pve-qm-smbios1": {
        "uuid": {"type": "string", "optional": 1, "pattern": _UUID},
        **{
            key: {"type": "string", "optional": 1, "pattern": r"[A-Za-z0-9+/]+={0,2}"}
            for key in ("version", "serial", "manufacturer", "product", "sku", "family")
        },
        "base64": {"type": "boolean", "optional": 1},
    },
    "pve-qm-cicustom": {
        key: {"type": "string", "optional": 1, "format": "pve-volume-id"}
        for key in ("meta", "network", "user", "vendor")
    },
    "pve-sdn-dhcp-range": {
        "start-address": {"type": "string", "format": "ip"},
        "end-address": {"type": "string", "format": "ip"},
    },
    "pve-qm-watchdog": {
        "model": {"type": "string", "default_key": 1, "optional": 1, "enum": ["i6300esb", "ib700"]},
        "action": {
            "type": "string",
            "optional": 1,
            "enum": ["reset", "shutdown", "poweroff", "pause", "debug", "none"],
        },
    },
}  # fmt: skip


def check_format(name: str, text: str) -> str | None:
    """Return the complaint of format ``name`` (or its ``-list`` or ``-opt`` form) about ``text``, or None."""
    if name in CHECKS:
        return CHECKS[name](text)
    if name.endswith("-opt"):
        return check_format(name.removesuffix("-opt"), text) if text else None
    if name in UNCHECKED or name in LIMITS:
        return None
    if name.endswith("-list"):
        complaints = (check_format(name.removesuffix("-list"), item) for item in split_list(text))
        return next((complaint for complaint in complaints if complaint is not None), None)
    raise KeyError(f"unknown format {name!r}")
