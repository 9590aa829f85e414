"""Ports, racks and the bridge between them: which links a message crosses, and how long its way is."""

from __future__ import annotations

from dataclasses import dataclass, field
from random import Random
from typing import Protocol

from dasklab.sim.kernel.kernel import Kernel
from dasklab.sim.network.fluid import Fluid, Link

NO_LIMIT = float("inf")


class Transfer(Protocol):
    """Bulk data on its way between two machines."""

    @property
    def ends(self) -> tuple[str, str]:
        """The two machines."""

    def cut(self) -> None:
        """Lose what is on its way."""


@dataclass(frozen=True)
class Rack:
    """Machines behind one way out: bytes per second out and in, and what the way adds in one direction."""

    up: Link
    down: Link
    delay_s: float = 0.0


@dataclass(frozen=True)
class Port:
    """A machine's link: bytes per second to and from the bridge, and what netem does to what it sends.

    ``received`` is done to what comes in. ``queue_bytes`` is what stands before the link while it is full.
    """

    up: Link
    down: Link
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
    """One direction between two machines."""

    held_by: tuple[Link, ...]
    loads: tuple[Link, ...]
    queues: tuple[tuple[Link, float], ...]
    into: Link | None
    delay_s: float
    jitter_s: float
    loss: float
    rtt_s: float

    @property
    def rate(self) -> float:
        """The slowest link's."""
        return min((link.rate for link in self.held_by), default=NO_LIMIT)

    def standing_s(self, now: float) -> float:
        """How long what comes now waits: in queues that bulk data keeps full, and behind what was flooded."""
        full = sum(queued / link.rate for link, queued in self.queues if link.flows)
        return full + (self.into.behind_s(now) if self.into else 0.0)

    def way_s(self, dice: Random) -> float:
        """Seconds on the way, without what links and queues take."""
        return max(0.0, self.delay_s + (dice.uniform(-1, 1) * self.jitter_s if self.jitter_s else 0.0))


@dataclass
class Network:
    """One bridge. ``flooding``: it learns nothing, so every frame goes to every port.

    ``base_rtt_s`` is the round trip of an empty network.
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
        self.flowing: dict[Transfer, None] = {}  # in the order in which they began

    def path(self, source: str, target: str) -> Path:
        """The way from one machine to another."""
        if (source, target) not in self._paths:
            self._paths[source, target] = self._path(source, target)
        return self._paths[source, target]

    def cut(self, machine: str, for_s: float) -> None:
        """Let no frame pass a machine's link for so long; what was on its way is lost."""
        self._up_at[machine] = self.kernel.now + for_s
        for channel in [channel for channel in self.flowing if machine in channel.ends]:
            channel.cut()

    def up_at(self, *machines: str) -> float:
        """When the links of all of these are up again: in the past, if they are."""
        return max(self._up_at.get(machine, 0.0) for machine in machines)

    def _path(self, source: str, target: str) -> Path:
        if source == target:
            return Path((), (), (), None, 0.0, 0.0, 0.0, 0.0)
        here, there = self.ports[source], self.ports[target]
        held_by = (here.up, *self._between(here, there), there.down)
        limited = tuple(link for link in held_by if link.rate < NO_LIMIT)
        queues = [(here.up, here.queue_bytes), (there.down, there.queue_bytes)]
        return Path(
            held_by=limited,
            loads=tuple(dict.fromkeys([*limited, *self._flooded(source)])),
            queues=tuple((link, queued) for link, queued in queues if queued and link in limited),
            into=there.down if self.flooding and there.down in limited else None,
            delay_s=self._delay_s(here, there),
            jitter_s=here.jitter_s + there.received_jitter_s,
            loss=1 - (1 - here.loss) * (1 - there.received_loss),
            rtt_s=self._delay_s(here, there) + self._delay_s(there, here),
        )

    def _between(self, here: Port, there: Port) -> list[Link]:
        """The racks' ways out and in, if a message leaves one."""
        if here.rack is there.rack:
            return []
        return [*([here.rack.up] if here.rack else []), *([there.rack.down] if there.rack else [])]

    def _flooded(self, source: str) -> list[Link]:
        """All other ports, where the bridge floods."""
        if not self.flooding:
            return []
        downs = [port.down for name, port in self.ports.items() if name != source]
        return [link for link in downs if link.rate < NO_LIMIT]

    def _delay_s(self, here: Port, there: Port) -> float:
        racks = [] if here.rack is there.rack else [rack for rack in (here.rack, there.rack) if rack]
        between = sum(rack.delay_s for rack in racks)
        return self.base_rtt_s / 2 + here.delay_s + there.received_delay_s + between
