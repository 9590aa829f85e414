"""Settings of a node, indexes, power of all guests, keys."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import pytest

from tests.contract.endpoint import Endpoint, refused


@pytest.fixture(scope="module")
def node(own_for_all: Endpoint) -> Any:
    return own_for_all.root().nodes("pve")


def test_description_is_stored_and_other_properties_are_refused(node: Any) -> None:
    node.config.put(description="a test node")
    config = node.config.get()
    assert config["description"] == "a test node"
    assert node.config.get(property="description")["description"] == "a test node"
    error = refused(node.config.put, description="x", digest="0" * 40)
    assert "detected modified configuration" in error.content
    assert refused(node.config.put, wakeonlan="02:00:00:00:00:01").errors == {
        "wakeonlan": "not supported here"
    }
    node.config.put(delete="description", digest=config["digest"])
    assert "description" not in node.config.get()


def test_dns_and_time_zone_are_stored(node: Any) -> None:
    assert node.dns.get() == {}
    node.dns.put(search="example.org", dns1="192.0.2.53")
    assert node.dns.get() == {"search": "example.org", "dns1": "192.0.2.53"}
    times = node.time.get()
    assert (times["timezone"], times["localtime"] - times["time"]) == ("Etc/UTC", 0)
    node.time.put(timezone="Asia/Kolkata")
    times = node.time.get()
    assert times["localtime"] - times["time"] == 5.5 * 3600
    assert refused(node.time.put, timezone="Mars/Base").content == "No such timezone: 'Mars/Base'"


def test_services(node: Any) -> None:
    assert {row["state"] for row in node.services.get()} == {"running"}
    assert node.services("pveproxy").state.get()["active-state"] == "active"
    assert node.services("cron").state.get()["state"] == "unknown"


def test_certificates_are_described(own_for_all: Endpoint, node: Any) -> None:
    authority, own = node.certificates.info.get()
    assert (authority["filename"], own["filename"]) == ("pve-root-ca.pem", "pve-ssl.pem")
    assert own["issuer"] == authority["subject"] != own["subject"]
    assert authority["pem"] == Path(own_for_all.ca_file).read_text()
    assert own["fingerprint"] == own_for_all.root().nodes.get()[0]["ssl_fingerprint"]
    assert own["notbefore"] < time.time() < own["notafter"]
    assert {"127.0.0.1", "localhost"} <= set(own["san"])
    assert (own["public-key-type"], own["public-key-bits"]) == ("id-ecPublicKey", 256)


def test_acme_has_no_accounts_and_the_standalone_plugin(own_for_all: Endpoint) -> None:
    acme = own_for_all.root().cluster.acme
    assert acme.account.get() == []
    assert acme.plugins.get() == [{"plugin": "standalone", "type": "standalone"}]
    assert acme.plugins.get(type="dns") == []


@pytest.mark.parametrize(
    ("path", "key", "names"),
    [
        ("/nodes/pve", "name", {"qemu", "lxc", "status", "dns"}),
        ("/cluster", "name", {"resources", "nextid"}),
        ("/access", "subdir", {"users", "groups", "acl"}),
    ],
)
def test_indexes_name_what_is_below(own_for_all: Endpoint, path: str, key: str, names: set[str]) -> None:
    rows = own_for_all.root()(path.strip("/")).get()
    assert {row[key] for row in rows} >= names


def test_a_realm(own_for_all: Endpoint) -> None:
    domains = own_for_all.root().access.domains
    assert domains("pve").get()["type"] == "pve"
    assert refused(domains("nosuch").get).content == "domain 'nosuch' does not exist"


def test_manager_status(own_for_all: Endpoint) -> None:
    status = own_for_all.root().cluster.ha.status.manager_status.get()
    assert status == {"manager_status": {}, "quorum": {"node": "pve", "quorate": 1}}


def test_first_node_cannot_be_switched_off(node: Any) -> None:
    assert "not supported here" in refused(node.status.post, command="shutdown").content


def test_all_guests_start_and_stop_in_order(own_for_all: Endpoint, node: Any) -> None:
    root = own_for_all.root()
    options = {100: {"onboot": 1}, 101: {"onboot": 1, "startup": "order=1"}, 102: {}}
    for vmid, option in options.items():
        own_for_all.done(node.qemu.post(vmid=vmid, memory=32, kvm=0, **option), root)
    log = own_for_all.done(node.startall.post(), root)
    assert log == ["Starting VM 101", "Starting VM 100", "TASK OK"]
    assert node.qemu(102).status.current.get()["status"] == "stopped"
    log = own_for_all.done(node.stopall.post(timeout=1), root)
    assert log == [
        "Stopping VM 100 (timeout = 1 seconds)", "Stopping VM 101 (timeout = 1 seconds)", "TASK OK",
    ]  # fmt: skip
    assert {row["status"] for row in node.qemu.get()} == {"stopped"}
    own_for_all.done(node.startall.post(force=1, vms="102"), root)
    node.qemu(102).sendkey.put(key="ctrl-alt-delete")
    assert refused(node.qemu(102).sendkey.put, key="nosuchkey").status_code == 500
    assert refused(node.qemu(102).sendkey.put, key="a\nquit").status_code == 500
    assert node.qemu(102).status.current.get()["status"] == "running"
    own_for_all.done(node.qemu(102).status.stop.post(), root)
