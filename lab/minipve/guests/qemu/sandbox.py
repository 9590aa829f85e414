"""QEMU's seccomp sandbox, which limits what a guest can do after it has broken out of QEMU.

QEMU runs as the user of the endpoint, which is root if there are containers.
"""

from __future__ import annotations

from functools import cache

from minipve.base import process
from minipve.base.process import MachineError

FILTER = "on,obsolete=deny,elevateprivileges=deny,spawn=deny,resourcecontrol=deny"
_QUIT = '{"execute": "qmp_capabilities"}\n{"execute": "quit"}\n'


@cache
def words() -> tuple[str, ...]:
    """Return the option that enables the filter, or nothing if this QEMU or this kernel does not support it.

    Found out once per process, by starting a QEMU without a machine.
    """
    option = ("-sandbox", FILTER)
    bare = ["-machine", "none", "-nodefaults", "-display", "none", "-qmp", "stdio"]
    try:
        process.run(["qemu-system-x86_64", *bare, *option], stdin=_QUIT, timeout_s=20)
    except MachineError:
        return ()
    return option
