"""QEMU's own sandbox: a seccomp filter against what a guest that broke out of QEMU would need next.

QEMU runs as the endpoint does, which is root where there are containers.
"""

from __future__ import annotations

from functools import cache

from minipve import process
from minipve.process import MachineError

FILTER = "on,obsolete=deny,elevateprivileges=deny,spawn=deny,resourcecontrol=deny"
_QUIT = '{"execute": "qmp_capabilities"}\n{"execute": "quit"}\n'


@cache
def words() -> tuple[str, ...]:
    """The option that switches the filter on; nothing where this QEMU or this kernel has none.

    Tried once per process, by starting a QEMU without a machine.
    """
    option = ("-sandbox", FILTER)
    bare = ["-machine", "none", "-nodefaults", "-display", "none", "-qmp", "stdio"]
    try:
        process.run(["qemu-system-x86_64", *bare, *option], stdin=_QUIT, timeout_s=20)
    except MachineError:
        return ()
    return option
