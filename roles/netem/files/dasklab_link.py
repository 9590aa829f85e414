#!/usr/bin/python3 -SsE
"""Impair this host's lab link, say what the kernel made of it, and clear it again.

    dasklab_link.py apply '{"delay_ms": 50, "loss_pct": 1}' --ttl 600
    dasklab_link.py clear
    dasklab_link.py show

The argument of ``apply`` is one link or a list of them, with any of these keys:

    delay_ms jitter_ms loss_pct reorder_pct rate_mbit    0 = not impaired
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
import subprocess
import sys
import time
from pathlib import Path

from dasklab_common import IFB, HostError, UnsupportedError, addresses, config, lab_link, main, run, run_json

STATE = Path("/run/dasklab/link.json")
TIMER = "dasklab-link-expire"
HANDLE = "da5c:"  # how a root qdisc is known to be ours
LINE_RATE_MBIT = 10_000  # what a link without a cap is taken to carry, to size its queue
QUEUE = 1000  # frames: the room of a queue beyond what the delay itself holds, as a plain interface has
BANDS = 16  # of the kernel's prio qdisc: band 1 for the rest, one for each peer
DEFAULTS = {
    "delay_ms": 0,
    "jitter_ms": 0,
    "loss_pct": 0,
    "reorder_pct": 0,
    "rate_mbit": 0,
    "direction": "egress",
    "peer": None,
    "policer": False,
}
AMOUNTS = ("delay_ms", "jitter_ms", "loss_pct", "reorder_pct", "rate_mbit")
CANNOT = ("unknown", "not supported", "no such file or directory", "failed to load", "not found")


# --- what is asked -----------------------------------------------------------------------------------------


def parse(text, hosts):
    """Return the asked links with all keys present; those that change nothing are left out."""
    asked = json.loads(text)
    links = [complete(link, hosts) for link in ([asked] if isinstance(asked, dict) else asked)]
    links = [link for link in links if any(link[key] for key in AMOUNTS)]
    scopes = [(side, link["peer"]) for link in links for side in sides(link)]
    if len(set(scopes)) < len(scopes):
        raise HostError("two links for the same direction and peer")
    return links


def complete(link, hosts):
    """Return one link with all keys; unknown keys, hosts and impossible combinations are refused."""
    unknown = sorted(set(link) - set(DEFAULTS))
    if unknown:
        raise HostError(f"unknown key {', '.join(unknown)}; allowed: {', '.join(DEFAULTS)}")
    full = {**DEFAULTS, **{key: value for key, value in link.items() if value is not None}}
    if full["peer"] is not None and full["peer"] not in hosts:
        raise HostError(f"no peer {full['peer']!r}; there are: {', '.join(sorted(hosts))}")
    if full["direction"] not in ("egress", "ingress", "both"):
        raise HostError(f"direction is egress, ingress or both, not {full['direction']!r}")
    if any(full[key] < 0 for key in AMOUNTS) or full["loss_pct"] > 100 or full["reorder_pct"] > 100:
        raise HostError("amounts are not negative, percentages not above 100")
    if (full["jitter_ms"] or full["reorder_pct"]) and not full["delay_ms"]:
        raise HostError("jitter_ms and reorder_pct need a delay_ms: netem acts on delayed frames")
    return full


def sides(link):
    """Return the directions that a link is about."""
    return ("egress", "ingress") if link["direction"] == "both" else (link["direction"],)


# --- from what is asked to commands (pure) -----------------------------------------------------------------


def plan(links, device, mtu, hosts):
    """Return the commands that impair ``device`` as asked, in their order."""
    egress, ingress = ([link for link in links if side in sides(link)] for side in ("egress", "ingress"))
    commands = queues(device, [link for link in egress if queued(link)], mtu, hosts, "dst")
    behind = [link for link in ingress if queued(link)]
    if behind or any(link["policer"] for link in links):
        commands.append(["tc", "qdisc", "add", "dev", device, "clsact"])
    commands += police(device, egress, hosts, "egress", "dst")
    commands += police(device, ingress, hosts, "ingress", "src")
    if behind:
        commands += redirect(device) + queues(IFB, behind, mtu, hosts, "src")
    return commands


def queued(link):
    """Tell whether a link needs a queue; a policer has none."""
    amounts = [key for key in AMOUNTS if key != "rate_mbit" or not link["policer"]]
    return any(link[key] for key in amounts)


def queues(device, links, mtu, hosts, field):
    """Return the commands for netem on ``device``: at its root, or in a band for each peer."""
    places = places_of(links)
    commands = []
    if any(parent != "root" for parent in places):
        bands = ["bands", str(max(2, len(places) + 1)), "priomap", *["0"] * 16]
        commands.append(["tc", "qdisc", "add", "dev", device, "root", "handle", HANDLE, "prio", *bands])
    for parent, link in places.items():
        place = ["root", "handle", HANDLE] if parent == "root" else ["parent", parent]
        commands.append(["tc", "qdisc", "add", "dev", device, *place, *netem(link, mtu)])
        if link["peer"] is not None:
            match = [*selector(link, hosts, field), "flowid", parent]
            commands.append(["tc", "filter", "add", "dev", device, "parent", HANDLE, "prio", "1", *match])
    return commands


def places_of(links):
    """Return where each link's netem goes: the root if it is for all, else bands; band 1 is for the rest."""
    if all(link["peer"] is None for link in links):
        return {"root": links[0]} if links else {}
    ordered = sorted(links, key=lambda link: link["peer"] is not None)
    first = 1 if ordered[0]["peer"] is None else 2
    if first + len(ordered) - 1 > BANDS:
        raise HostError(f"at most {BANDS - 1} peers can be impaired separately")
    return {f"{HANDLE}{band:x}": link for band, link in enumerate(ordered, start=first)}


