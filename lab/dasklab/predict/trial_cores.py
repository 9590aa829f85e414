"""How many cores a trial's machines had, from what their kernels and their node counted."""

from __future__ import annotations

from statistics import median

from dasklab.model.files import Configured, Counters, Hosts

NOT_WORKING = ("idle_s", "iowait_s", "steal_s")  # fields of a kernel's CPU time
SCARCE = 0.95  # machines that were granted less of the CPU time they counted had to wait for cores


def granted(hosts: Hosts) -> float:
    """Return the share of the CPU time that machines count which the cores of their node really gave them.

    An emulated machine does not notice when it stands still for other machines, and counts that as its own
    work: on two cores, five machines count up to five seconds each second. Containers are counted by the
    node's kernel.
    """
    node_cpu = hosts.hypervisor.cpu
    if not node_cpu or _kinds(hosts) & {"lxc"}:
        return 1.0
    counted_s = sum(_worked_s(host.cpu) for host in hosts.hosts.values())
    return min(1.0, _worked_s(node_cpu) / counted_s) if counted_s else 1.0


def _worked_s(cpu: Counters) -> float:
    return sum(seconds for field, seconds in cpu.items() if field not in NOT_WORKING)


def _kinds(hosts: Hosts) -> set[str]:
    return {host.virtualization for host in hosts.hosts.values()}


def shared_cores(hosts: Hosts, configured: Configured, granted: float) -> int | None:
    """Return the cores of the node if all machines shared them, else None.

    They did if all are on one node, and are containers (whose processes its kernel schedules) or machines
    that had to wait for cores.
    """
    node_cpu = hosts.hypervisor.cpu
    nodes = {host.node for host in configured.hosts.values()}
    if not node_cpu or len(nodes) != 1 or not (_kinds(hosts) == {"lxc"} or granted < SCARCE):
        return None
    seconds = median(host.seconds for host in hosts.hosts.values())
    return max(1, round(sum(node_cpu.values()) / seconds))
