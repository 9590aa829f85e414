"""The lab's own bridge after interrupted runs, and pending changes of others."""

from __future__ import annotations

from dataclasses import replace

import pytest
from dasklab.errors import LabError
from dasklab.machines.endpoint.observe import pending_changes
from dasklab.machines.endpoint.observed import ObservedBridge, ObservedNode
from dasklab.machines.plan import bridges

from tests.unit.dasklab.samples import LAB

MARK = "bridge of lab dasklab"
NETWORK = "/nodes/pve/network"
HEAD = "--- /etc/network/interfaces\t2026-01-01\n+++ /etc/network/interfaces.new\t2026-01-01\n"
# How a node describes pending changes after POST network, and after DELETE network/vmbr1.
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
NODE = ObservedNode(
    bridges={"vmbr0": ObservedBridge("")}, storages={"local": frozenset({"images", "import"})}
)


def node(bridge: ObservedBridge | None, diff: str = "") -> ObservedNode:
    """Return a node with this bridge as vmbr1 and with these pending changes."""
    configured = {**NODE.bridges, **({"vmbr1": bridge} if bridge else {})}
    return replace(NODE, bridges=configured, pending=pending_changes(diff))


def calls_to_make(observed: ObservedNode) -> list[str]:
    return [f"{c.method} {c.path}" for c in bridges.make(observed, LAB, "pve")]


def calls_to_remove(observed: ObservedNode) -> list[str]:
    return [f"{c.method} {c.path}" for c in bridges.remove(observed, LAB, "pve")]


def test_pending_changes_are_grouped_by_interface() -> None:
    assert set(pending_changes(ADDED)) == {"vmbr1"}
    assert f"+#{MARK}" in pending_changes(ADDED)["vmbr1"]
    assert pending_changes(OTHERS) == {"vmbr0": ("-address 192.168.1.10/24", "+address 192.168.1.11/24")}
    assert pending_changes("") == {}


def test_changes_outside_of_a_stanza_belong_to_an_unknown_interface() -> None:
    assert pending_changes(f"{HEAD}@@ -5,1 +5,1 @@\n-\tmtu 1500\n+\tmtu 9000\n") == {
        "": ("-mtu 1500", "+mtu 9000")
    }


@pytest.mark.parametrize(
    ("observed", "calls"),
    [
        (node(None), [f"POST {NETWORK}", f"PUT {NETWORK}"]),
        (node(ObservedBridge(MARK)), []),
        (node(ObservedBridge("made by hand")), []),
        (node(ObservedBridge(MARK, active=False), ADDED), [f"PUT {NETWORK}"]),  # interrupted after the POST
        (node(ObservedBridge(MARK, active=False)), [f"PUT {NETWORK}"]),  # the reload failed
        (node(None, REMOVED), [f"POST {NETWORK}", f"PUT {NETWORK}"]),  # destroy was interrupted
    ],
)
def test_make_yields_the_calls_that_are_missing(observed: ObservedNode, calls: list[str]) -> None:
    assert calls_to_make(observed) == calls


@pytest.mark.parametrize(
    ("observed", "calls"),
    [
        (node(None), []),
        (node(ObservedBridge("made by hand")), []),
        (node(ObservedBridge(MARK)), [f"DELETE {NETWORK}/vmbr1", f"PUT {NETWORK}"]),
        # never came up, as on a node without ifupdown2: nothing has to be applied, and nothing could be
        (node(ObservedBridge(MARK, active=False), ADDED), [f"DELETE {NETWORK}/vmbr1"]),
        (node(ObservedBridge(MARK, active=False), ADDED + OTHERS), [f"DELETE {NETWORK}/vmbr1"]),
        (node(ObservedBridge(MARK, active=False)), [f"DELETE {NETWORK}/vmbr1", f"PUT {NETWORK}"]),
        (node(None, REMOVED), [f"PUT {NETWORK}"]),  # interrupted after the DELETE
        (node(None, OTHERS), []),
    ],
)
def test_remove_yields_the_calls_that_are_missing(observed: ObservedNode, calls: list[str]) -> None:
    assert calls_to_remove(observed) == calls


@pytest.mark.parametrize(
    "observed",
    [
        node(None, OTHERS),
        node(ObservedBridge(MARK, active=False), ADDED + OTHERS),
        # the lab's name for it, but made by someone else
        node(None, REMOVED.replace(MARK, "made by hand")),
    ],
)
def test_make_refuses_to_apply_changes_of_others(observed: ObservedNode) -> None:
    with pytest.raises(LabError, match=r"network changes that are not applied yet \(vmbr[01]\)"):
        calls_to_make(observed)


def test_remove_refuses_to_apply_changes_of_others() -> None:
    with pytest.raises(LabError, match=r"not applied yet \(vmbr0\)"):
        calls_to_remove(node(ObservedBridge(MARK), OTHERS))