def netem(link, mtu):
    """Return netem's arguments for one link.

    A ``rate`` makes netem keep frames in order; without it, jitter would also reorder them, and two factors
    would be one. So jitter without ``reorder_pct`` gets the line rate.
    """
    words = ["netem", "limit", str(limit(link, mtu))]
    if link["delay_ms"]:
        words += ["delay", f"{number(link['delay_ms'])}ms"]
    if link["jitter_ms"]:
        words += [f"{number(link['jitter_ms'])}ms"]
    if link["loss_pct"]:
        words += ["loss", f"{number(link['loss_pct'])}%"]
    if link["reorder_pct"]:
        words += ["reorder", f"{number(link['reorder_pct'])}%"]
    rate_mbit = 0 if link["policer"] else link["rate_mbit"]
    if not rate_mbit and link["jitter_ms"] and not link["reorder_pct"]:
        rate_mbit = LINE_RATE_MBIT
    return [*words, "rate", bits(rate_mbit)] if rate_mbit else words


def limit(link, mtu):
    """Return the frames that netem's queue must hold: twice the bandwidth-delay product, and a queue."""
    held_s = (link["delay_ms"] + link["jitter_ms"]) / 1000
    product_bytes = (link["rate_mbit"] or LINE_RATE_MBIT) * 1e6 / 8 * held_s
    return QUEUE + math.ceil(2 * product_bytes / mtu)


def police(device, links, hosts, hook, field):
    """Return the commands for policers: a frame above the rate is dropped, any other goes on."""
    commands = []
    for order, link in enumerate([link for link in links if link["policer"] and link["rate_mbit"]], start=1):
        # 10 ms of the rate, and room for two 64 KiB super-frames
        burst_bytes = max(131_072, math.ceil(link["rate_mbit"] * 1e6 / 8 * 0.01))
        bucket = ["rate", bits(link["rate_mbit"]), "burst", f"{burst_bytes}b", "mtu", "65536b"]
        place = ["tc", "filter", "add", "dev", device, hook, "prio", str(order)]
        action = ["action", "police", *bucket, "conform-exceed", "drop/continue"]
        commands.append([*place, *selector(link, hosts, field), *action])
    return commands


def redirect(device):
    """Return the commands that lead arriving frames through a device that has a queue."""
    everything = ["prio", "100", "protocol", "all", "u32", "match", "u32", "0", "0"]
    onward = ["action", "mirred", "egress", "redirect", "dev", IFB]
    return [
        ["ip", "link", "add", IFB, "type", "ifb"],
        ["ip", "link", "set", "dev", IFB, "up"],
        ["tc", "filter", "add", "dev", device, "ingress", *everything, *onward],
    ]


