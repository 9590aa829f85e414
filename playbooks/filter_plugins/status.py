"""The table of `dasklab status`."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from dasklab.model.nic import LAB_SLOT, net_from_pve, net_key
from dasklab.terminal import counted

ROW = "{:<11} {:<6} {:<8} {:<9} {:<28} {:<10} {:<8} {}"
HEADINGS = ("machine", "VMID", "node", "status", "lab link", "Dask", "service", "impaired, captures")


def lab_status(names: Sequence[str], hostvars: Mapping[str, Any]) -> str:
    """Return a row per host: its machine on the endpoint, and what ``status_host`` holds."""
    answer = hostvars["localhost"].get("proxmox_vm_result") or {}
    guests = answer.get("guests") or {}
    lines = [ROW.format(*HEADINGS)]
    for name in names:
        machine, services = _machine(guests.get(name)), _services(hostvars[name], guests.get(name))
        lines.append(ROW.format(name, *machine, *services))
    if calls := answer.get("calls"):
        lines.append(
            "The machines differ from the inventory; `dasklab plan` shows"
            f" the {counted(len(calls), 'API call')} that `dasklab up` would make."
        )
    return "\n".join(lines)


def _machine(guest: Mapping[str, Any] | None) -> Iterator[str]:
    """Yield VMID, node, status and lab link. A host without a machine of this lab has none of them."""
    guest = guest or {}
    yield from (str(guest.get(key, "-")) for key in ("vmid", "node", "status"))
    net = guest.get("nets", {}).get(net_key(LAB_SLOT))
    yield str(net_from_pve(net)) if net else ""


def _services(variables: Mapping[str, Any], guest: Mapping[str, Any] | None) -> Iterator[str]:
    """Yield the version of Dask, the state of the service, the counts of impairments and captures."""
    stdout = variables.get("status_host", {}).get("stdout")
    if not stdout:
        stopped = guest is not None and guest.get("status") == "stopped"
        yield from ("-" if stopped else "no answer", "-", "-")
        return
    state = json.loads(stdout)
    yield state["dask"] or "none"
    yield state.get(variables.get("dask_role"), "-")
    yield f"{state['impaired']}, {state['captures']}"


class FilterModule:
    """The filters by name, as Ansible asks for them."""

    def filters(self) -> dict[str, Callable[..., Any]]:
        return {"lab_status": lab_status}
