"""From requested links to ``tc`` commands, and from what ``tc`` prints back to links. Pure: no kernel needed.

A link is a mapping with the amounts of ``impairments.py`` (0 = not impaired) and its scope:

    direction   egress | ingress | both                  default egress
    peer        the name of another host, None = all     default None
    policer     true: frames above the rate are dropped instead of queued

Each side of the device gets one queue discipline at its root, or a ``prio`` with one band per peer::

    egress                               ingress
    device root -> netem | tbf           device clsact -> ifb "dasklab-in" root -> netem | tbf
                -> prio -> band per peer             -> policers

Arriving frames can only be queued behind an ifb device, where the redirection sends them.
"""

from __future__ import annotations

import math
import re

from dasklab_guest.common import IFB, HostError, UnsupportedError
from dasklab_guest.impairments import (
    AMOUNTS,
    DIRECTIONS,
    IMPAIRMENTS,
    LINE_RATE_MBIT,
    QUEUES,
    SUPER_FRAME,
    bucket,
    drops_at_once,
    find_mistake,
    queued,
    read_back,
    tc_words,
)
from dasklab_guest.impairments import sides as sides_of

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence
    from typing import Any

    Link = dict[str, Any]
    Command = list[str]

HANDLE = "da5c:"  # marks a root qdisc as ours
QUEUE = 1000  # frames: length of a queue beyond what the delay holds, as on a plain interface
BANDS = 16  # of the kernel's prio qdisc: band 1 for the rest, one for each peer
SCOPE: Link = {"direction": "egress", "peer": None, "policer": False}
FIELDS = {"egress": "dst", "ingress": "src"}  # where the peer's address is in a frame of that direction
OFFSETS = {"dst": 16, "src": 12}  # ... and at which byte of its IPv4 header
BIT_RATES = {"": 1.0, "K": 1e3, "M": 1e6, "G": 1e9, "T": 1e12}


# --- what is requested --------------------------------------------------------------------------------------


def complete_links(links: Sequence[Link], hosts: Mapping[str, str]) -> list[Link]:
    """Return the requested links with all keys present, without those that change nothing.

    Args:
        links: amounts and scopes; missing keys have their defaults.
        hosts: name and lab address of every host.

    Raises:
        HostError: a link is not allowed, or two are for the same direction and peer.
    """
    full = [link for link in (complete(link, hosts) for link in links) if any(link[key] for key in AMOUNTS)]
    scopes = [(side, link["peer"]) for link in full for side in sides(link)]
    if len(set(scopes)) < len(scopes):
        raise HostError("two links have the same direction and peer")
    return full


def complete(link: Link, hosts: Mapping[str, str]) -> Link:
    """Return one link with all keys.

    Raises:
        HostError: a key, a host, an amount or a combination is not allowed.
    """
    full: Link = {**dict.fromkeys(AMOUNTS, 0), **SCOPE}
    unknown = sorted(set(link) - set(full))
    if unknown:
        raise HostError(f"unknown key {', '.join(unknown)}; allowed: {', '.join(full)}")
    full.update({key: value for key, value in link.items() if value is not None})
    if full["peer"] is not None and full["peer"] not in hosts:
        raise HostError(f"no peer {full['peer']!r}; there are: {', '.join(sorted(hosts))}")
    if full["direction"] not in DIRECTIONS:
        raise HostError(f"direction is one of {', '.join(DIRECTIONS)}, not {full['direction']!r}")
    for impairment in IMPAIRMENTS:
        value, most = full[impairment.key], impairment.unit.most
        if value < 0 or (most is not None and value > most):
            allowed = "not negative" if most is None else f"from 0 to {most:g}"
            raise HostError(f"{impairment.key} must be {allowed}, not {value}")
    if problem := find_mistake(full):
        raise HostError(problem)
    return full


def sides(link: Link) -> tuple[str, ...]:
    """Return the directions of a link."""
    return sides_of(link["direction"])


# --- from links to commands ---------------------------------------------------------------------------------


