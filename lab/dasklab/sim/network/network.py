"""Ports, racks and the bridge between them: which pipes a message crosses, and how long its path is."""

from __future__ import annotations

from dataclasses import dataclass, field
from random import Random
from typing import Protocol

from dasklab.sim.kernel.kernel import Kernel
from dasklab.sim.network.fluid import Fluid, Pipe

NO_LIMIT = float("inf")


class Transfer(Protocol):
    """Bulk data in flight between two machines."""

    @property
    def ends(self) -> tuple[str, str]: ...

    def cut(self) -> None: ...


@dataclass(frozen=True)
class Rack:
    """The uplink that a group of machines shares; ``delay_s`` is what it adds in one direction."""

    up: Pipe
    down: Pipe
    delay_s: float = 0.0


@dataclass(frozen=True)
class Port:
    """A machine's link to the bridge, and its impairments.

    Attributes:
        up: frames that the machine sends.
        down: frames that it receives.
        delay_s: delay of the frames that it sends; ``jitter_s`` and ``loss`` (a share) likewise.
        received_delay_s: delay of the frames that it receives; jitter and loss likewise.
        queue_bytes: the standing queue in front of the link while bulk data saturates it.
        rack: the rack that the machine is in, if any.
    """

    up: Pipe
    down: Pipe
    delay_s: float = 0.0
    jitter_s: float = 0.0
    loss: float = 0.0
    received_delay_s: float = 0.0
    received_jitter_s: float = 0.0
    received_loss: float = 0.0
    queue_bytes: float = 0.0
    rack: Rack | None = None


@dataclass(frozen=True)
class Path:
    """One direction between two machines.

    Attributes:
        limited_by: pipes that bound a flow on this path.
        loads: pipes whose capacity a flow consumes, flooded ports included.
        queues: pipes with a standing queue, and its bytes.
        flooded_port: the receiver's port on a flooding bridge; its backlog delays what arrives.
        delay_s: propagation delay of one direction, with a jitter of up to ``jitter_s`` either way.
        loss: share of segments that are lost.
        rtt_s: round trip without queues.
    """

    limited_by: tuple[Pipe, ...]
    loads: tuple[Pipe, ...]
    queues: tuple[tuple[Pipe, float], ...]
    flooded_port: Pipe | None
    delay_s: float
    jitter_s: float
    loss: float
    rtt_s: float

    @property
    def rate(self) -> float:
        """Bytes per second of the slowest pipe."""
        return min((pipe.rate for pipe in self.limited_by), default=NO_LIMIT)

    def queueing_s(self, now: float) -> float:
        """Return how long a message waits that arrives now: in standing queues, and behind the backlog."""
        standing_s = sum(queued / pipe.rate for pipe, queued in self.queues if pipe.flows)
        return standing_s + (self.flooded_port.backlog_s(now) if self.flooded_port else 0.0)

    def propagation_s(self, dice: Random) -> float:
        """Return the delay of one message, without serialisation and queues."""
        return max(0.0, self.delay_s + (dice.uniform(-1, 1) * self.jitter_s if self.jitter_s else 0.0))


@dataclass
class Network:
    """One bridge and the machines on it.

    Attributes:
        ports: each machine's port.
        base_rtt_s: the round trip of the idle network without impairments.
        flooding: the bridge learns no addresses, so every frame goes to every port.
        flowing: bulk transfers that are running, in the order in which they started.
    """

    kernel: Kernel
    ports: dict[str, Port]
    base_rtt_s: float = 1e-4
    flooding: bool = False
    fluid: Fluid = field(init=False)
    sent_bytes: int = 0
    messages: int = 0

    def __post_init__(self) -> None:
        self.fluid = Fluid(self.kernel)
        self._paths: dict[tuple[str, str], Path] = {}
        self._up_at: dict[str, float] = {}
        self.flowing: dict[Transfer, None] = {}

    def path(self, source: str, target: str) -> Path:
        """Return the path from one machine to another; from a machine to itself it is free."""
        if (source, target) not in self._paths:
            self._paths[source, target] = self._path(source, target)
        return self._paths[source, target]

    def cut(self, machine: str, for_s: float) -> None:
        """Let no frame pass a machine's link for this long. Everything in flight on it is lost."""
        self._up_at[machine] = self.kernel.now + for_s
        for transfer in [transfer for transfer in self.flowing if machine in transfer.ends]:
            transfer.cut()

    def up_at(self, *machines: str) -> float:
        """Return when the links of all these machines are up: a time in the past if they are up now."""
        return max(self._up_at.get(machine, 0.0) for machine in machines)

    def _path(self, source: str, target: str) -> Path:
        if source == target:
            return Path((), (), (), None, 0.0, 0.0, 0.0, 0.0)
        sender, receiver = self.ports[source], self.ports[target]
        pipes = (sender.up, *self._uplinks(sender, receiver), receiver.down)
        limited_by = tuple(pipe for pipe in pipes if pipe.rate < NO_LIMIT)
        queues = [(sender.up, sender.queue_bytes), (receiver.down, receiver.queue_bytes)]
        return Path(
            limited_by=limited_by,
            loads=tuple(dict.fromkeys([*limited_by, *self._flooded(source)])),
            queues=tuple((pipe, queued) for pipe, queued in queues if queued and pipe in limited_by),
            flooded_port=receiver.down if self.flooding and receiver.down in limited_by else None,
            delay_s=self._delay_s(sender, receiver),
            jitter_s=sender.jitter_s + receiver.received_jitter_s,
            loss=1 - (1 - sender.loss) * (1 - receiver.received_loss),
            rtt_s=self._delay_s(sender, receiver) + self._delay_s(receiver, sender),
        )

    def _uplinks(self, sender: Port, receiver: Port) -> list[Pipe]:
        """Return the uplinks of the racks that a message leaves and enters."""
        if sender.rack is receiver.rack:
            return []
        return [
            *([sender.rack.up] if sender.rack else []),
            *([receiver.rack.down] if receiver.rack else []),
        ]

    def _flooded(self, source: str) -> list[Pipe]:
        """Return the ports that a frame of this machine is flooded to."""
        if not self.flooding:
            return []
        ports = [port.down for name, port in self.ports.items() if name != source]
        return [port for port in ports if port.rate < NO_LIMIT]

    def _delay_s(self, sender: Port, receiver: Port) -> float:
        crossed = (
            [] if sender.rack is receiver.rack else [rack for rack in (sender.rack, receiver.rack) if rack]
        )
        uplinks_s = sum(rack.delay_s for rack in crossed)
        return self.base_rtt_s / 2 + sender.delay_s + receiver.received_delay_s + uplinks_s
