"""Inject one fault on this host, a fixed time after the workload's first timed repeat began, and undo it.

``arm`` starts a transient systemd unit that waits for the file ``STARTED``, which the workload creates on
every host when its first timed repeat begins. ``at_s`` later the unit injects the fault:

    kill      the service is killed and stays away
    restart   the service is killed, and started again after ``for_s``
    cut       the link under test is down for ``for_s``

``end`` stops the unit and returns what happened. However the unit ends, after ``ttl_s`` at the latest, the
link is up again.
"""

from __future__ import annotations

import json
import subprocess
import time
from pathlib import Path

from dasklab_guest.common import (
    PROGRAM,
    RUNTIME,
    HostError,
    host,
    interfaces,
    lab_link,
    read,
    run,
    start_unit,
    stop_units,
)

TYPE_CHECKING = False
if TYPE_CHECKING:
    from dasklab_guest.common import Document

FAULTS = ("kill", "restart", "cut")
REQUEST, STARTED, EFFECT = (RUNTIME / f"fault-{name}" for name in ("request.json", "started", "effect.json"))
UNIT = "dasklab-fault"
POLL_S = 0.02  # how often the unit looks for STARTED
STOP_TIMEOUT_S = 5  # for the unit and the repair after it
NO_EFFECT: Document = {"at_s": None, "lasted_s": None, "state": "nothing"}


def arm(does: str, at_s: float, service: str, ttl_s: float, for_s: float = 0) -> Document:
    """Start the unit that waits.

    Args:
        does: one of FAULTS.
        at_s: seconds after the first timed repeat began.
        service: the systemd service that ``kill`` and ``restart`` act on.
        ttl_s: seconds until the unit ends in any case.
        for_s: how long ``restart`` and ``cut`` last.

    Raises:
        HostError: there is no such fault, or it cannot be armed.
    """
    if does not in FAULTS:
        raise HostError(f"no fault {does!r}; there are {', '.join(FAULTS)}")
    end()
    request = {
        "does": does,
        "at_s": at_s,
        "for_s": for_s,
        "service": service,
        "device": lab_link(host(), interfaces())["ifname"] if does == "cut" else None,
    }
    RUNTIME.mkdir(parents=True, exist_ok=True)
    REQUEST.write_text(json.dumps(request))
    repair = f"{PROGRAM} fault repair"
    strike_argv = [PROGRAM, "fault", "strike"]
    start_unit(UNIT, strike_argv, RuntimeMaxSec=ttl_s, TimeoutStopSec=STOP_TIMEOUT_S, ExecStopPost=repair)
    return request


def strike() -> None:
    """The work of the unit: wait, inject, observe, undo; each step is written down."""
    request = json.loads(REQUEST.read_text())
    while not STARTED.exists():
        time.sleep(POLL_S)
    start_s = STARTED.stat().st_mtime
    time.sleep(max(0.0, start_s + request["at_s"] - time.time()))
    struck_s = time.time()
    inject(request)
    effect = {**NO_EFFECT, "at_s": round(struck_s - start_s, 3), "state": state(request)}
    EFFECT.write_text(json.dumps(effect))
    if request["does"] != "kill":
        time.sleep(max(0.0, struck_s + request["for_s"] - time.time()))
        undo(request)
        EFFECT.write_text(json.dumps({**effect, "lasted_s": round(time.time() - struck_s, 3)}))


def inject(request: Document) -> None:
    """Take the link down, or kill the service and keep it stopped."""
    if request["does"] == "cut":
        run(["ip", "link", "set", request["device"], "down"])
    else:
        run(["systemctl", "kill", "--signal=KILL", request["service"]])
        run(["systemctl", "stop", request["service"]])


def undo(request: Document) -> None:
    """Bring the link up, or start the service."""
    if request["does"] == "cut":
        run(["ip", "link", "set", request["device"], "up"])
    else:
        run(["systemctl", "start", request["service"]])


def state(request: Document) -> str:
    """Return ``up`` or ``down`` for the link, or systemd's state of the service."""
    if request["does"] == "cut":
        link = next(link for link in interfaces() if link["ifname"] == request["device"])
        return "up" if "UP" in link["flags"] else "down"
    argv = ["systemctl", "is-active", request["service"]]
    return subprocess.run(argv, capture_output=True, text=True, check=False).stdout.strip()


def repair() -> None:
    """Bring a cut link up again. A service is left to whoever stops the cluster."""
    request = json.loads(read(REQUEST) or "{}")
    if request.get("does") == "cut":
        undo(request)


def end() -> Document:
    """Stop the unit, which repairs, and return its effect.

    Returns:
        ``at_s`` and ``lasted_s`` as they were, None where the fault did not strike or had not ended, and
        the ``state`` of the link or the service meanwhile.
    """
    stop_units(f"{UNIT}*")
    effect: Document = json.loads(read(EFFECT) or json.dumps(NO_EFFECT))
    for path in (REQUEST, STARTED, EFFECT):
        Path(path).unlink(missing_ok=True)
    return effect


def reset() -> None:
    """Stop the unit."""
    end()


STEPS = {"arm": arm, "end": end, "strike": strike, "repair": repair}
