"""What the requested impairments and caps do to a frame, or a round trip, between two hosts; pure."""

from __future__ import annotations

from math import prod

from dasklab.model.experiments.trial import RequestedTrial
from dasklab.model.settings.impairments import sides
from dasklab.model.settings.link import Link


def added_delay_ms(trial: RequestedTrial, src: str, dst: str) -> float:
    """Return the delay that the impairments add to the RTT between two hosts."""
    return sum(link.delay_ms for link in round_trip(trial, src, dst))


def lost_share(trial: RequestedTrial, src: str, dst: str) -> float:
    """Return the share of round trips that the impairments lose."""
    return 1 - prod(1 - link.loss_pct / 100 for link in round_trip(trial, src, dst))


def cap_mbit(trial: RequestedTrial, src: str, dst: str) -> float:
    """Return the lowest rate on the way from ``src`` to ``dst``; 0 if there is no cap."""
    caps = [trial.nics[host].rate_mbit for host in (src, dst) if host in trial.nics]
    caps += [link.rate_mbit for link in one_way(trial, src, dst)]
    return min((cap for cap in caps if cap), default=0)


def round_trip(trial: RequestedTrial, src: str, dst: str) -> list[Link]:
    """Return the impairments that a round trip passes, each as often as it does."""
    ends = ((src, dst), (dst, src))
    links = [(trial.links[host], peer) for host, peer in ends if host in trial.links]
    return [link for link, peer in links if link.peer in (None, peer) for _ in sides(link.direction)]


def one_way(trial: RequestedTrial, src: str, dst: str) -> list[Link]:
    """Return the impairments that a frame from ``src`` to ``dst`` passes."""
    ends = ((src, dst, "egress"), (dst, src, "ingress"))
    links = [(trial.links[host], peer, side) for host, peer, side in ends if host in trial.links]
    return [link for link, peer, side in links if side in sides(link.direction) and link.peer in (None, peer)]
