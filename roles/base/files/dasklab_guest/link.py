"""Impair the link under test of this host, read back what the kernel made of it, and clear it again.

``apply`` replaces what was there; an empty list clears. A systemd timer of this host clears the link after
``ttl_s`` seconds, whatever became of the caller. Only the link under test is ever touched. A qdisc that this
program did not create is refused, not replaced; only ``mend`` and a ``clear`` that says so remove it.
"""

from __future__ import annotations

import json
import subprocess
import time

from dasklab_guest.common import (
    IFB,
    PROGRAM,
    RUNTIME,
    HostError,
    UnsupportedError,
    host,
    interfaces,
    is_container,
    lab_link,
    run,
    run_json,
    start_timer,
    stop_units,
)
from dasklab_guest.impairments import bucket, kernel_features
from dasklab_guest.tc import (
    FIELDS,
    HANDLE,
    complete_links,
    configured_policers,
    configured_queues,
    plan,
)

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from dasklab_guest.common import Document
    from dasklab_guest.tc import Command, Link

STATE = RUNTIME / "link.json"
TIMER = "dasklab-link-expire"
PROBE_POLICER = "55900"  # index of the policer that shows whether the kernel has any
HOOKS = ("clsact", "ingress")  # qdiscs beside the root
UNSUPPORTED_MESSAGES = (
    "unknown",
    "not supported",
    "no such file or directory",
    "failed to load",
    "not found",
)


def apply(links: Sequence[Link], ttl_s: float, check: bool = False) -> Document:
    """Replace the impairments of the link under test. After a failure nothing is left behind.

    Args:
        links: as in ``tc.py``.
        ttl_s: seconds until the link is cleared.
        check: only report whether anything would change.

    Returns:
        As ``show``, and whether anything ``changed``.
    """
    settings = host()
    target = complete_links(links, settings["hosts"])
    changes = target != last_request()["requested"]
    if changes and check and target:
        refuse(target, settings)
    if changes and not check:
        clear()
        if target:
            configure(target, settings, ttl_s)
    elif target and not check:
        extend(target, ttl_s)
    return {**show(), "changed": changes}


def refuse(links: Sequence[Link], settings: Document) -> None:
    """Refuse links that ``configure`` would refuse, without touching any interface."""
    if any("netem" in kernel_features(link) for link in links) and not has_netem():
        raise no_netem()
    link = lab_link(settings, interfaces())
    if not STATE.exists():
        refuse_foreign(link["ifname"])
    polices = not any(link["policer"] for link in links) or has_policers()
    plan(links, link["ifname"], link["mtu"], settings["hosts"], polices)


def configure(links: Sequence[Link], settings: Document, ttl_s: float) -> None:
    """Configure a clear link. On failure it is cleared again."""
    link = lab_link(settings, interfaces())
    refuse_foreign(link["ifname"])
    try:
        extend(links, ttl_s)  # first: from here on the link clears itself even if this process dies
        polices = not any(link["policer"] for link in links) or has_policers()
        for command in plan(links, link["ifname"], link["mtu"], settings["hosts"], polices):
            execute(command)
    except HostError:
        clear()
        raise


def extend(links: Sequence[Link], ttl_s: float) -> None:
    """Write down what is configured, and start the timer that clears it."""
    STATE.parent.mkdir(parents=True, exist_ok=True)
    STATE.write_text(json.dumps({"requested": list(links), "expires": time.time() + ttl_s}))
    stop_units(f"{TIMER}.timer")
    start_timer(TIMER, ttl_s, [PROGRAM, "link", "clear"], AccuracySec="1s")


def last_request() -> Document:
    """Return the ``requested`` links that are still in place, and when that ``expires`` (s since 1970)."""
    state: Document = json.loads(STATE.read_text()) if STATE.exists() else {"requested": [], "expires": None}
    return state


def has_policers() -> bool:
    """Return whether this kernel has policers, by creating one that no filter uses."""
    policer = ["tc", "actions", "add", "action", "police", *bucket(1), "drop", "index", PROBE_POLICER]
    if subprocess.run(policer, capture_output=True, check=False).returncode:
        return False
    run(["tc", "actions", "del", "action", "police", "index", PROBE_POLICER])
    return True


def no_netem() -> UnsupportedError:
    """Return the error for a kernel without netem, with what helps."""
    helps = "use virtual machines" if is_container() else "install the package that has sch_netem"
    return UnsupportedError(f"this kernel has no netem; {helps}")


def has_netem() -> bool:
    """Return whether this kernel has netem, tried in a new network namespace."""
    netem = ["unshare", "--net", "tc", "qdisc", "add", "dev", "lo", "root", "netem", "delay", "1ms"]
    return not is_unsupported(subprocess.run(netem, capture_output=True, text=True, check=False).stderr)


def is_unsupported(message: str) -> bool:
    """Return whether a program's message says that the kernel cannot do something."""
    return any(text in message.lower() for text in UNSUPPORTED_MESSAGES)


def execute(command: Command) -> None:
    """Run one command of the plan.

    Raises:
        UnsupportedError: the kernel cannot do it.
        HostError: the command failed for another reason.
    """
    try:
        run(command)
    except HostError as error:
        if is_unsupported(str(error)):
            if "netem" in command:
                raise no_netem() from None
            raise UnsupportedError(str(error)) from None
        raise


def qdiscs_of(device: str) -> list[Document]:
    """Return the qdiscs of a device with their counters."""
    return run_json(["tc", "-s", "-j", "qdisc", "show", "dev", device])


