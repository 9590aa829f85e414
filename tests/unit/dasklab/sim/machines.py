"""Four machines on one bridge, for the tests of the network model."""

from __future__ import annotations

import math

from dasklab.sim.kernel import Kernel
from dasklab.sim.network import Channel, Network, Port
from dasklab.sim.network.fluid import Pipe

RATE = 125e6  # bytes/s: 1 Gbit/s
BIG = 12_500_000  # bytes that take 0.1 s at this rate
RTT = 2e-4


def port(rate: float = RATE, down: float | None = None, **settings: object) -> Port:
    return Port(Pipe(rate), Pipe(rate if down is None else down), **settings)


class Machines:
    """Machines a, b, c and d.

    Attributes:
        arrived: by label, when each message arrived. The label of a message is its path, "a>b", if it has no
            other.
        order: labels in the order of arrival.
    """

    def __init__(self, flooding: bool = False, exact_flows: int = 128, seed: int = 0, **ports: Port) -> None:
        self.kernel = Kernel(seed)
        all_ports = {name: port() for name in "abcd"} | ports
        self.network = Network(self.kernel, all_ports, RTT, flooding)
        self.network.fluid._exact_flows = exact_flows
        self.channels: dict[str, Channel] = {}
        self.arrived: dict[str, float] = {}
        self.order: list[str] = []
        self._messages = 0

    def send(
        self, path: str, nbytes: int = BIG, when: float = 0.0, label: str = "", pace: float = math.inf
    ) -> None:
        source, target = path.split(">")
        channel = self.channels.setdefault(path, Channel(self.network, source, target))
        self._messages += 1
        channel.send(when, nbytes, lambda: self._arrive(label or path), pace)

    def cut(self, machine: str, at_s: float, for_s: float) -> None:
        self.kernel.at(at_s, self.network.cut, machine, for_s)

    def run(self) -> dict[str, float]:
        """Run until all messages have arrived; return when."""
        assert self.kernel.run_until(lambda: len(self.order) == self._messages)
        return self.arrived

    def _arrive(self, label: str) -> None:
        self.order.append(label)
        self.arrived[label] = self.kernel.now
