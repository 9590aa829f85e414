"""From what the hosts answered to the files of a trial. Reading and writing aside, pure.

The playbook leaves in the trial's folder:

    collected/HOST/answers.json    the guest program's answers: phase -> step -> answer
    collected/HOST/*               other files: timings, captures, profiles
    collected/HOST/record/         what the client recorded of the cluster
    collected/node.json            what the node printed each time it was queried, as lists of lines
    collected/guests.json          what the hypervisor has of each guest
    collected/failed-HOST.json     Ansible's result of a task that failed
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from dasklab.errors import LabError
from dasklab.model.files import (
    CAPTURE_RECORD_FOLDER,
    RECORD_FOLDER,
    CaptureReport,
    Configured,
    Failed,
    HostFacts,
    Hosts,
    Measured,
    ObservedFaults,
    Timings,
)
from dasklab.model.forms.document import Document
from dasklab.model.forms.strict import validate
from dasklab.model.settings.nic import LAB_SLOT, POLICED, net_key
from dasklab.results.run import Trial

FOLDER = "collected"
WHEN = ("before", "after")
NODE_CPU_FIELDS = ("user_s", "nice_s", "system_s", "idle_s", "iowait_s", "irq_s", "softirq_s", "steal_s")
NODE_COUNTERS = ("lab_ticks", "memory_stall_us", "disk_stall_us", "uptime_s")
STAT_TICKS_PER_S = 100  # /proc/stat has as many on every Linux
ACCELERATORS = {"kvm": "kvm", "qemu": "tcg"}
HOST_COUNTERS = ("cpu", "tcp", "softnet_dropped")  # stored as the difference between before and after
UNSUPPORTED = "unsupported: "  # begins the message of a host that cannot do something

Answers = Mapping[str, Mapping[str, Any]]  # phase -> step -> answer
Guests = Mapping[str, Mapping[str, Any]]  # host -> node, nets
NodeState = list[str]  # the lines that the node printed


def collect(directory: Path, node_name: str) -> None:
    """Write the files of a finished trial, and remove what they were made from.

    Args:
        directory: the trial's folder.
        node_name: the name of the hypervisor, "" without one.

    Raises:
        LabError: an answer is missing, or is not what this version of the lab expects.
    """
    folder = directory / FOLDER
    answers: dict[str, Answers] = {
        path.parent.name: json.loads(path.read_text(encoding="utf-8"))
        for path in sorted(folder.glob("*/answers.json"))
    }
    guests = _read(folder / "guests.json", {})
    states = _read(folder / "node.json", [])
    client = next((path.parent for path in folder.glob("*/timings.json")), None)
    if client is None:
        raise LabError(f"{directory}: the client left no timings.json", "dasklab run RUN --again")
    documents = [
        configured(answers, guests, states),
        measured(answers),
        hosts(answers, guests, states, node_name),
        *faults(answers),
        validate(Timings, _read(client / "timings.json", {}), "the workload's timings"),
        *capture(answers[client.name], _read(client / "capture-timings.json", None)),
    ]
    for document in documents:
        Trial(directory).write(document)
    for name, path in results(folder):
        path.replace(directory / name)
    for record in (RECORD_FOLDER, CAPTURE_RECORD_FOLDER):
        if (client / record).is_dir():
            (client / record).rename(directory / record)
    shutil.rmtree(folder)


def results(folder: Path) -> Iterator[tuple[str, Path]]:
    """Yield the files that a trial keeps as they are, with their names in the trial's folder."""
    for path in sorted([*folder.glob("*/*.pcap"), *folder.glob("*/*.html")]):
        yield path.name, path
    for path in sorted(folder.glob("*/profile*.json")):
        if path.name != "profile-timings.json":
            yield path.name.replace("profile", f"profile-{path.parent.name}", 1), path