def plan(
    links: Sequence[Link], device: str, mtu: int, hosts: Mapping[str, str], polices: bool = True
) -> list[Command]:
    """Return the commands that impair ``device``, in their order.

    Args:
        links: complete links.
        device: the interface of the link under test.
        mtu: its MTU in bytes.
        hosts: name and lab address of every host.
        polices: whether the kernel has policers. Without them a policer is a token bucket whose queue holds
            one super-frame: a frame that finds it full is dropped.
    """
    on = {side: [link for link in links if side in sides(link)] for side in FIELDS}
    queues = {side: [link for link in on[side] if needs_queue(link, polices)] for side in FIELDS}
    commands = list(queue(device, queues["egress"], mtu, hosts, "egress"))
    if queues["ingress"] or (polices and any(link["policer"] for link in links)):
        commands.append(["tc", "qdisc", "add", "dev", device, "clsact"])
    if polices:
        for side in FIELDS:
            commands += police(device, on[side], hosts, side)
    if queues["ingress"]:
        commands += [*redirect(device), *queue(IFB, queues["ingress"], mtu, hosts, "ingress")]
    return commands


def needs_queue(link: Link, polices: bool) -> bool:
    """Return whether a link needs a queue: because frames wait or get lost, or instead of a policer.

    Raises:
        UnsupportedError: the link both delays and polices, and the kernel has no policers.
    """
    waits = any(queued(link).values())
    drops = bool(link["policer"] and link["rate_mbit"]) and not polices
    if waits and drops:
        raise UnsupportedError("no queue both delays and polices, and this kernel has no act_police")
    return waits or drops


def queue(
    device: str, links: Sequence[Link], mtu: int, hosts: Mapping[str, str], side: str
) -> Iterator[Command]:
    """Yield the commands for queues on ``device``: at its root, or in one band per peer."""
    places = places_of(links)
    if any(parent != "root" for parent in places):
        bands = ["bands", str(max(2, len(places) + 1)), "priomap", *["0"] * 16]
        yield ["tc", "qdisc", "add", "dev", device, "root", "handle", HANDLE, "prio", *bands]
    for parent, link in places.items():
        place = ["root", "handle", HANDLE] if parent == "root" else ["parent", parent]
        if any(queued(link).values()):
            discipline = tc_words(queued(link), limit(link, mtu), mtu)
        else:
            discipline = ["tbf", *bucket(link["rate_mbit"]), "limit", str(SUPER_FRAME)]
        yield ["tc", "qdisc", "add", "dev", device, *place, *discipline]
        if link["peer"] is not None:
            match = [*selector(link, hosts, side), "flowid", parent]
            yield ["tc", "filter", "add", "dev", device, "parent", HANDLE, "prio", "1", *match]


def places_of(links: Sequence[Link]) -> dict[str, Link]:
    """Return the place of each link's queue: the root if it applies to all frames, else a band.

    Band 1 is for the frames of no listed peer.

    Raises:
        HostError: there are more peers than bands.
    """
    if all(link["peer"] is None for link in links):
        return {"root": links[0]} if links else {}
    ordered = sorted(links, key=lambda link: link["peer"] is not None)
    first = 1 if ordered[0]["peer"] is None else 2
    if first + len(ordered) - 1 > BANDS:
        raise HostError(f"at most {BANDS - 1} peers can be impaired separately")
    return {f"{HANDLE}{band:x}": link for band, link in enumerate(ordered, start=first)}


def limit(link: Link, mtu: int) -> int:
    """Return the frames that a queue must hold: twice the bandwidth-delay product, and a plain queue."""
    delay_s = (link["delay_ms"] + link["jitter_ms"]) / 1000
    product_bytes: float = (link["rate_mbit"] or LINE_RATE_MBIT) * 1e6 / 8 * delay_s
    return QUEUE + math.ceil(2 * product_bytes / mtu)