def selector(link, hosts, field):
    """Return the u32 match for a link's peer, or for every frame."""
    if link["peer"] is None:
        return ["protocol", "all", "u32", "match", "u32", "0", "0"]
    return ["protocol", "ip", "u32", "match", "ip", field, f"{hosts[link['peer']]}/32"]


def number(value):
    """Write a number as tc reads it: no exponent, no trailing zeros."""
    return f"{value:.6f}".rstrip("0").rstrip(".")


def bits(rate_mbit):
    """Write a rate as tc reads it: Mbit/s to bit/s."""
    return f"{round(rate_mbit * 1e6)}bit"


# --- from the kernel's answer to what is configured (pure) --------------------------------------------------


def configured(links, egress_qdiscs, ingress_qdiscs):
    """Return, for each asked link and direction, what tc says of the netem that does it."""
    found = []
    for side, qdiscs in (("egress", egress_qdiscs), ("ingress", ingress_qdiscs)):
        netems = {queue.get("parent", "root"): queue for queue in qdiscs if queue["kind"] == "netem"}
        places = places_of([link for link in links if side in sides(link) and queued(link)])
        for parent, link in places.items():
            if parent in netems:
                found.append({"direction": side, "peer": link["peer"], **amounts(netems[parent])})
    return found


def amounts(netem_qdisc):
    """Return what a netem qdisc does, in the words of ``apply``, with its queue and counters."""
    options = netem_qdisc["options"]
    delay = options.get("delay", {})
    return {
        "delay_ms": delay.get("delay", 0) * 1e3,
        "jitter_ms": delay.get("jitter", 0) * 1e3,
        "loss_pct": options.get("loss-random", {}).get("loss", 0) * 100,
        "reorder_pct": options.get("reorder", {}).get("reorder", 0) * 100,
        "rate_mbit": options.get("rate", {}).get("rate", 0) * 8 / 1e6,
        "limit": options["limit"],
        "packets": netem_qdisc["packets"],
        "bytes": netem_qdisc["bytes"],
        "drops": netem_qdisc["drops"],
    }


# --- on this host ------------------------------------------------------------------------------------------


def apply(text, ttl_s):
    """Replace the impairments of the lab link; on any failure nothing is left behind."""
    settings = config()
    links = parse(text, settings["hosts"])
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
        for command in plan(links, link["ifname"], link["mtu"], settings["hosts"]):
            execute(command)
    except HostError:
        clear()
        raise
    return show()


def execute(command):
    """Run one command of the plan; tell what this kernel cannot do from what went wrong."""
    try:
        run(command)
    except HostError as error:
        if any(word in str(error).lower() for word in CANNOT):
            raise UnsupportedError(str(error)) from None
        raise


def qdiscs_of(device):
    """Return the qdiscs of a device with their counters."""
    return run_json(["tc", "-s", "-j", "qdisc", "show", "dev", device])


def refuse_foreign(device):
    """Refuse a device that somebody else has put a queue discipline on."""
    for queue in qdiscs_of(device):
        chosen = queue.get("root") and queue["handle"] != "0:"
        if chosen or queue["kind"] in ("clsact", "ingress"):
            raise HostError(
                f"{device} has a qdisc {queue['kind']} {queue['handle']} that the lab did not make"
            )


def clear():
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


def show():
    """Return what was asked, what the kernel has, and when it ends."""
    state = json.loads(STATE.read_text()) if STATE.exists() else {"asked": [], "expires": None}
    links = addresses()
    device = lab_link(config(), links)["ifname"]
    egress = qdiscs_of(device)
    ingress = qdiscs_of(IFB) if any(link["ifname"] == IFB for link in links) else []
    hooks = ("egress", "ingress") if any(queue["kind"] == "clsact" for queue in egress) else ()
    return {
        "schema": 1,
        "interface": device,
        "asked": state["asked"],
        "expires_in_s": state["expires"] and round(state["expires"] - time.time(), 1),
        "configured": configured(state["asked"], egress, ingress),
        "qdiscs": egress + ingress,
        "filters": {
            hook: run_json(["tc", "-s", "-j", "filter", "show", "dev", device, hook]) for hook in hooks
        },
    }


def answer(argv):
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
