"""The lab's own bridge, wherever a run before was cut off; others' changes are never applied along."""

from __future__ import annotations

from dataclasses import replace

import pytest
from dasklab.errors import LabError
from dasklab.machines import bridges
from dasklab.machines.observed import ObservedBridge, ObservedNode

from tests.unit.dasklab.samples import LAB

MARK = "bridge of lab dasklab"
NETWORK = "/nodes/pve/network"
HEAD = "--- /etc/network/interfaces\t2026-01-01\n+++ /etc/network/interfaces.new\t2026-01-01\n"
# What a node tells after POST network, and after DELETE network/vmbr1.
ADDED = f"""{HEAD}@@ -10,3 +10,10 @@
 \tbridge-stp off
 \tbridge-fd 0
+auto vmbr1
+iface vmbr1 inet manual
+\tbridge-ports none
+\tbridge-stp off
+\tbridge-fd 0
+#{MARK}
+
 source /etc/network/interfaces.d/*
"""
REMOVED = ADDED.replace("\n+", "\n-").replace("\n-++ ", "\n+++ ")
OTHERS = f"""{HEAD}@@ -5,4 +5,4 @@
 auto vmbr0
 iface vmbr0 inet static
-\taddress 192.168.1.10/24
+\taddress 192.168.1.11/24
 \tgateway 192.168.1.1
"""
SEEN = ObservedNode(
    bridges={"vmbr0": ObservedBridge("")}, storages={"local": frozenset({"images", "import"})}
)


def seen(bridge: ObservedBridge | None, diff: str = "") -> ObservedNode:
    """A node with this bridge called vmbr1 in its configuration, and with these changes waiting."""
    there = {**SEEN.bridges, **({"vmbr1": bridge} if bridge else {})}
    return replace(SEEN, bridges=there, pending=bridges.pending_changes(diff))


def made(found: ObservedNode) -> list[str]:
    return [f"{c.method} {c.path}" for c in bridges.make(found, LAB, "pve")]


def removed(found: ObservedNode) -> list[str]:
    return [f"{c.method} {c.path}" for c in bridges.remove(found, LAB, "pve")]


def test_the_diff_of_a_node_is_read_by_interface() -> None:
    assert set(bridges.pending_changes(ADDED)) == {"vmbr1"}
    assert f"+#{MARK}" in bridges.pending_changes(ADDED)["vmbr1"]
    assert bridges.pending_changes(OTHERS) == {
        "vmbr0": ("-address 192.168.1.10/24", "+address 192.168.1.11/24")
    }
    assert bridges.pending_changes("") == {}


def test_what_belongs_to_no_interface_that_one_sees_is_somebodys() -> None:
    assert bridges.pending_changes(f"{HEAD}@@ -5,1 +5,1 @@\n-\tmtu 1500\n+\tmtu 9000\n") == {
        "": ("-mtu 1500", "+mtu 9000")
    }


@pytest.mark.parametrize(
    ("found", "calls"),
    [
        (seen(None), [f"POST {NETWORK}", f"PUT {NETWORK}"]),
        (seen(ObservedBridge(MARK)), []),
        (seen(ObservedBridge("made by hand")), []),
        (seen(ObservedBridge(MARK, active=False), ADDED), [f"PUT {NETWORK}"]),  # cut off after the POST
        (seen(ObservedBridge(MARK, active=False)), [f"PUT {NETWORK}"]),  # the reload failed
        (seen(None, REMOVED), [f"POST {NETWORK}", f"PUT {NETWORK}"]),  # destroy was cut off
    ],
)
def test_a_bridge_is_there_afterwards(found: ObservedNode, calls: list[str]) -> None:
    assert made(found) == calls


@pytest.mark.parametrize(
    ("found", "calls"),
    [
        (seen(None), []),
        (seen(ObservedBridge("made by hand")), []),
        (seen(ObservedBridge(MARK)), [f"DELETE {NETWORK}/vmbr1", f"PUT {NETWORK}"]),
        # never came up, as on a node without ifupdown2: nothing has to be applied, nor could it be
        (seen(ObservedBridge(MARK, active=False), ADDED), [f"DELETE {NETWORK}/vmbr1"]),
        (seen(ObservedBridge(MARK, active=False), ADDED + OTHERS), [f"DELETE {NETWORK}/vmbr1"]),
        (seen(ObservedBridge(MARK, active=False)), [f"DELETE {NETWORK}/vmbr1", f"PUT {NETWORK}"]),
        (seen(None, REMOVED), [f"PUT {NETWORK}"]),  # cut off after the DELETE
        (seen(None, OTHERS), []),
    ],
)
def test_no_bridge_of_ours_is_left(found: ObservedNode, calls: list[str]) -> None:
    assert removed(found) == calls


@pytest.mark.parametrize(
    "found",
    [
        seen(None, OTHERS),
        seen(ObservedBridge(MARK, active=False), ADDED + OTHERS),
        # the name that we want, but made by somebody else
        seen(None, REMOVED.replace(MARK, "made by hand")),
    ],
)
def test_others_changes_are_not_applied_by_making(found: ObservedNode) -> None:
    with pytest.raises(LabError, match=r"network changes that are not applied yet \(vmbr[01]\)"):
        made(found)


def test_others_changes_are_not_applied_by_removing() -> None:
    with pytest.raises(LabError, match=r"not applied yet \(vmbr0\)"):
        removed(seen(ObservedBridge(MARK), OTHERS))
