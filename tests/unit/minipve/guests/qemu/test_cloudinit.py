"""The files of a cloud-init seed, compared with recordings of a Proxmox VE."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path
from urllib.parse import quote

import pytest
import yaml
from minipve.base.errors import MachineError
from minipve.base.paths import Paths
from minipve.guests.qemu import cloudinit
from minipve.image.debian import GUEST

from tests.waiting import PATIENCE_S

KEY = "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIJ3MqMvC4Z1NVPTQTxokttiyWq8BqiHar5IfobkrOR03 me@here"
# A configuration of Proxmox VE 9.2, whose answers were recorded (start_and_tasks.json, VM 100).
RECORDED = {
    "name": "t1",
    "ciuser": "lab",
    "net0": "virtio=02:11:22:33:44:55,bridge=vmbr1,rate=1",
    "net1": "e1000=02:11:22:33:44:66,bridge=vmbr1",
    "ipconfig0": "ip=10.0.0.5/24,gw=10.0.0.1",
}


def test_user_data_equals_the_recording() -> None:
    assert cloudinit.dump(100, RECORDED, "user") == (
        "#cloud-config\nhostname: t1\nmanage_etc_hosts: true\nfqdn: t1\nuser: lab\nchpasswd:\n"
        "  expire: False\nusers:\n  - default\npackage_upgrade: true\n"
    )


def test_network_and_meta_data_equal_the_recording() -> None:
    config = {**RECORDED, "nameserver": "10.255.255.53"}  # the node took it from its own resolv.conf
    assert cloudinit.dump(100, config, "network") == (
        "version: 1\nconfig:\n    - type: physical\n      name: eth0\n"
        "      mac_address: '02:11:22:33:44:55'\n"
        "      subnets:\n      - type: static\n        address: '10.0.0.5'\n        netmask: "
        "'255.255.255.0'\n"
        "        gateway: '10.0.0.1'\n    - type: nameserver\n      address:\n      - '10.255.255.53'\n"
    )
    assert cloudinit.dump(100, config, "meta") == "instance-id: 9daf6009b576d4d9cf1a54885e7c45f8060c3e23\n"


@pytest.mark.parametrize(
    ("change", "another"),
    [
        ({"net0": "e1000=02:11:22:33:44:55,bridge=vmbr9"}, False),
        ({"memory": "2048"}, False),
        ({"net0": "virtio=02:11:22:33:44:56,bridge=vmbr1"}, True),
        ({"name": "t2"}, True),
        ({"sshkeys": quote(KEY, safe="")}, True),
        ({"ipconfig0": "ip=10.0.0.6/24"}, True),
    ],
)
def test_changes_that_give_a_new_instance_id(change: dict[str, str], another: bool) -> None:
    before, after = (cloudinit.dump(100, config, "meta") for config in (RECORDED, {**RECORDED, **change}))
    assert (before != after) is another


@pytest.mark.parametrize(
    ("addressing", "lines"),
    [
        ("ip=dhcp", ["- type: dhcp4"]),
        ("gw=10.0.0.1", ["- type: dhcp4", "- type: dhcp6"]),
        ("ip6=auto", ["- type: ipv6_slaac"]),
        ("ip=10.0.0.5/16", ["- type: static", "  address: '10.0.0.5'", "  netmask: '255.255.0.0'"]),
        (
            "ip6=fd00::1/64,gw6=fd00::2",
            ["- type: static6", "  address: 'fd00::1/64'", "  gateway: 'fd00::2'"],
        ),
    ],
)
def test_subnets(addressing: str, lines: list[str]) -> None:
    assert list(cloudinit._subnets(addressing)) == lines


HOSTILE = [
    "a'b", 'a"b', "a: b", "a #b", "- a", "no", "123", "1.5", "null", "~", "{a}", "[a]", "&a", "*a", "!a", "|",
    "@a", "%a", "`a", "a\\b", "\ttab", "é", "\U0001f600", "\x80", "\ufeff", "a'\"\\: #", "x" * 300,
]  # fmt: skip


@pytest.mark.parametrize("value", HOSTILE)
def test_user_values_do_not_change_the_yaml_structure(value: str) -> None:
    key = f"{KEY} {value}"
    options = {"ciuser": value, "cipassword": value, "sshkeys": quote(key, safe="")}
    user = yaml.safe_load(cloudinit.dump(100, RECORDED | options, "user"))
    assert [user[name] for name in ("user", "password", "ssh_authorized_keys")] == [
        value,
        value,
        [key.strip()],
    ]
    assert user["chpasswd"] == {"expire": False}
    with_domain = yaml.safe_load(cloudinit.dump(100, {"name": "n", "searchdomain": value}, "user"))
    assert with_domain["fqdn"] == f"n.{value}"


@pytest.mark.parametrize("value", [value for value in HOSTILE if " " not in value and value.strip() == value])
def test_name_servers_do_not_change_the_yaml_structure(value: str) -> None:
    options = {"nameserver": value, "searchdomain": value}
    network = yaml.safe_load(cloudinit.dump(100, RECORDED | options, "network"))
    assert network["config"][-1] == {"type": "nameserver", "address": [value], "search": [value]}


def test_ssh_keys_are_percent_encoded() -> None:
    assert cloudinit.ssh_keys({"sshkeys": quote(f"{KEY}\n\n{KEY}\n", safe="")}) == [KEY, KEY]
    cloudinit.check_keys({"sshkeys": quote(KEY, safe="")})
    with pytest.raises(MachineError, match="SSH public key validation error"):
        cloudinit.check_keys({"sshkeys": "nonsense"})


@pytest.mark.skipif(shutil.which("xorriso") is None, reason="xorriso is not installed")
def test_iso_has_its_label_and_four_files(tmp_path: Path) -> None:
    iso = cloudinit.build(100, RECORDED, Paths(tmp_path / "state", tmp_path / "cache"))
    output = subprocess.run(
        ["xorriso", "-indev", str(iso), "-pvd_info", "-find", "/"],
        capture_output=True,
        text=True,
        timeout=PATIENCE_S,
    )
    assert "Volume Id    : cidata" in output.stdout
    assert all(
        f"'/{name}'" in output.stdout for name in ("user-data", "meta-data", "network-config", "vendor-data")
    )
    assert list(iso.parent.iterdir()) == [iso]


@pytest.mark.skipif(shutil.which("busybox") is None, reason="busybox is not installed")
def test_guest_script_reads_the_network_configuration(tmp_path: Path) -> None:
    """Run the awk program of the guest's script on a seed: MAC, address with prefix, gateway."""
    config = {**RECORDED, "ipconfig1": "ip=10.1.0.5/20", "nameserver": "10.9.9.9"}
    (tmp_path / "network-config").write_text(cloudinit.network_config(config))
    script = (GUEST / "nocloud").read_text()
    program = script.partition("    awk '")[2].partition("' $seed/network-config")[0].replace("'\\''", "'")
    result = subprocess.run(
        ["busybox", "awk", program, str(tmp_path / "network-config")],
        capture_output=True,
        text=True,
        timeout=30,
    )
    assert result.stdout.splitlines() == [
        "02:11:22:33:44:55 10.0.0.5/24 10.0.0.1",
        "02:11:22:33:44:66 10.1.0.5/20 ",
    ]
