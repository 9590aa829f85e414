"""Commands to a running QEMU (QMP), with timeouts and Proxmox VE's error texts."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from minipve.base.paths import Paths
from minipve.base.process import MachineError
from minipve.guests.qemu import channel
from minipve.guests.qemu.channel import MalformedError


class Qmp:
    """The monitor of a running machine. Each command uses a connection of its own."""

    def __init__(self, vmid: int, paths: Paths) -> None:
        self.vmid = vmid
        self.path = paths.runtime(vmid, "qmp")

    def execute(
        self, command: str, arguments: Mapping[str, Any] | None = None, timeout_s: float = 5.0
    ) -> Any:
        """Run one QMP command and return its value; MachineError for any failure."""
        try:
            with channel.connect(self.path, timeout_s) as monitor:
                monitor.receive()  # the greeting
                monitor.send("qmp_capabilities", None)
                monitor.answer()
                monitor.send(command, arguments)
                answer = monitor.answer()
            refusal = channel.error_text(answer)
        except TimeoutError as error:
            raise self._failed(command, "got timeout") from error
        except OSError as error:
            raise self._failed(command, "client closed connection") from error
        except MalformedError as error:
            raise self._failed(command, str(error)) from error
        if refusal is not None:
            raise self._failed(command, refusal)
        return answer["return"]

    def answers(self) -> bool:
        """Whether QEMU has started and accepts commands."""
        try:
            self.execute("query-status", timeout_s=1)
        except MachineError:
            return False
        return True

    def _failed(self, command: str, reason: str) -> MachineError:
        return MachineError(f"VM {self.vmid} qmp command '{command}' failed - {reason}")
