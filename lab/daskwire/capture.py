"""What was found in capture files: segments, streams, messages, nodes. All tables are made of this."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt

from daskwire.arrays import Flags
from daskwire.dask.clusters import title
from daskwire.dask.dialogues import Dialogue
from daskwire.dask.evidence import Endpoint
from daskwire.dask.framing import Generation, generation_of
from daskwire.dask.messagepack import UndecodableError
from daskwire.dask.messages import Messages, build, content
from daskwire.dask.nodes import Nodes, recognise_nodes
from daskwire.file.memory import Memory
from daskwire.file.reading import File
from daskwire.net.connections import Connections
from daskwire.net.extent import Extent, Lives, extents, lives
from daskwire.net.health import RoundTrips, copies, round_trips
from daskwire.net.segments import Lanes, Segments, Tally, lanes
from daskwire.net.tcp import Disorder, Pieces
from daskwire.net.translation import translations
from daskwire.schema import Table


@dataclass
class Capture:
    """Everything that was found in the files. ``make`` makes a table from it, and any that come with it."""

    files: list[File]
    memory: Memory
    connections: Connections
    tally: Tally
    segments: Segments
    pieces: Pieces
    disorder: Disorder
    dialogues: dict[int, Dialogue]
    other_protocols: dict[int, str]
    names: Mapping[str, str]
    make: Callable[[Capture, str], dict[str, Table]]
    _tables: dict[str, Table] = field(default_factory=dict)

    @cached_property
    def messages(self) -> Messages:
        """All Dask messages of the capture, in the order in which they began on the wire."""
        return build(self.dialogues)

    @cached_property
    def nodes(self) -> Nodes:
        """Who is who."""
        return recognise_nodes(self.messages, self.dialogues, self.connections, self.names, self.translations)

    @cached_property
    def sources(self) -> npt.NDArray[np.object_]:
        """Name of the sending node of each flow; the receiver's is that of ``flow ^ 1``."""
        return np.array([self.nodes.name(*sender) for sender in self.senders], object)

    @cached_property
    def clusters(self) -> npt.NDArray[np.object_]:
        """Cluster of each flow: its scheduler's address, empty where that is not known."""
        return np.repeat(np.array([*map(title, self.nodes.clusters)], object), 2)

    @cached_property
    def scheduler_names(self) -> dict[str, str]:
        """Name of the scheduler of each cluster."""
        return {title(head): self.nodes.name(*head) for head in self.nodes.schedulers.values()}

    @cached_property
    def senders(self) -> list[Endpoint]:
        """Endpoint that sends each flow."""
        return [self.connections.endpoints(flow)[:2] for flow in range(2 * len(self.connections))]

    @cached_property
    def from_scheduler(self) -> list[bool]:
        """Whether a scheduler sends each flow."""
        return [sender in self.nodes.schedulers for sender in self.senders]

    @cached_property
    def processes(self) -> list[Endpoint]:
        """Process that sends each flow, identified by the address that it serves on, else by its endpoint."""
        return [self.nodes.processes.get(sender, sender) for sender in self.senders]

    @property
    def packets(self) -> int:
        """All packets of the files, those outside of the span that was asked for left out."""
        return self.tally.packets + sum(sum(file.progress.skipped.values()) for file in self.files)

    @property
    def skipped(self) -> Counter[str]:
        """Packets that were not looked into, by reason; all others are TCP segments."""
        return +sum((file.progress.skipped for file in self.files), self.tally.skipped)

    @cached_property
    def translations(self) -> list[tuple[int, int]]:
        """Flows that are in the capture on both sides of a NAT: pairs of flows."""
        return translations(self.segments, self.lanes)

    @cached_property
    def generation(self) -> str:
        """Framing that the cluster speaks; G2 and G3 are told apart by what only G3 writes, or by stated
        versions.
        """
        spoken = {f.generation for d in self.dialogues.values() for f in d.framed.values() if f.generation}
        if Generation.G23 in spoken:
            spoken.discard(Generation.G23)
            spoken.add(Generation.G3 if Generation.G3 in spoken else generation_of(self.nodes.versions))
        return "+".join(sorted(g.value for g in spoken))

    def table(self, name: str) -> Table:
        """A table of ``daskwire.TABLES``."""
        if name not in self._tables:
            self._tables.update(self.make(self, name))
        return self._tables[name]

    def said(self, message: int) -> Any:
        """A message decoded again; None when its body is not in the capture or does not decode."""
        try:
            return content(self.messages, message, self.dialogues)
        except (UndecodableError, KeyError):
            return None

    def decoded(self, *wanted: str) -> Iterator[tuple[int, str, dict[Any, Any]]]:
        """(message, op, content) of all wanted ops in the capture, in time order, batches taken apart."""
        found = self.messages
        ops = zip(found.op_message.tolist(), found.op_name, strict=True)
        for message in sorted({message for message, op in ops if op in wanted}):
            said = self.said(message)
            for item in said if isinstance(said, tuple) else (said,):
                if isinstance(item, dict) and item.get("op") in wanted:
                    yield message, str(item["op"]), item

    @cached_property
    def lanes(self) -> Lanes:
        """Rows of the segments by flow."""
        return lanes(self.segments, 2 * len(self.connections))

    @cached_property
    def extents(self) -> Extent:
        """How much of each flow's stream was sent, and is missing."""
        return extents(self.segments, self.lanes, self.pieces)

    @cached_property
    def lives(self) -> Lives:
        """Which connections began and ended while the capture ran."""
        return lives(self.segments, len(self.connections))

    @cached_property
    def round_trips(self) -> RoundTrips:
        """Round trips by flow."""
        return round_trips(self.segments, self.lanes, self.pieces, self.disorder)

    @cached_property
    def copied(self) -> Flags:
        """Which segments were captured before: all but the first of each packet."""
        return copies(self.segments, self.lanes.order)