def failure(directory: Path) -> Failed | None:
    """Return what made a trial fail, and whether a host cannot do it at all; None if Ansible left nothing.

    Of several hosts the one that cannot do something comes first, else the first by name.
    """
    failures = [
        _failure(path.stem.removeprefix("failed-"), json.loads(path.read_text(encoding="utf-8")))
        for path in sorted((directory / FOLDER).glob("failed-*.json"))
    ]
    return min(failures, key=lambda failed: failed.status != "unsupported", default=None)


def _failure(host: str, report: Mapping[str, Any]) -> Failed:
    """Return the failure of one host. ``report`` has Ansible's ``task`` and ``result``."""
    result, task = report["result"], str(report["task"])
    output = f"{result.get('stdout') or ''}\n{result.get('stderr') or ''}"
    # ssh's own farewell on a terminal is no reason
    lines = [
        line for line in output.splitlines() if line.strip() and not line.startswith("Shared connection to ")
    ]
    message = (lines or str(result.get("msg") or "no reason given").splitlines())[-1]
    return Failed(
        status="unsupported" if message.startswith(UNSUPPORTED) else "failed",
        host=host,
        task=task,
        reasons=(f"{host}: {task}: {message.removeprefix(UNSUPPORTED).removeprefix('dasklab-guest: ')}",),
    )


def configured(answers: Mapping[str, Answers], guests: Guests, states: Sequence[NodeState]) -> Configured:
    """Return the settings of links and bridge that were read back."""
    document: dict[str, Any] = {
        "hosts": {name: _link(answer, guests.get(name, {})) for name, answer in answers.items()}
    }
    if states:
        bridge = json.loads(states[-1][0])[0]
        ageing_s = bridge["linkinfo"]["info_data"]["ageing_time"] / 100
        document["bridge"] = {"name": bridge["ifname"], "ageing_s": ageing_s}
        document["rate_method"] = _rate_method(" ".join(states[-1][2:]))
    return validate(Configured, document, "the settings that were read back")


def _link(answers: Answers, guest: Mapping[str, Any]) -> dict[str, Any]:
    before, after = _descriptions(answers)
    link = before["lab"]
    return {
        "interface": link["name"],
        **{key: link[key] for key in ("driver", "mtu", "offloads")},
        "congestion_control": before["congestion_control"],
        "qdisc_before": before["qdiscs"],
        "qdisc_after": after["qdiscs"],
        "link": answers["prepare"]["link.apply"]["configured"],
        "net": guest.get("nets", {}).get(net_key(LAB_SLOT)),
        "node": guest.get("node"),
    }


