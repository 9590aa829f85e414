"""What `dasklab status` shows: a row per host, as a table or as data."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from dasklab.model.settings.nic import LAB_SLOT, net_from_pve, net_key
from dasklab.terminal import counted

HEADINGS = ("machine", "VMID", "node", "status", "lab link", "Dask", "service", "active")


def lab_status(names: Sequence[str], hostvars: Mapping[str, Any]) -> str:
    """Return a table with a row per host: its machine on the endpoint, and what ``status_host`` holds."""
    rows = lab_status_rows(names, hostvars)
    lines = _aligned([HEADINGS, *map(_cells, rows)])
    lines += [
        f"{row['host']}: {'; '.join(row['differences'])}. To correct it: dasklab tc {row['host']} reset"
        for row in rows
        if row["differences"]
    ]
    if calls := _answer(hostvars).get("calls"):
        lines.append(
            "The machines differ from the inventory; `dasklab plan` shows"
            f" the {counted(len(calls), 'API call')} that `dasklab up` would make."
        )
    return "\n".join(lines)


def lab_status_rows(names: Sequence[str], hostvars: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Return a row per host, as ``dasklab.commands.status.StatusRow`` describes it."""
    guests = _answer(hostvars).get("guests") or {}
    return [{"host": name, **_machine(guests.get(name) or {}), **_services(hostvars[name])} for name in names]


def _answer(hostvars: Mapping[str, Any]) -> Mapping[str, Any]:
    return hostvars["localhost"].get("proxmox_vm_result") or {}


def _machine(guest: Mapping[str, Any]) -> dict[str, Any]:
    """Return what the endpoint has. A host without a machine of this lab has none of it."""
    net = guest.get("nets", {}).get(net_key(LAB_SLOT))
    return {
        **{key: guest.get(key) for key in ("vmid", "node", "status")},
        "link": str(net_from_pve(net)) if net else None,
    }


def _services(variables: Mapping[str, Any]) -> dict[str, Any]:
    """Return the version of Dask, the state of the service, the counts of impairments and captures."""
    stdout = variables.get("status_host", {}).get("stdout")
    state = json.loads(stdout) if stdout else {}
    link = state.get("link")
    return {
        "answers": bool(stdout),
        "dask": state.get("dask") or None,
        "service": state.get(variables.get("dask_role")),
        "impaired": len(link["configured"]) if link else None,
        "differences": link["differences"] if link else None,
        "captures": state.get("captures"),
    }


def _cells(row: Mapping[str, Any]) -> tuple[str, ...]:
    machine = [str(row[key] or "-") for key in ("vmid", "node", "status")]
    if row["answers"]:
        active = ((row["impaired"], "impairment"), (row["captures"], "capture"))
        doing = ", ".join(counted(number, noun) for number, noun in active if number)
        services = [row["dask"] or "none", row["service"] or "-", doing or "-"]
    else:
        services = ["-" if row["status"] == "stopped" else "no answer", "-", "-"]
    return (row["host"], *machine, row["link"] or "-", *services)


def _aligned(rows: Sequence[Sequence[str]]) -> list[str]:
    """Return the rows as lines with columns as wide as their longest cell, two spaces apart."""
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return ["  ".join(map(str.ljust, row, widths)).rstrip() for row in rows]


class FilterModule:
    """The filters by name, as Ansible asks for them."""

    def filters(self) -> dict[str, Callable[..., Any]]:
        return {"lab_status": lab_status, "lab_status_rows": lab_status_rows}
