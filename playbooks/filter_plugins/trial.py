"""From what the machines answered to a trial's files: pure, so that it is tested without machines."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

Document = dict[str, Any]
SCHEMA = 1
CPU_FIELDS = ("user_s", "nice_s", "system_s", "idle_s", "iowait_s", "irq_s", "softirq_s", "steal_s")
TICKS_PER_S = 100  # of /proc/stat: the same on every Linux of today
ACCELERATORS = {"kvm": "kvm", "qemu": "tcg"}
COUNTERS = (
    "time",
    "cpu",
    "tcp",
    "softnet_dropped",
    "lab",
    "capture",
    "qdiscs",
    "schema",
    "name",
    "clock_offset_s",
)


def trial_files(
    hosts: Document, directory: str, timings: Document, node: list[list[str]], name: str
) -> list[Document]:
    """Return the trial's files as path and content.

    ``hosts`` has, for each host, the programs' answers: ``before`` and ``after`` the runs, ``link``,
    ``probes``, and ``net``, the hypervisor's line for the lab link. ``node`` has the lines that hypervisor
    ``name`` said before and after the runs; it is empty where there is none.
    """
    documents = {
        "configured.json": configured(hosts, node),
        "delivered.json": delivered(hosts),
        "hosts.json": machines(hosts, node, name),
        "timings.json": timings,
    }
    return [
        {"path": f"{directory}/{file}", "content": json.dumps(document, indent=1) + "\n"}
        for file, document in documents.items()
    ]


def configured(hosts: Document, node: list[list[str]]) -> Document:
    """Return what was read back of the links and the bridge."""
    document: Document = {"schema": SCHEMA, "hosts": {host: _link(each) for host, each in hosts.items()}}
    if node:
        bridge = json.loads(node[-1][0])[0]
        ageing_s = bridge["linkinfo"]["info_data"]["ageing_time"] / 100
        document["bridge"] = {"name": bridge["ifname"], "ageing_s": ageing_s}
        document["rate_method"] = _rate_method(" ".join(node[-1][2:]))
    return document


def delivered(hosts: Document) -> Document:
    """Return what the probes measured; each sample says between which hosts, and before or after the runs."""
    document: Document = {"schema": SCHEMA, "rtt": [], "throughput": [], "errors": []}
    for each in hosts.values():
        for probe in each["probes"]:
            answers = {**probe["rtt"], **probe["throughput"]}
            for kind in ("rtt", "throughput", "errors"):
                document[kind] += [{**entry, "phase": probe["phase"]} for entry in answers[kind]]
    return document


def machines(hosts: Document, node: list[list[str]], name: str) -> Document:
    """Return what the machines are, and what the runs cost them."""
    document: Document = {"schema": SCHEMA, "hosts": {host: _machine(each) for host, each in hosts.items()}}
    virtual = next(iter(hosts.values()))["before"]["virtualization"]
    document["hypervisor"] = {"name": name or None, "accel": ACCELERATORS.get(virtual, virtual)}
    if node:
        before, after = (_node_cpu(look[1]) for look in (node[0], node[-1]))
        document["hypervisor"]["cpu"] = _minus(after, before)
    return document


def trial_failure(result: Document, host: str, task: str) -> Document:
    """Return failed.json: what failed where, and whether it failed or cannot be done there at all."""
    message = str(result.get("msg") or "no reason given")
    unsupported = message.startswith("unsupported: ")
    # ssh's own farewell, on a terminal, is no reason.
    words = f"{result.get('stdout') or ''}\n{result.get('stderr') or ''}".splitlines()
    said = [line for line in words if line.strip() and not line.startswith("Shared connection to ")]
    last = (said or message.removeprefix("unsupported: ").splitlines())[-1]
    status = "unsupported" if unsupported else "failed"
    return {
        "schema": SCHEMA,
        "status": status,
        "host": host,
        "task": task,
        "reasons": [f"{host}: {task}: {last}"],
    }


def _link(each: Document) -> Document:
    before, after = each["before"], each["after"]
    lab = before["lab"]
    return {
        "interface": lab["name"],
        **{key: lab[key] for key in ("driver", "mtu", "offloads")},
        "congestion_control": before["congestion_control"],
        "qdisc_before": before["qdiscs"],
        "qdisc_after": after["qdiscs"],
        "link": each["link"]["configured"],
        "net": each["net"] or None,
    }


def _machine(each: Document) -> Document:
    before, after = each["before"], each["after"]
    counted = ("tcp", "softnet_dropped")
    return {
        **{key: value for key, value in before.items() if key not in COUNTERS},
        # An upper bound: the time that the question took to get there is in it.
        "clock_ahead_at_most_s": before["clock_offset_s"],
        "seconds": after["time"] - before["time"],
        "cpu": _minus(after["cpu"], before["cpu"]),
        "lab_statistics": _minus(after["lab"]["statistics"], before["lab"]["statistics"]),
        **{key: _minus(after[key], before[key]) for key in counted},
    }


def _minus(after: Any, before: Any) -> Any:
    """Subtract numbers, or the numbers of two mappings key by key."""
    if isinstance(after, dict):
        return {key: _minus(value, before[key]) for key, value in after.items()}
    return round(after - before, 2)


def _node_cpu(line: str) -> dict[str, float]:
    ticks = line.split()[1:]
    return {key: int(value) / TICKS_PER_S for key, value in zip(CPU_FIELDS, ticks, strict=False)}


def _rate_method(words: str) -> str | None:
    """How the hypervisor caps what comes from a guest: it drops frames, or queues them on a second device."""
    if "police" in words:
        return "police"
    return "shape-ifb" if "mirred" in words else None


class FilterModule:
    """Ansible's way to the functions above."""

    def filters(self) -> dict[str, Callable[..., Any]]:
        """Return the filters by name."""
        return {"trial_files": trial_files, "trial_failure": trial_failure}
