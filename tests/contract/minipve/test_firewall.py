"""The firewall's configuration is stored, and the cluster's firewall cannot be enabled."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from tests.contract.endpoint import Endpoint, refused


@pytest.fixture(scope="module")
def root(own_for_all: Endpoint) -> Any:
    own_for_all.done(own_for_all.root().nodes("pve").qemu.post(vmid=100, memory=32), own_for_all.root())
    return own_for_all.root()


SCOPES = ("cluster", "nodes/pve", "nodes/pve/qemu/100")


@pytest.fixture(params=SCOPES)
def firewall(root: Any, request: pytest.FixtureRequest) -> Iterator[Any]:
    """The firewall of the cluster, of a node or of a guest, without rules at the end."""
    firewall = root(f"{request.param}/firewall")
    yield firewall
    for _ in firewall.rules.get():
        firewall.rules(0).delete()


def test_new_rules_come_first_and_can_be_moved(firewall: Any) -> None:
    for port in (1, 2, 3):
        firewall.rules.post(type="in", action="ACCEPT", proto="tcp", dport=port)
    assert [rule["dport"] for rule in firewall.rules.get()] == ["3", "2", "1"]
    assert [rule["pos"] for rule in firewall.rules.get()] == [0, 1, 2]
    firewall.rules(0).put(moveto=2)
    assert [rule["dport"] for rule in firewall.rules.get()] == ["2", "3", "1"]
    firewall.rules(2).put(moveto=0)
    assert [rule["dport"] for rule in firewall.rules.get()] == ["1", "2", "3"]
    firewall.rules(1).delete()
    assert [rule["dport"] for rule in firewall.rules.get()] == ["1", "3"]


def test_rules_are_changed_and_guarded_by_a_digest(firewall: Any) -> None:
    firewall.rules.post(type="in", action="DROP", comment="old", enable=1)
    rule = firewall.rules(0).get()
    assert (rule["enable"], rule["comment"]) == (1, "old")
    firewall.rules(0).put(comment="new", digest=rule["digest"])
    firewall.rules(0).put(delete="comment", action="REJECT")
    assert firewall.rules(0).get() == {
        "type": "in", "action": "REJECT", "enable": 1, "pos": 0, "digest": firewall.rules(0).get()["digest"],
    }  # fmt: skip
    assert (
        "detected modified configuration"
        in refused(firewall.rules(0).put, comment="x", digest=rule["digest"]).content
    )
    assert refused(firewall.rules(7).get).content == "no rule at position 7"


def test_options_have_types(firewall: Any) -> None:
    firewall.options.put(enable=0)
    assert firewall.options.get()["enable"] == 0
    assert "enable" in refused(firewall.options.put, enable="often").errors


def test_cluster_firewall_cannot_be_enabled(root: Any) -> None:
    options = root.cluster.firewall.options
    assert refused(options.put, enable=1).errors == {
        "enable": "minipve has no firewall, so only 0 is supported"
    }
    options.put(enable=0, policy_in="REJECT")
    assert options.get().items() >= {"enable": 0, "policy_in": "REJECT"}.items()
    root.nodes("pve").qemu(100).firewall.options.put(enable=1)  # without effect, as on a node
    assert root.nodes("pve").qemu(100).firewall.options.get()["enable"] == 1


def test_security_groups_have_rules(root: Any) -> None:
    groups = root.cluster.firewall.groups
    groups.post(group="web", comment="servers")
    assert [(row["group"], row["comment"]) for row in groups.get()] == [("web", "servers")]
    groups("web").post(type="in", action="ACCEPT", macro="HTTPS")
    assert groups("web")(0).get()["macro"] == "HTTPS"
    root.cluster.firewall.rules.post(type="group", action="web")
    groups.post(group="www", rename="web")
    assert root.cluster.firewall.rules(0).get()["action"] == "www"
    assert refused(groups("www").delete).content == "Security group 'www' is not empty"
    groups("www")(0).delete()
    groups("www").delete()
    assert refused(groups("www").get).content == "no such security group 'www'"
    root.cluster.firewall.rules(0).delete()


@pytest.mark.parametrize("scope", ["cluster", "nodes/pve/qemu/100"])
def test_aliases_and_address_sets(root: Any, scope: str) -> None:
    firewall = root(f"{scope}/firewall")
    firewall.aliases.post(name="Office", cidr="192.0.2.0/24", comment="here")
    assert firewall.aliases("office").get() == {"name": "Office", "cidr": "192.0.2.0/24", "comment": "here"}
    firewall.aliases("office").put(cidr="192.0.2.7", rename="desk")
    assert [row["name"] for row in firewall.aliases.get()] == ["desk"]
    firewall.aliases("desk").delete()
    assert refused(firewall.aliases("desk").get).errors == {"name": "no such alias"}
    firewall.ipset.post(name="blocked")
    blocked = firewall.ipset("blocked")
    blocked.post(cidr="198.51.100.0/24", comment="test net")
    assert blocked("198.51.100.0/24").get()["comment"] == "test net"
    assert refused(blocked.post, cidr="198.51.100.0/24").status_code == 400
    assert refused(blocked.delete).content == "IPSet 'blocked' is not empty"
    blocked("198.51.100.0/24").delete()
    blocked.delete()
    assert firewall.ipset.get() == []


def test_configuration_follows_its_guest(own_for_all: Endpoint, root: Any) -> None:
    vms = root.nodes("pve").qemu
    vms(100).firewall.rules.post(type="out", action="ACCEPT")
    own_for_all.done(vms(100).clone.post(newid=101, full=1), root)
    assert [rule["type"] for rule in vms(101).firewall.rules.get()] == ["out"]
    own_for_all.done(vms(101).delete(), root)
    own_for_all.done(vms.post(vmid=101, memory=32), root)
    assert vms(101).firewall.rules.get() == []
