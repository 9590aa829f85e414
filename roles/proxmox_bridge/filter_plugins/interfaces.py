"""What role proxmox_bridge reads of a bridge, and the one option that it edits in /etc/network/interfaces."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Sequence
from typing import Any

from ansible.errors import AnsibleFilterError

UPLINKS = {"bond", "vlan", "team", "macvlan"}  # kinds of interface that lead to a network card


def bridge_state(lines: Sequence[str]) -> dict[str, Any]:
    """Return what matters of a bridge.

    Args:
        lines: the output of ``ip -d -j link show`` for the bridge, then for its ports; empty if it does not
        exist.

    Returns:
        Whether it ``exists``, its ``physical`` ports, and the ``tunnels`` to other nodes.
    """
    if not lines:
        return {"exists": False, "physical": [], "tunnels": []}
    ports = json.loads(lines[1]) if len(lines) > 1 else []
    kinds = {port["ifname"]: port.get("linkinfo", {}).get("info_kind") for port in ports}
    return {
        "exists": True,
        # taps and veths have a kind; a port without one is a network card
        "physical": [name for name, kind in kinds.items() if kind is None or kind in UPLINKS],
        "tunnels": [name for name, kind in kinds.items() if kind == "vxlan"],
    }


def bridge_ageing(text: str, bridge: str, seconds: int) -> str:
    """Return ``text`` with ``bridge-ageing <seconds>`` in the stanza of ``bridge``, otherwise unchanged.

    Raises:
        AnsibleFilterError: the file has no such stanza.
    """
    lines = text.splitlines(keepends=True)
    header = re.compile(rf"iface\s+{re.escape(bridge)}\s")
    begin = next((number for number, line in enumerate(lines) if header.match(line)), None)
    if begin is None:
        raise AnsibleFilterError(f"no bridge {bridge} in the interfaces file")
    end = next((n for n in range(begin + 1, len(lines)) if not re.match(r"\s+\S", lines[n])), len(lines))
    stanza = [line for line in lines[begin:end] if not re.match(r"\s+bridge[-_]ageing\s", line)]
    option = f"\tbridge-ageing {seconds}\n"
    if option in lines[begin:end] and len(stanza) == end - begin - 1:
        return text
    if not stanza[-1].endswith("\n"):
        stanza[-1] += "\n"
    return "".join([*lines[:begin], *stanza, option, *lines[end:]])


class FilterModule:
    """The filters by name, as Ansible asks for them."""

    def filters(self) -> dict[str, Callable[..., Any]]:
        return {"bridge_state": bridge_state, "bridge_ageing": bridge_ageing}
