"""PVE's named formats."""

from __future__ import annotations

import pytest
from minipve.config.rules.formats import CHECKS, PROPERTY_FORMATS, UNCHECKED, check_format


@pytest.mark.parametrize(
    ("name", "good", "bad", "complaint"),
    [
        ("pve-vmid", "100", "50", "value does not look like a valid VM ID"),
        ("dns-name", "a.b-c", "bad_name!", "value does not look like a valid DNS name"),
        ("pve-bridge-id", "vmbr0", "vm br", "invalid bridge ID 'vm br'"),
        (
            "mac-addr",
            "02:aB:00:00:00:00",
            "01:00:00:00:00:00",
            "value does not look like a valid unicast MAC address",
        ),
        (
            "pve-ipv4-config",
            "10.0.0.1/24",
            "10.0.0.1",
            "value does not look like a valid ipv4 network configuration",
        ),
        (
            "pve-ipv4-config",
            "dhcp",
            "10.0.0.1/33",
            "value does not look like a valid ipv4 network configuration",
        ),
        (
            "pve-ipv6-config",
            "fd00::1/64",
            "10.0.0.1/24",
            "value does not look like a valid ipv6 network configuration",
        ),
        ("ipv4", "10.0.0.1", "10.0.0.256", "value does not look like a valid IPv4 address"),
        ("CIDRv4", "10.0.0.0/8", "fd00::/8", "value does not look like a valid IPv4 network"),
        ("pve-userid", "root@pam", "root", "value 'root' does not look like a valid user name"),
        ("pve-tokenid", "a@pve!tok", "a@pve", "value 'a@pve' does not look like a valid token ID"),
        ("pve-priv-list", "VM.Audit,Sys.Audit", "VM.Monitor", "invalid privilege 'VM.Monitor'"),
        ("pve-qm-bootdev-list", "scsi0;net0", "foo", "invalid boot device 'foo'"),
        ("urlencoded", "ssh-rsa%20AAA", "ssh-rsa AAA", "invalid urlencoded string: ssh-rsa AAA"),
        ("pve-volume-id-or-qm-path", "local:100/vm-100-disk-0.qcow2", "x", "unable to parse volume ID 'x'"),
        ("pve-volume-id-or-qm-path", "none", "", "unable to parse volume ID ''"),
        ("pve-hotplug-features", "network,disk", "wings", "unable to parse hotplug option"),
        ("email-opt", "", "nobody", "value does not look like a valid email address"),
        ("pve-startup-order", "order=1,up=5", "soon", "unable to parse startup options"),
        ("pve-tag-list", "a;b,c", "a;Ä", "invalid characters in tag"),
        ("disk-size", "10G", "ten", "value does not look like a valid disk size: ten"),
    ],
)
def test_named_formats(name: str, good: str, bad: str, complaint: str) -> None:
    assert check_format(name, good) is None
    assert check_format(name, bad) == complaint


def test_every_format_of_the_schema_is_known() -> None:
    from minipve.api import routing
    from minipve.config.rules import schema

    def names(facts: dict[str, object]) -> set[str]:
        fmt = facts.get("format")
        if isinstance(fmt, dict):
            return {n for sub in fmt.values() for n in names(sub)}
        return {str(fmt)} if fmt else set()

    used = {
        name
        for verb, path in routing.load()
        for facts in schema.method(verb, path).properties.values()
        for name in names(facts)
    }
    for name in used - set(PROPERTY_FORMATS) - UNCHECKED:
        check_format(name, "x")
    assert not UNCHECKED & set(CHECKS)


def test_unknown_format_raises_key_error() -> None:
    with pytest.raises(KeyError, match="unknown format"):
        check_format("pve-nosuch", "x")
