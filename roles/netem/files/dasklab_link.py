#!/usr/bin/python3 -SsE
"""Impair this host's lab link, say what the kernel made of it, and clear it again.

    dasklab_link.py apply '{"delay_ms": 50, "loss_pct": 1}' --ttl 600
    dasklab_link.py clear
    dasklab_link.py show

The argument of ``apply`` is one link or a list of them: the amounts of ``dasklab_impairments.py`` (0 = not
impaired), and

    direction   egress | ingress | both                  default egress
    peer        another lab host's name, null = all      default null
    policer     true: frames above the rate are dropped at once instead of queued

``apply`` replaces what was there; an empty link or list clears. A timer of this host's own systemd clears the
link after ``--ttl`` seconds, whatever became of the one who asked. Only the lab link is ever touched; root
qdiscs that this command did not make are refused, not replaced. Exit status: 0 done, 1 failed (and cleared),
3 this kernel cannot do it: then the answer's ``unsupported`` says what.
"""

from __future__ import annotations

import json
import math
import re
import subprocess
import sys
import time
from pathlib import Path

from dasklab_common import IFB, HostError, UnsupportedError, addresses, config, lab_link, main, run, run_json
from dasklab_impairments import (
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
from dasklab_impairments import sides as sides_of

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence
    from typing import Any

    Link = dict[str, Any]
    Command = list[str]

STATE = Path("/run/dasklab/link.json")
TIMER = "dasklab-link-expire"
HANDLE = "da5c:"  # how a root qdisc is known to be ours
POLICER = "55900"  # index of one that is made to see whether the kernel can
QUEUE = 1000  # frames: the room of a queue beyond what the delay itself holds, as a plain interface has
BANDS = 16  # of the kernel's prio qdisc: band 1 for the rest, one for each peer
SCOPE = {"direction": "egress", "peer": None, "policer": False}  # what else a link says, and its defaults
FIELDS = {"egress": "dst", "ingress": "src"}  # where the peer's address stands in a frame of that direction
OFFSETS = {"dst": 16, "src": 12}  # ... and at which byte of its IPv4 header
BIT_RATES = {"": 1.0, "K": 1e3, "M": 1e6, "G": 1e9, "T": 1e12}
CANNOT = ("unknown", "not supported", "no such file or directory", "failed to load", "not found")


# --- what is asked -----------------------------------------------------------------------------------------


def parse(text: str, hosts: Mapping[str, str]) -> list[Link]:
    """Return the asked links with all keys present; those that change nothing are left out."""
    asked = json.loads(text)
    links = [complete(link, hosts) for link in ([asked] if isinstance(asked, dict) else asked)]
    links = [link for link in links if any(link[key] for key in AMOUNTS)]
    scopes = [(side, link["peer"]) for link in links for side in sides(link)]
    if len(set(scopes)) < len(scopes):
        raise HostError("two links for the same direction and peer")
    return links


def complete(link: Link, hosts: Mapping[str, str]) -> Link:
    """Return one link with all keys; unknown keys, hosts and impossible combinations are refused."""
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
            raise HostError(f"{impairment.key} is {allowed}, but {value} was given")
    if why := find_mistake(full):
        raise HostError(why)
    return full


def sides(link: Link) -> tuple[str, ...]:
    """Return the directions that a link is about."""
    return sides_of(link["direction"])


# --- from what is asked to commands (pure) -----------------------------------------------------------------


def plan(
    links: Sequence[Link], device: str, mtu: int, hosts: Mapping[str, str], polices: bool = True
) -> list[Command]:
    """Return the commands that impair ``device`` as asked, in their order.

    Where the kernel has no policers, ``polices`` is false, a policer is a token bucket with a queue for one
    super-frame: what finds that full is dropped.
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
    """Whether a link needs a queue: for what waits or is lost, or in a policer's place."""
    waits = any(queued(link).values())
    drops = bool(link["policer"] and link["rate_mbit"]) and not polices
    if waits and drops:
        raise UnsupportedError("no queue both delays and polices, and this kernel has no act_police")
    return waits or drops


def queue(
    device: str, links: Sequence[Link], mtu: int, hosts: Mapping[str, str], side: str
) -> Iterator[Command]:
    """Yield the commands for queues on ``device``: at its root, or in a band for each peer."""
    places = places_of(links)
    if any(parent != "root" for parent in places):
        bands = ["bands", str(max(2, len(places) + 1)), "priomap", *["0"] * 16]
        yield ["tc", "qdisc", "add", "dev", device, "root", "handle", HANDLE, "prio", *bands]
    for parent, link in places.items():
        place = ["root", "handle", HANDLE] if parent == "root" else ["parent", parent]
        if any(queued(link).values()):
            does = tc_words(queued(link), limit(link, mtu), mtu)
        else:
            does = ["tbf", *bucket(link["rate_mbit"]), "limit", str(SUPER_FRAME)]
        yield ["tc", "qdisc", "add", "dev", device, *place, *does]
        if link["peer"] is not None:
            match = [*selector(link, hosts, side), "flowid", parent]
            yield ["tc", "filter", "add", "dev", device, "parent", HANDLE, "prio", "1", *match]


def places_of(links: Sequence[Link]) -> dict[str, Link]:
    """Return where each link's queue goes: the root if it is for all, else bands; band 1 is for the rest."""
    if all(link["peer"] is None for link in links):
        return {"root": links[0]} if links else {}
    ordered = sorted(links, key=lambda link: link["peer"] is not None)
    first = 1 if ordered[0]["peer"] is None else 2
    if first + len(ordered) - 1 > BANDS:
        raise HostError(f"at most {BANDS - 1} peers can be impaired separately")
    return {f"{HANDLE}{band:x}": link for band, link in enumerate(ordered, start=first)}


def limit(link: Link, mtu: int) -> int:
    """Return the frames that a queue must hold: twice the bandwidth-delay product, and a queue."""
    held_s = (link["delay_ms"] + link["jitter_ms"]) / 1000
    product_bytes: float = (link["rate_mbit"] or LINE_RATE_MBIT) * 1e6 / 8 * held_s
    return QUEUE + math.ceil(2 * product_bytes / mtu)


def police(device: str, links: Sequence[Link], hosts: Mapping[str, str], side: str) -> Iterator[Command]:
    """Yield the commands for policers: a frame above the rate is dropped, any other goes on."""
    for order, link in enumerate([link for link in links if link["policer"] and link["rate_mbit"]], start=1):
        place = ["tc", "filter", "add", "dev", device, side, "prio", str(order)]
        limits = [*bucket(link["rate_mbit"]), "mtu", "65536b"]
        action = ["action", "police", *limits, "conform-exceed", "drop/continue"]
        yield [*place, *selector(link, hosts, side), *action]


def redirect(device: str) -> list[Command]:
    """Return the commands that lead arriving frames through a device that has a queue."""
    everything = ["prio", "100", "protocol", "all", "u32", "match", "u32", "0", "0"]
    onward = ["action", "mirred", "egress", "redirect", "dev", IFB]
    return [
        ["ip", "link", "add", IFB, "type", "ifb"],
        ["ip", "link", "set", "dev", IFB, "up"],
        ["tc", "filter", "add", "dev", device, "ingress", *everything, *onward],
    ]


def selector(link: Link, hosts: Mapping[str, str], side: str) -> list[str]:
    """Return the u32 match for a link's peer, or for every frame."""
    if link["peer"] is None:
        return ["protocol", "all", "u32", "match", "u32", "0", "0"]
    return ["protocol", "ip", "u32", "match", "ip", FIELDS[side], f"{hosts[link['peer']]}/32"]


# --- from the kernel's answer to what is configured (pure) --------------------------------------------------


def impairing(
    qdiscs: Sequence[Mapping[str, Any]], filters: str, hosts: Mapping[str, str], side: str
) -> list[Link]:
    """Return what each queue of a device does, in the words of ``apply``, with its counters.

    ``qdiscs`` is what ``tc -s -j qdisc show`` says, ``filters`` what ``tc filter show`` says of the root.
    """
    flow = r"flowid (\w+:\w+)"
    peers = {
        found[0]: peer for text, peer in matches(filters, hosts, side) if (found := re.findall(flow, text))
    }
    return [
        {
            "direction": side,
            "peer": peers.get(queue.get("parent", "root")),
            "by": queue["kind"],
            "policer": drops_at_once(queue["kind"], queue["options"]),
            **read_back(queue["kind"], queue["options"]),
            **{key: queue[key] for key in ("packets", "bytes", "drops")},
        }
        for queue in qdiscs
        if queue["kind"] in QUEUES
    ]


def policers(filters: str, hosts: Mapping[str, str], side: str) -> list[Link]:
    """Return what each policer of a hook does; tc tells its rate as text only, each rule twice."""
    found: list[Link] = []
    for text, peer in matches(filters, hosts, side):
        rate = re.search(r"police \S+ rate ([\d.]+)([KMGT]?)bit ", text)
        if rate:
            rate_mbit = float(rate[1]) * BIT_RATES[rate[2]] / 1e6
            nothing = dict.fromkeys(AMOUNTS, 0)
            scope = {"direction": side, "peer": peer, "by": "police", "policer": True}
            told = {**scope, **nothing, "rate_mbit": rate_mbit}
            found += [told] if told not in found else []
    return found


def matches(filters: str, hosts: Mapping[str, str], side: str) -> Iterator[tuple[str, str | None]]:
    """Yield each filter's text and the peer whose frames it takes; None is everybody's."""
    names = {f"{number(address):08x}": name for name, address in hosts.items()}
    for text in re.split(r"^filter ", filters, flags=re.MULTILINE):
        match = re.search(r"match ([0-9a-f]{8})/([0-9a-f]{8}) at (\d+)", text)
        if match is None:
            continue
        if match[2] == "0" * 8:
            yield text, None
        else:
            known = match[2] == "f" * 8 and int(match[3]) == OFFSETS[FIELDS[side]]
            yield text, names.get(match[1], match[1]) if known else match[0].removeprefix("match ")


def number(address: str) -> int:
    """Return an IPv4 address as a number."""
    return int.from_bytes(bytes(map(int, address.split("."))), "big")


# --- on this host ------------------------------------------------------------------------------------------


def apply(text: str, ttl_s: int) -> dict[str, Any]:
    """Replace the impairments of the lab link; on any failure nothing is left behind."""
    settings = config()
    links = parse(text, settings["hosts"])
    if links or STATE.exists():
        clear()
    if not links:
        return show()
    link = lab_link(settings, addresses())
    refuse_foreign(link["ifname"])
    STATE.parent.mkdir(parents=True, exist_ok=True)
    STATE.write_text(json.dumps({"asked": links, "expires": time.time() + ttl_s}))
    try:
        # The timer comes first: from here on the link clears itself even if this process dies.
        timer = ["--quiet", "--collect", f"--unit={TIMER}", "--timer-property=AccuracySec=1s"]
        run(["systemd-run", *timer, f"--on-active={ttl_s}s", str(Path(__file__).resolve()), "clear"])
        polices = not any(link["policer"] for link in links) or has_policers()
        for command in plan(links, link["ifname"], link["mtu"], settings["hosts"], polices):
            execute(command)
    except HostError:
        clear()
        raise
    return show()


def has_policers() -> bool:
    """Whether this kernel has policers, found by making one that no filter uses."""
    policer = ["tc", "actions", "add", "action", "police", *bucket(1), "drop", "index", POLICER]
    if subprocess.run(policer, capture_output=True, check=False).returncode:
        return False
    run(["tc", "actions", "del", "action", "police", "index", POLICER])
    return True


def execute(command: Command) -> None:
    """Run one command of the plan; tell what this kernel cannot do from what went wrong."""
    try:
        run(command)
    except HostError as error:
        if any(word in str(error).lower() for word in CANNOT):
            raise UnsupportedError(str(error)) from None
        raise


def qdiscs_of(device: str) -> list[dict[str, Any]]:
    """Return the qdiscs of a device with their counters."""
    found: list[dict[str, Any]] = run_json(["tc", "-s", "-j", "qdisc", "show", "dev", device])
    return found


def refuse_foreign(device: str) -> None:
    """Refuse a device that somebody else has put a queue discipline on."""
    for queue in qdiscs_of(device):
        chosen = queue.get("root") and queue["handle"] != "0:"
        if chosen or queue["kind"] in ("clsact", "ingress"):
            raise HostError(
                f"{device} has a qdisc {queue['kind']} {queue['handle']} that the lab did not make"
            )


def clear() -> None:
    """Remove what ``apply`` made, as far as it is there, and stop the timer."""
    ours = STATE.exists()
    links = addresses()
    device = lab_link(config(), links)["ifname"]
    there = qdiscs_of(device)
    if any(queue.get("root") and queue["handle"] == HANDLE for queue in there):
        run(["tc", "qdisc", "del", "dev", device, "root"])
    if ours and any(queue["kind"] == "clsact" for queue in there):
        run(["tc", "qdisc", "del", "dev", device, "clsact"])
    if any(link["ifname"] == IFB for link in links):
        run(["ip", "link", "del", IFB])
    if ours:
        STATE.unlink()
        # It is gone already when it is the timer that clears.
        subprocess.run(["systemctl", "stop", f"{TIMER}.timer"], capture_output=True, check=False)


def show() -> dict[str, Any]:
    """Return what was asked, what the kernel has, and when it ends."""
    state = json.loads(STATE.read_text()) if STATE.exists() else {"asked": [], "expires": None}
    settings, links = config(), addresses()
    device = lab_link(settings, links)["ifname"]
    there = {"egress": device}
    if any(link["ifname"] == IFB for link in links):
        there["ingress"] = IFB
    qdiscs = {side: qdiscs_of(name) for side, name in there.items()}
    found = [
        queue
        for side, name in there.items()
        for queue in of_device(name, qdiscs[side], settings["hosts"], side)
    ]
    if any(queue["kind"] == "clsact" for queue in qdiscs["egress"]):
        for side in FIELDS:
            found += policers(run(["tc", "filter", "show", "dev", device, side]), settings["hosts"], side)
    return {
        "interface": device,
        "asked": state["asked"],
        "expires_in_s": state["expires"] and round(state["expires"] - time.time(), 1),
        "configured": found,
        "qdiscs": [queue for queues in qdiscs.values() for queue in queues],
    }


def of_device(
    device: str, qdiscs: Sequence[Mapping[str, Any]], hosts: Mapping[str, str], side: str
) -> list[Link]:
    """Return what the queues of a device do; who their peers are is told by the filters of its bands."""
    banded = any(queue["kind"] == "prio" and queue["handle"] == HANDLE for queue in qdiscs)
    filters = run(["tc", "filter", "show", "dev", device, "parent", HANDLE]) if banded else ""
    return impairing(qdiscs, filters, hosts, side)


def answer(argv: Sequence[str]) -> dict[str, Any]:
    """Do what the command line says and return the answer."""
    if argv == ["show"]:
        return show()
    if argv == ["clear"]:
        clear()
        return show()
    if len(argv) == 4 and argv[0] == "apply" and argv[2] == "--ttl":
        return apply(argv[1], int(argv[3]))
    return sys.exit(__doc__)


if __name__ == "__main__":
    main(answer)
