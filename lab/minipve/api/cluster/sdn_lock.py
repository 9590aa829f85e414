"""The global lock of the SDN configuration, and the rollback of pending changes."""

from __future__ import annotations

from minipve.api.cluster.sdn import SDN
from minipve.api.routing import route
from minipve.base.errors import error_prefix
from minipve.node.call import Call


@route("POST", f"{SDN}/lock")
def lock(call: Call) -> str:
    """Lock the configuration. Changes then need the token that this returns."""
    with error_prefix("could not acquire lock for SDN config: "):
        return call.node.sdn.lock(bool(call.get("allow-pending")))


@route("DELETE", f"{SDN}/lock")
def unlock(call: Call) -> None:
    """Remove the lock, with its token or with ``force``."""
    with error_prefix("could not release lock: "):
        call.node.sdn.unlock(call.get("lock-token"), bool(call.get("force")))


@route("POST", f"{SDN}/rollback")
def rollback(call: Call) -> None:
    with error_prefix("could not rollback SDN configuration: "):
        call.node.sdn.rollback(call.get("lock-token"), bool(call.get("release-lock", 1)))