def _descriptions(answers: Answers) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return what a host said of itself before and after the repeats."""
    return answers["start"]["host.describe"], answers["stop"]["host.counters"]


def measured(answers: Mapping[str, Answers]) -> Measured:
    """Return the results of all probes."""
    document: dict[str, Any] = {"rtt": [], "throughput": [], "errors": []}
    for answer in answers.values():
        for when in WHEN:
            probes = {
                **answer.get(f"probe-rtt-{when}", {}).get("probe.rtt", {}),
                **answer.get(f"probe-throughput-{when}", {}).get("probe.throughput", {}),
            }
            for kind, entries in document.items():
                entries += [{**entry, "phase": when} for entry in probes.get(kind, [])]
    return validate(Measured, document, "the results of the probes")


def hosts(
    answers: Mapping[str, Answers], guests: Guests, states: Sequence[NodeState], node_name: str
) -> Hosts:
    """Return what guests and hypervisor are, and what their kernels counted during the repeats."""
    virtualization = _descriptions(next(iter(answers.values())))[0]["virtualization"]
    hypervisor: dict[str, Any] = {
        "name": node_name or None,
        "accel": ACCELERATORS.get(virtualization, virtualization),
    }
    if states:
        before, after = states[0], states[-1]
        hypervisor["cpu"] = _minus(_node_cpu(after), _node_cpu(before))
        hypervisor |= _node_shares(answers, guests, _counters(before), _counters(after))
    facts = {name: _facts(answer) for name, answer in answers.items()}
    return validate(Hosts, {"hosts": facts, "hypervisor": hypervisor}, "what the hosts said of themselves")


def _facts(answers: Answers) -> dict[str, Any]:
    before, after = _descriptions(answers)
    return {
        **{key: before[key] for key in HostFacts.model_fields if key in before and key not in HOST_COUNTERS},
        "clock_ahead_at_most_s": before["clock_offset_s"],
        "seconds": after["time"] - before["time"],
        "lab_statistics": _minus(after["lab"]["statistics"], before["lab"]["statistics"]),
        **{key: _minus(after[key], before[key]) for key in HOST_COUNTERS},
    }


def _minus(after: Any, before: Any) -> Any:
    """Subtract numbers, or the numbers of two mappings key by key."""
    if isinstance(after, dict):
        return {key: _minus(value, before[key]) for key, value in after.items()}
    return round(after - before, 2)


def _node_cpu(state: NodeState) -> dict[str, float]:
    ticks = state[1].split()[1:]
    return {key: int(value) / STAT_TICKS_PER_S for key, value in zip(NODE_CPU_FIELDS, ticks, strict=False)}


def _counters(state: NodeState) -> dict[str, float]:
    """Return the lines of a node's state that are a name and a number."""
    pairs = [line.split() for line in state[2:]]
    return {pair[0]: float(pair[1]) for pair in pairs if len(pair) == 2 and pair[0] in NODE_COUNTERS}


def _node_shares(
    answers: Mapping[str, Answers], guests: Guests, before: Mapping[str, float], after: Mapping[str, float]
) -> dict[str, Any]:
    """Return what the lab itself used of its node, and how long anything waited there.

    The first is unknown for guests on several nodes, because one node is queried, and where the node cannot
    tell a guest's processes.
    """
    growth = {key: after[key] - before[key] for key in after if key in before}
    shares: dict[str, Any] = {}
    if "lab_ticks" in growth and all(map(_has_known_processes, answers.values())):
        is_one_node = len({guests.get(name, {}).get("node") for name in answers}) == 1
        shares["lab_cpu_s"] = (
            round(max(growth["lab_ticks"], 0) / STAT_TICKS_PER_S, 2) if is_one_node else None
        )
    if growth.get("uptime_s"):
        counters = {"memory": "memory_stall_us", "disk": "disk_stall_us"}
        shares["pressure_pct"] = {
            what: round(min(100.0, growth[key] / 1e4 / growth["uptime_s"]), 2)
            for what, key in counters.items()
            if key in growth
        }
    return shares


def _has_known_processes(answers: Answers) -> bool:
    before = _descriptions(answers)[0]
    return before["virtualization"] in ACCELERATORS or bool(before["pid_namespace"])


def _rate_method(words: str) -> str | None:
    """Return how the hypervisor caps what a guest sends: it drops frames, or queues them on an ifb device."""
    if "police" in words:
        return POLICED
    return "shape-ifb" if "mirred" in words else None


def faults(answers: Mapping[str, Answers]) -> list[ObservedFaults]:
    """Return what happened to the hosts with faults, if the trial requested any."""
    effects = {
        name: effect
        for name, answer in answers.items()
        if (effect := answer.get("stop", {}).get("fault.end"))
    }
    return [validate(ObservedFaults, {"hosts": effects}, "the effects of the faults")] if effects else []


def capture(client: Answers, document: dict[str, Any] | None) -> list[Document]:
    """Return the report of the capture with its repeats, if there was a capture."""
    if document is None:
        return []
    report = {**client["capture-stop"]["capture.stop"], "timings": document}
    return [validate(CaptureReport, report, "the report of the capture")]


def _read(path: Path, missing: Any) -> Any:
    return json.loads(path.read_text(encoding="utf-8")) if path.exists() else missing
