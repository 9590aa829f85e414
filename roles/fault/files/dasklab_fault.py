#!/usr/bin/python3 -SsE
"""Make one thing go wrong on this host, so long after the workload's first timed run began, and undo it.

    dasklab_fault.py arm '{"does": "cut", "at_s": 2, "for_s": 3}' --service NAME.service --ttl 600
    dasklab_fault.py end

``arm`` leaves a transient unit of systemd that waits for the file ``/run/dasklab/fault-told``: who runs the
workload makes it when the first timed run begins. Then, ``at_s`` later,

    kill      the service is killed, and stays away
    restart   it is killed, and started again after ``for_s``
    cut       the lab link is down for ``for_s``

``end`` ends the unit and says what happened: ``at_s`` and ``lasted_s`` as they were, null where it did not
come or had not ended yet, and what was ``found`` meanwhile of the service or the link. However the unit
ends, and at the latest after ``--ttl``, a link is up again.
"""

from __future__ import annotations

import json
import subprocess
import sys
import time
from pathlib import Path

from dasklab_common import HostError, addresses, config, lab_link, main, read, run

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence
    from typing import Any

    Document = dict[str, Any]

PLACE = Path("/run/dasklab")
ASKED, TOLD, SEEN = (PLACE / f"fault-{name}" for name in ("asked.json", "told", "seen.json"))
UNIT = "dasklab-fault"
LOOK_S = 0.02  # how often it is looked whether the run began
STOP_S = 5  # in which the unit and what mends behind it must end
NOTHING = {"at_s": None, "lasted_s": None, "state": "nothing"}


def command(program: str, ttl_s: int) -> list[str]:
    """Return the command that starts the unit: it has an end, and mends whatever ends it (pure)."""
    properties = [f"RuntimeMaxSec={ttl_s}", f"TimeoutStopSec={STOP_S}", f"ExecStopPost={program} mend"]
    unit = ["systemd-run", "--quiet", "--collect", f"--unit={UNIT}"]
    return [*unit, *(f"--property={text}" for text in properties), program, "strike"]


def arm(text: str, service: str, ttl_s: int) -> Document:
    """Leave the unit that waits."""
    end()
    device = lab_link(config(), addresses())["ifname"]
    PLACE.mkdir(parents=True, exist_ok=True)
    asked = {**json.loads(text), "service": service, "device": device}
    ASKED.write_text(json.dumps(asked))
    run(command(str(Path(__file__).resolve()), ttl_s))
    return asked


def strike() -> None:
    """What the unit does: wait, do it, look at it, undo it; each step is written down."""
    asked = json.loads(ASKED.read_text())
    while not TOLD.exists():
        time.sleep(LOOK_S)
    told = TOLD.stat().st_mtime
    time.sleep(max(0.0, told + asked["at_s"] - time.time()))
    began = time.time()
    break_it(asked)
    seen = {**NOTHING, "at_s": round(began - told, 3), "state": state(asked)}
    SEEN.write_text(json.dumps(seen))
    if asked["does"] != "kill":
        time.sleep(max(0.0, began + asked["for_s"] - time.time()))
        undo(asked)
        SEEN.write_text(json.dumps({**seen, "lasted_s": round(time.time() - began, 3)}))


def break_it(asked: Document) -> None:
    """The link goes down, or the service is killed and gone."""
    if asked["does"] == "cut":
        run(["ip", "link", "set", asked["device"], "down"])
    else:
        run(["systemctl", "kill", "--signal=KILL", asked["service"]])
        run(["systemctl", "stop", asked["service"]])


def undo(asked: Document) -> None:
    """The link is up, or the service runs again."""
    if asked["does"] == "cut":
        run(["ip", "link", "set", asked["device"], "up"])
    else:
        run(["systemctl", "start", asked["service"]])


def state(asked: Document) -> str:
    """Return what is found of the link, ``down`` or ``up``, or of the service, in systemd's words."""
    if asked["does"] == "cut":
        link = next(link for link in addresses() if link["ifname"] == asked["device"])
        return "up" if "UP" in link["flags"] else "down"
    asking = ["systemctl", "is-active", asked["service"]]
    return subprocess.run(asking, capture_output=True, text=True, check=False).stdout.strip()


def mend() -> None:
    """A cut link is up again; a service is left to who stops the cluster."""
    asked = json.loads(read(ASKED) or "{}")
    if asked.get("does") == "cut":
        undo(asked)


def end() -> Document:
    """End the unit, which mends; say what was seen, and forget it."""
    run(["systemctl", "stop", f"{UNIT}*"])
    seen: Document = json.loads(read(SEEN) or json.dumps(NOTHING))
    for path in (ASKED, TOLD, SEEN):
        path.unlink(missing_ok=True)
    return seen


def answer(argv: Sequence[str]) -> Document | None:
    """Do what the command line says and return the answer."""
    if argv in (["strike"], ["mend"], ["end"]):
        return {"strike": strike, "mend": mend, "end": end}[argv[0]]()
    if len(argv) == 6 and [argv[0], argv[2], argv[4]] == ["arm", "--service", "--ttl"]:
        if "does" not in json.loads(argv[1]):
            raise HostError(f"what it does is missing: {argv[1]}")
        return arm(argv[1], argv[3], int(argv[5]))
    return sys.exit(__doc__)


if __name__ == "__main__":
    main(answer)