def foreign_qdiscs(device: str) -> list[Document]:
    """Return the qdiscs that neither the kernel gave a device by itself nor the lab requested."""
    requested = STATE.exists()
    return [
        qdisc
        for qdisc in qdiscs_of(device)
        if qdisc["handle"] != "0:"
        and not (requested and (not qdisc.get("root") or qdisc["handle"] == HANDLE))
    ]


def refuse_foreign(device: str) -> None:
    """Refuse a device with a queue discipline of somebody else."""
    for qdisc in foreign_qdiscs(device):
        raise HostError(
            f"{device} has a qdisc {qdisc['kind']} {qdisc['handle']} that the lab did not create;"
            f" to remove it: dasklab tc {host()['name']} reset"
        )


def differences() -> list[str]:
    """Return how the link under test differs from what the lab requested of it; most often in nothing."""
    link = lab_link(host(), interfaces())
    device = link["ifname"]
    texts = [f"{device} is down"] if "UP" not in link["flags"] else []
    texts += [f"{device} has no carrier"] if "NO-CARRIER" in link["flags"] else []
    texts += [
        f"{device} has a qdisc {qdisc['kind']} {qdisc['handle']} that the lab did not create"
        for qdisc in foreign_qdiscs(device)
    ]
    if last_request()["requested"] and all(qdisc["handle"] == "0:" for qdisc in qdiscs_of(device)):
        texts.append(f"{device} has lost its impairment")
    return texts


def mend(check: bool = False) -> Document:
    """Clear the link if it differs from what the lab requested, also of what others left, and set it up.

    Args:
        check: only report the ``differences``.

    Raises:
        HostError: the link still differs.
    """
    before = differences()
    return {"differences": before, "mended": clear(foreign=True)["mended"] if before and not check else []}


def clear(foreign: bool = False) -> Document:
    """Remove what ``apply`` created, and stop the timer.

    Args:
        foreign: also remove the qdiscs of others, and set the link up.

    Returns:
        As ``show``, and what was ``mended`` of others.

    Raises:
        HostError: the link of others still differs from what the lab requests.
    """
    ours = STATE.exists()
    links = interfaces()
    link = lab_link(host(), links)
    device = link["ifname"]
    others = foreign_qdiscs(device) if foreign else []
    theirs = {qdisc["handle"] for qdisc in others}
    for qdisc in qdiscs_of(device):
        if qdisc.get("root") and qdisc["handle"] in {HANDLE, *theirs}:
            run(["tc", "qdisc", "del", "dev", device, "root"])
        elif (ours and qdisc["kind"] == "clsact") or (qdisc["handle"] in theirs and qdisc["kind"] in HOOKS):
            run(["tc", "qdisc", "del", "dev", device, qdisc["kind"]])
    if any(link["ifname"] == IFB for link in links):
        run(["ip", "link", "del", IFB])
    if ours:
        STATE.unlink()
        stop_units(f"{TIMER}.timer")  # unknown to systemd by now if it is the timer that clears
    mended = [f"removed qdisc {qdisc['kind']} {qdisc['handle']} from {device}" for qdisc in others]
    if foreign and "UP" not in link["flags"]:
        run(["ip", "link", "set", "dev", device, "up"])
        mended.append(f"set {device} up")
    if foreign:
        require_no_difference()
    return {**show(), "mended": mended}


def require_no_difference(patience_s: float = 5) -> None:
    """Wait until a link that was just set up has a carrier.

    Raises:
        HostError: the link still differs from what the lab requests.
    """
    deadline = time.monotonic() + patience_s
    while left := differences():
        if time.monotonic() > deadline:
            raise HostError("; ".join(left))
        time.sleep(0.2)


def show() -> Document:
    """Return the requested links, those that the kernel has, and the seconds until they are cleared.

    ``differences`` are texts on what the lab did not request.
    """
    state = last_request()
    settings, links = host(), interfaces()
    device = lab_link(settings, links)["ifname"]
    devices = {"egress": device}
    if any(link["ifname"] == IFB for link in links):
        devices["ingress"] = IFB
    qdiscs = {side: qdiscs_of(name) for side, name in devices.items()}
    configured = [
        link
        for side, name in devices.items()
        for link in queues_of(name, qdiscs[side], settings["hosts"], side)
    ]
    if any(qdisc["kind"] == "clsact" for qdisc in qdiscs["egress"]):
        for side in FIELDS:
            filters = run(["tc", "filter", "show", "dev", device, side])
            configured += configured_policers(filters, settings["hosts"], side)
    return {
        "interface": device,
        "differences": differences(),
        "requested": state["requested"],
        "expires_in_s": state["expires"] and round(state["expires"] - time.time(), 1),
        "configured": configured,
        "qdiscs": [qdisc for side in qdiscs.values() for qdisc in side],
    }


def queues_of(device: str, qdiscs: Sequence[Document], hosts: Mapping[str, str], side: str) -> list[Link]:
    """Return what the queues of a device do; the filters of its bands name the peers."""
    banded = any(qdisc["kind"] == "prio" and qdisc["handle"] == HANDLE for qdisc in qdiscs)
    filters = run(["tc", "filter", "show", "dev", device, "parent", HANDLE]) if banded else ""
    return configured_queues(qdiscs, filters, hosts, side)


def reset() -> None:
    """Clear the link if this program left anything on it."""
    if STATE.exists():
        clear()


STEPS = {"apply": apply, "clear": clear, "show": show, "mend": mend}