def police(device: str, links: Sequence[Link], hosts: Mapping[str, str], side: str) -> Iterator[Command]:
    """Yield the commands for policers: a frame above the rate is dropped, any other passes."""
    for order, link in enumerate([link for link in links if link["policer"] and link["rate_mbit"]], start=1):
        place = ["tc", "filter", "add", "dev", device, side, "prio", str(order)]
        limits = [*bucket(link["rate_mbit"]), "mtu", "65536b"]
        action = ["action", "police", *limits, "conform-exceed", "drop/continue"]
        yield [*place, *selector(link, hosts, side), *action]


def redirect(device: str) -> list[Command]:
    """Return the commands that send arriving frames through a device that can have a queue."""
    everything = ["prio", "100", "protocol", "all", "u32", "match", "u32", "0", "0"]
    action = ["action", "mirred", "egress", "redirect", "dev", IFB]
    return [
        ["ip", "link", "add", IFB, "type", "ifb"],
        ["ip", "link", "set", "dev", IFB, "up"],
        ["tc", "filter", "add", "dev", device, "ingress", *everything, *action],
    ]


def selector(link: Link, hosts: Mapping[str, str], side: str) -> list[str]:
    """Return the u32 match for a link's peer, or for every frame."""
    if link["peer"] is None:
        return ["protocol", "all", "u32", "match", "u32", "0", "0"]
    return ["protocol", "ip", "u32", "match", "ip", FIELDS[side], f"{hosts[link['peer']]}/32"]


# --- from what tc prints to links ---------------------------------------------------------------------------


def configured_queues(
    qdiscs: Sequence[Mapping[str, Any]], filters: str, hosts: Mapping[str, str], side: str
) -> list[Link]:
    """Return what each queue of a device does, as a link with its counters.

    Args:
        qdiscs: the output of ``tc -s -j qdisc show``.
        filters: the output of ``tc filter show`` for the root.
        hosts: name and lab address of every host.
        side: the direction that the device's frames have.
    """
    peers = {
        match[1]: peer
        for text, peer in matches(filters, hosts, side)
        if (match := re.search(r"flowid (\w+:\w+)", text))
    }
    return [
        {
            "direction": side,
            "peer": peers.get(qdisc.get("parent", "root")),
            "by": qdisc["kind"],
            "policer": drops_at_once(qdisc["kind"], qdisc["options"]),
            **read_back(qdisc["kind"], qdisc["options"]),
            **{key: qdisc[key] for key in ("packets", "bytes", "drops")},
        }
        for qdisc in qdiscs
        if qdisc["kind"] in QUEUES
    ]


def configured_policers(filters: str, hosts: Mapping[str, str], side: str) -> list[Link]:
    """Return what each policer of a hook does. ``tc`` prints its rate as text only, and each rule twice."""
    policers: list[Link] = []
    for text, peer in matches(filters, hosts, side):
        rate = re.search(r"police \S+ rate ([\d.]+)([KMGT]?)bit ", text)
        if rate:
            rate_mbit = float(rate[1]) * BIT_RATES[rate[2]] / 1e6
            scope = {"direction": side, "peer": peer, "by": "police", "policer": True}
            link = {**scope, **dict.fromkeys(AMOUNTS, 0), "rate_mbit": rate_mbit}
            policers += [link] if link not in policers else []
    return policers


def matches(filters: str, hosts: Mapping[str, str], side: str) -> Iterator[tuple[str, str | None]]:
    """Yield each filter's text and the peer whose frames it selects; None means all frames."""
    names = {f"{number(address):08x}": name for name, address in hosts.items()}
    for text in re.split(r"^filter ", filters, flags=re.MULTILINE):
        match = re.search(r"match ([0-9a-f]{8})/([0-9a-f]{8}) at (\d+)", text)
        if match is None:
            continue
        if match[2] == "0" * 8:
            yield text, None
        else:
            is_peer = match[2] == "f" * 8 and int(match[3]) == OFFSETS[FIELDS[side]]
            yield text, names.get(match[1], match[1]) if is_peer else match[0].removeprefix("match ")


def number(address: str) -> int:
    """Return an IPv4 address as a number."""
    return int.from_bytes(bytes(map(int, address.split("."))), "big")
