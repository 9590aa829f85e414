"""Whether TCP retransmitted more in the repeats than settings and probes explain: a loss from outside; pure.

Retransmissions come in bursts, whenever a connection fills a queue. So their number varies far more than a
binomial one, most of all on hosts that send little: all hosts are judged together, and what is usual is
generous.
"""

from __future__ import annotations

from collections.abc import Iterator

from dasklab.model.experiments.trial import RequestedTrial
from dasklab.model.files import HostFacts, Hosts, Measured
from dasklab.results.validity.binomial import exceeds

# Of five published runs, 61 trials have no setting that explains retransmissions. They retransmitted at
# most 0.29 %, apart from three with an emulated RTL8139, whose probes did so as well (1.1 to 1.5 %). If a
# worker of three loses 2 % of its segments, it is 0.7 %.
USUAL_SHARE = 0.004
PROBE_FACTOR = 2  # a probe has one connection; those of a repeat compete with each other
FULL_SEGMENT_BYTES = 1448


def warnings(trial: RequestedTrial, hosts: Hosts, measured: Measured, confidence: float) -> Iterator[str]:
    """Yield a line if the hosts retransmitted more than can be explained."""
    facts = hosts.hosts
    if not facts or not all(_is_counted(host) for host in facts.values()) or _settings_explain(trial):
        return
    again, sent = sum(map(_again, facts.values())), sum(map(_sent, facts.values()))
    probed = _probed_share(measured)
    if exceeds(again, sent, max(USUAL_SHARE, PROBE_FACTOR * probed), confidence):
        most = max(facts, key=lambda name: _again(facts[name]))
        own = f"{100 * _again(facts[most]) / _sent(facts[most]):.2f} %"
        yield (
            f"{100 * again / sent:.2f} % of the TCP segments in the repeats were retransmitted, most by"
            f" {most} ({own} of its own); neither the settings nor the probes ({100 * probed:.2f} %)"
            " explain that, so frames may have been lost outside of the lab"
        )


def _settings_explain(trial: RequestedTrial) -> bool:
    """Whether the trial requests what makes TCP retransmit: loss, reordering, full queues or faults."""
    links = trial.links.values()
    is_lossy = any(link.loss_pct or link.reorder_pct or link.jitter_ms or link.rate_mbit for link in links)
    return is_lossy or bool(trial.faults) or any(nic.rate_mbit for nic in trial.nics.values())


def _probed_share(measured: Measured) -> float:
    """Return the share of segments that the probes retransmitted."""
    probes = [probe for probe in measured.throughput if probe.retransmits is not None]
    segments = sum(probe.mbit * 1e6 / 8 * probe.seconds for probe in probes) / FULL_SEGMENT_BYTES
    return min(1.0, sum(probe.retransmits or 0 for probe in probes) / segments) if segments else 0.0


def _is_counted(facts: HostFacts) -> bool:
    return {"OutSegs", "RetransSegs"} <= set(facts.tcp)


def _again(facts: HostFacts) -> int:
    return int(facts.tcp["RetransSegs"])


def _sent(facts: HostFacts) -> int:
    """Return how many segments a host sent. The kernel's number lacks those that it sent again."""
    return int(facts.tcp["OutSegs"]) + _again(facts)
