"""From what the machines answered to a trial's files: pure, so that it is tested without machines."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping
from typing import Any

from ansible.errors import AnsibleFilterError
from dasklab.errors import LabError
from dasklab.model.dask_settings import flatten
from dasklab.model.document import Document
from dasklab.model.files import (
    CaptureRecords,
    CaptureReport,
    Configured,
    Failed,
    HostFacts,
    Hosts,
    Measured,
    ObservedFaults,
    Records,
    Timings,
)
from dasklab.model.nic import LAB_SLOT, POLICED, net_key
from dasklab.model.strict import plain, validate

Answer = dict[str, Any]
NODE_CPU_FIELDS = ("user_s", "nice_s", "system_s", "idle_s", "iowait_s", "irq_s", "softirq_s", "steal_s")
NODE_COUNTERS = ("lab_ticks", "memory_stall_us", "disk_stall_us", "uptime_s")
MAC = re.compile(r"(?:[0-9A-Fa-f]{2}:){5}[0-9A-Fa-f]{2}")
TICKS_PER_S = 100  # of /proc/stat: the same on every Linux of today
ACCELERATORS = {"kvm": "kvm", "qemu": "tcg"}


def trial_found(names: list[str], hostvars: Mapping[str, Mapping[str, Any]]) -> dict[str, Answer]:
    """Return what the hosts said in a trial, as `trial_files` takes it, out of all their variables."""
    machines = (hostvars["localhost"].get("proxmox_vm_result") or {}).get("guests") or {}
    return {name: _found(hostvars[name], machines.get(name) or {}) for name in names}


def _found(said: Mapping[str, Any], machine: Mapping[str, Any]) -> Answer:
    return {
        "before": said["guest_described"]["answer"],
        "after": said["guest_shown"]["answer"],
        "link": said["netem_applied"]["answer"],
        "probes": said["probe_measured"],
        "fault": said.get("fault_ended", {}).get("answer"),
        "net": machine.get("nets", {}).get(net_key(LAB_SLOT), ""),
        "node": machine.get("node", ""),
    }


def lab_words(names: list[str], hostvars: Mapping[str, Mapping[str, Any]], directory: str) -> list[str]:
    """Return what a lab's own processes on its node name: guests' MACs, containers' namespaces, the trial."""
    guests = ((hostvars.get("localhost") or {}).get("proxmox_vm_result") or {}).get("guests") or {}
    nets = [str(guests.get(name, {}).get("nets", {}).get(net_key(LAB_SLOT), "")) for name in names]
    macs = [found.group() for net in nets if (found := MAC.search(net))]
    described = [(hostvars.get(name) or {}).get("guest_described") or {} for name in names]
    spaces = [(found.get("answer") or {}).get("pid_namespace") for found in described]
    return [*macs, *filter(None, spaces), *([directory] if directory else [])]


def trial_files(
    hosts: Mapping[str, Answer], directory: str, timings: Answer, node: list[list[str]], name: str
) -> list[dict[str, str]]:
    """Return the trial's files as path and content.

    ``hosts`` has, for each host, the programs' answers: ``before`` and ``after`` the runs, ``link``,
    ``probes``, and ``net``, the hypervisor's line for the lab link, and the ``node`` that the host is on.
    ``node`` has the lines that hypervisor ``name`` said before and after the runs; it is empty where there
    is none.

    Raises:
        AnsibleFilterError: an answer is not what this version of the lab knows.
    """
    hosts, said = plain(hosts), dict(plain(timings))
    recorded = _recorded(Records, said)
    try:
        documents = [
            configured(hosts, node),
            measured(hosts),
            machines(hosts, node, name),
            validate(Timings, said, "the workload's timings"),
            *recorded,
            *faults(hosts),
        ]
    except LabError as error:
        raise AnsibleFilterError(error.message) from None
    return [_file(directory, document) for document in documents]


def capture_file(stopped: Answer, timings: Answer, directory: str) -> list[dict[str, str]]:
    """Return capture.json as path and content: what the capture said when it was stopped, and its runs.

    And, as capture-records.json, what Dask recorded of these.
    """
    said = dict(plain(timings))
    recorded = _recorded(CaptureRecords, said)
    try:
        report = validate(CaptureReport, {**plain(stopped), "timings": said}, "the capture's report")
        return [_file(directory, document) for document in (report, *recorded)]
    except LabError as error:
        raise AnsibleFilterError(error.message) from None


def trial_failure(result: Answer, host: str, task: str, directory: str) -> list[dict[str, str]]:
    """Return failed.json: what failed where, and whether it failed or cannot be done there at all."""
    message = str(result.get("msg") or "no reason given")
    unsupported = message.startswith("unsupported: ")
    # ssh's own farewell, on a terminal, is no reason.
    words = f"{result.get('stdout') or ''}\n{result.get('stderr') or ''}".splitlines()
    said = [line for line in words if line.strip() and not line.startswith("Shared connection to ")]
    last = (said or message.removeprefix("unsupported: ").splitlines())[-1]
    failed = Failed(
        status="unsupported" if unsupported else "failed",
        host=host,
        task=task,
        reasons=(f"{host}: {task}: {last}",),
    )
    return [_file(directory, failed)]


