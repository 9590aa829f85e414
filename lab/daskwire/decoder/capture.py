"""The content of capture files: segments, streams, messages, nodes. All tables are built from it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt

from daskwire.base.arrays import Flags
from daskwire.base.schema import Table
from daskwire.decoder.dask.content import UndecodableError
from daskwire.decoder.dask.conversations import Conversation, stream_of
from daskwire.decoder.dask.framing import Generation, generation_of
from daskwire.decoder.dask.messages import Messages, build, content
from daskwire.decoder.dask.nodes import Endpoint, Nodes, cluster_name, recognise_nodes
from daskwire.decoder.file.reading import File
from daskwire.decoder.file.source import Memory
from daskwire.decoder.net.connections import Connections
from daskwire.decoder.net.health import Extent, Lives, RoundTrips, extents, lives, needless, round_trips
from daskwire.decoder.net.packets.notices import Macs, Notices
from daskwire.decoder.net.packets.tcp_options import DuplicateSacks
from daskwire.decoder.net.recordings import duplicate_packets
from daskwire.decoder.net.segments import Lanes, Segments, Tally, lanes
from daskwire.decoder.net.tcp import Disorder, Pieces, Stream


@dataclass
class Capture:
    """A decoded capture. Everything that is derived from it is computed on first use.

    Attributes:
        files: the files, and how far each was read.
        memory: their bytes.
        connections: endpoints of all connections.
        translations: pairs of flows that are one flow on both sides of a NAT; its segments have the first.
        relays: pairs of connections: one to a TCP relay, and one from there on with the same content. Only
            the packets of the second one count, not its messages.
        macs: MAC addresses of flows and in ARP packets.
        notices: ICMP errors and DNS lookups.
        duplicate_sacks: what receivers say to have received twice.
        tally: counts of packets, decoded or not.
        segments: all TCP segments.
        pieces: the pieces of all streams.
        disorder: segments that arrived out of sequence.
        conversations: the connections that carry Dask, by connection number.
        other_protocols: protocols of other connections, by connection number.
        user_names: names of nodes by address, chosen by the user.
        build_tables: builds a table by name, and any others that are computed with it.
    """

    files: list[File]
    memory: Memory
    connections: Connections
    translations: list[tuple[int, int]]
    relays: list[tuple[int, int]]
    macs: Macs
    notices: Notices
    duplicate_sacks: DuplicateSacks
    tally: Tally
    segments: Segments
    pieces: Pieces
    disorder: Disorder
    conversations: dict[int, Conversation]
    other_protocols: dict[int, str]
    user_names: Mapping[str, str]
    build_tables: Callable[[Capture, str], dict[str, Table]]
    _tables: dict[str, Table] = field(default_factory=dict)

    @cached_property
    def messages(self) -> Messages:
        """All Dask messages, ordered by the time of their first byte."""
        return build(self.conversations)

    @cached_property
    def nodes(self) -> Nodes:
        """Names, clusters and processes of the endpoints."""
        return recognise_nodes(
            self.messages,
            self.conversations,
            self.connections,
            self.user_names,
            self.translations,
            self.relays,
        )

    @cached_property
    def sources(self) -> npt.NDArray[np.object_]:
        """Name of the sending node, per flow. The receiver of ``flow`` is the sender of ``flow ^ 1``."""
        return np.array([self.nodes.name(*sender) for sender in self.senders], object)

    @cached_property
    def clusters(self) -> npt.NDArray[np.object_]:
        """Cluster (address of its scheduler), per flow; empty if unknown."""
        return np.repeat(np.array([*map(cluster_name, self.nodes.clusters)], object), 2)

    @cached_property
    def scheduler_names(self) -> dict[str, str]:
        """Name of the scheduler of each cluster."""
        return {cluster_name(head): self.nodes.name(*head) for head in self.nodes.schedulers.values()}

    @cached_property
    def senders(self) -> list[Endpoint]:
        """Sending endpoint, per flow."""
        return [self.connections.endpoints(flow)[:2] for flow in range(2 * len(self.connections))]

    @cached_property
    def from_scheduler(self) -> list[bool]:
        """Whether a scheduler is the sender, per flow."""
        return [sender in self.nodes.schedulers for sender in self.senders]

    @cached_property
    def processes(self) -> list[Endpoint]:
        """Sending process, per flow: its listening address, else the endpoint itself."""
        return [self.nodes.processes.get(sender, sender) for sender in self.senders]

    @property
    def packets(self) -> int:
        """Number of packets within the requested time span."""
        return self.tally.packets + sum(sum(file.progress.skipped.values()) for file in self.files)

    @property
    def skipped(self) -> Counter[str]:
        """Packets that were not decoded, by reason. All others are TCP segments."""
        return +sum((file.progress.skipped for file in self.files), self.tally.skipped)

    @cached_property
    def generation(self) -> str:
        """Framing of the cluster. G2 and G3 are distinguished by messages in parts, else by versions."""
        generations = {
            f.generation for c in self.conversations.values() for f in c.framed.values() if f.generation
        }
        if Generation.G23 in generations:
            generations.discard(Generation.G23)
            is_g3 = Generation.G3 in generations
            generations.add(Generation.G3 if is_g3 else generation_of(self.nodes.versions))
        return "+".join(sorted(generation.value for generation in generations))

    def table(self, name: str) -> Table:
        """Return the table with this name, see ``daskwire.TABLES``.

        Raises:
            WireError: there is no such table.
        """
        if name not in self._tables:
            self._tables.update(self.build_tables(self, name))
        return self._tables[name]

    def content(self, message: int) -> Any:
        """Decode a message. Return None if its body is missing or cannot be decoded."""
        try:
            return content(self.messages, message, self.conversations)
        except (UndecodableError, KeyError):
            return None

    def decoded(self, *ops: str) -> Iterator[tuple[int, str, dict[Any, Any]]]:
        """Yield message, op and fields of every occurrence of some ops, in time order."""
        rows = self.messages.ops_named(ops)
        for message in np.unique(self.messages.op_message[rows]).tolist():
            body = self.content(message)
            for fields in body if isinstance(body, tuple) else (body,):
                if isinstance(fields, dict) and fields.get("op") in ops:
                    yield message, str(fields["op"]), fields

    def stream(self, flow: int) -> Stream | None:
        """Return the bytes of a flow as they were sent, encrypted or not; None without captured payload."""
        index = int(np.searchsorted(self.pieces.flow, flow))
        if index == len(self.pieces.flow) or self.pieces.flow[index] != flow:
            return None
        return stream_of(self.memory, self.segments, self.pieces, index)

    @cached_property
    def lanes(self) -> Lanes:
        """Rows of the segments, by flow."""
        return lanes(self.segments, 2 * len(self.connections))

    @cached_property
    def extents(self) -> Extent:
        """How much of each flow's stream was sent, and is missing."""
        return extents(self.segments, self.lanes, self.pieces)

    @cached_property
    def lives(self) -> Lives:
        """Which connections began and ended during the capture."""
        return lives(self.segments, len(self.connections))

    @cached_property
    def round_trips(self) -> RoundTrips:
        return round_trips(self.segments, self.lanes, self.pieces, self.disorder)

    @cached_property
    def copied(self) -> Flags:
        """Which segments are repeated captures of a packet at one capture point."""
        return duplicate_packets(self.segments, self.lanes.order)

    @cached_property
    def needless(self) -> Flags:
        """Which of ``disorder.resent`` their receivers had already."""
        return needless(self.segments, self.disorder, self.copied, self.duplicate_sacks)