def configured(hosts: Mapping[str, Answer], node: list[list[str]]) -> Configured:
    """Return what was read back of the links and the bridge."""
    document: Answer = {"hosts": {host: _link(each) for host, each in hosts.items()}}
    if node:
        bridge = json.loads(node[-1][0])[0]
        ageing_s = bridge["linkinfo"]["info_data"]["ageing_time"] / 100
        document["bridge"] = {"name": bridge["ifname"], "ageing_s": ageing_s}
        document["rate_method"] = _rate_method(" ".join(node[-1][2:]))
    return validate(Configured, document, "what was read back")


def measured(hosts: Mapping[str, Answer]) -> Measured:
    """Return what the probes measured; each sample says between which hosts, and before or after the runs."""
    document: Answer = {"rtt": [], "throughput": [], "errors": []}
    for each in hosts.values():
        for probe in each["probes"]:
            answers = {**probe["rtt"], **probe["throughput"]}
            for kind in document:
                document[kind] += [{**entry, "phase": probe["phase"]} for entry in answers[kind]]
    return validate(Measured, document, "what the probes measured")


def faults(hosts: Mapping[str, Answer]) -> list[ObservedFaults]:
    """Return what went wrong as asked, where anything was."""
    seen = {host: each["fault"] for host, each in hosts.items() if each.get("fault")}
    return [validate(ObservedFaults, {"hosts": seen}, "what the faults did")] if seen else []


def machines(hosts: Mapping[str, Answer], node: list[list[str]], name: str) -> Hosts:
    """Return what the machines are, and what the runs cost them."""
    virtual = next(iter(hosts.values()))["before"]["virtualization"]
    hypervisor: Answer = {"name": name or None, "accel": ACCELERATORS.get(virtual, virtual)}
    if node:
        before, after = (_node_cpu(look[1]) for look in (node[0], node[-1]))
        hypervisor["cpu"] = _minus(after, before)
        hypervisor |= _shared(hosts, *(_counters(look) for look in (node[0], node[-1])))
    document = {"hosts": {host: _machine(each) for host, each in hosts.items()}, "hypervisor": hypervisor}
    return validate(Hosts, document, "what the machines are")


def setting_names(settings: Answer) -> list[str]:
    """Return the names of Dask's settings in a nested mapping, as ``distributed.comm.compression``."""
    return [name for name, _ in flatten(settings)]


def _recorded(kind: type[Records], said: Answer) -> list[Records]:
    """Take what Dask recorded out of a workload's answer; it is a file of its own."""
    records = said.pop("inside", None)
    return [kind(records=records)] if records else []


def _file(directory: str, document: Document) -> dict[str, str]:
    return {"path": f"{directory}/{document.FILE}", "content": document.to_json()}


def _link(each: Answer) -> Answer:
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
        "node": each.get("node") or None,
    }


def _machine(each: Answer) -> Answer:
    before, after = each["before"], each["after"]
    counted = ("cpu", "tcp", "softnet_dropped")
    return {
        **{key: before[key] for key in HostFacts.model_fields if key in before and key not in counted},
        # An upper bound: the time that the question took to get there is in it.
        "clock_ahead_at_most_s": before["clock_offset_s"],
        "seconds": after["time"] - before["time"],
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
    return {key: int(value) / TICKS_PER_S for key, value in zip(NODE_CPU_FIELDS, ticks, strict=False)}


def _counters(look: list[str]) -> dict[str, float]:
    """The lines of a look at the node that are a name and a number."""
    pairs = [line.split() for line in look[2:]]
    return {pair[0]: float(pair[1]) for pair in pairs if len(pair) == 2 and pair[0] in NODE_COUNTERS}


def _is_counted(each: Answer) -> bool:
    """Can the node tell this guest's processes? Of a container whose program is an older one it cannot."""
    before = each["before"]
    return "pid_namespace" in before and (
        before["virtualization"] in ACCELERATORS or bool(before["pid_namespace"])
    )


def _shared(hosts: Mapping[str, Answer], before: dict[str, float], after: dict[str, float]) -> Answer:
    """What the lab itself took of its node meanwhile, and how long anything waited there.

    Of guests on several nodes it is not known: one node is looked at.
    """
    grown = {key: after[key] - before[key] for key in after if key in before}
    seen: Answer = {}
    if "lab_ticks" in grown and all(map(_is_counted, hosts.values())):
        on_one_node = len({each.get("node") for each in hosts.values()}) == 1
        seen["lab_cpu_s"] = round(max(grown["lab_ticks"], 0) / TICKS_PER_S, 2) if on_one_node else None
    if grown.get("uptime_s"):
        waits = {"memory": "memory_stall_us", "disk": "disk_stall_us"}
        seen["pressure_pct"] = {
            what: round(min(100.0, grown[key] / 1e4 / grown["uptime_s"]), 2)
            for what, key in waits.items()
            if key in grown
        }
    return seen


def _rate_method(words: str) -> str | None:
    """How the hypervisor caps what comes from a guest: it drops frames, or queues them on a second device."""
    if "police" in words:
        return POLICED
    return "shape-ifb" if "mirred" in words else None


class FilterModule:
    """Ansible's way to the functions above."""

    def filters(self) -> dict[str, Callable[..., Any]]:
        """Return the filters by name."""
        found = (lab_words, trial_found, trial_files, capture_file, trial_failure, setting_names)
        return {function.__name__: function for function in found}
