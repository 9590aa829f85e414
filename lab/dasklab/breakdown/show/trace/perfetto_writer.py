"""Write Perfetto's protobuf format packet by packet: tracks, slices, arrows, counters, metadata.

Slices of a track nest: each ``begin_slice`` is closed by an ``end_slice`` of the same track, and no time lies
before an earlier one of that track. A text is written once and is referred to by its number from then on.
Perfetto derives the colour of a slice from its name without digits, so slices of one kind share a name.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import IO

from perfetto.protos.perfetto.trace.perfetto_trace_pb2 import TracePacket, TrackDescriptor, TrackEvent
from perfetto.trace_builder.proto_builder import StreamingTraceProtoBuilder

SEQUENCE = 1  # all packets are of one sequence
PIDS_APART = 1000  # the numbers of threads in between are no process's
Arguments = Mapping[str, str | int | float]
NO_ARGUMENTS: Arguments = {}


class TraceWriter:
    """Appends packets to a file. Tracks are numbers that its methods return."""

    def __init__(self, file: IO[bytes]) -> None:
        self._builder = StreamingTraceProtoBuilder(file)
        self._tracks = 0
        self._pids: dict[int, int] = {}  # track of a process -> its number
        self._threads: dict[int, int] = {}  # track of a process -> how many threads it has
        self._numbers: dict[str, dict[str, int]] = {}  # field of the interned data -> text -> number
        self._latest: dict[int, int] = {}  # track -> time of its last event
        self._is_first = True

    def metadata(self, values: Mapping[str, str]) -> None:
        """Describe the whole trace by names and texts."""
        packet = self._packet()
        for name, text in values.items():
            packet.chrome_events.metadata.add(name=name, string_value=text)
        self._builder.write_packet(packet)

    def process(self, name: str, label: str = "") -> int:
        """Add a process, in the order in which they are shown."""
        descriptor, packet = self._track(name)
        pid = PIDS_APART * (len(self._pids) + 1)
        descriptor.process.pid, descriptor.process.process_name = pid, name
        descriptor.process.legacy_sort_index = len(self._pids)
        descriptor.child_ordering = TrackDescriptor.ChildTracksOrdering.EXPLICIT
        if label:
            descriptor.process.process_labels.append(label)
        self._pids[descriptor.uuid], self._threads[descriptor.uuid] = pid, 0
        self._builder.write_packet(packet)
        return int(descriptor.uuid)

    def thread(self, process: int, name: str) -> int:
        """Add a thread to a process."""
        descriptor, packet = self._track(name)
        self._threads[process] += 1
        descriptor.thread.pid = self._pids[process]
        descriptor.thread.tid = self._pids[process] + self._threads[process]
        descriptor.thread.thread_name = name
        descriptor.thread.legacy_sort_index = self._threads[process]
        self._builder.write_packet(packet)
        return int(descriptor.uuid)

    def track(self, process: int, name: str) -> int:
        """Add another track of slices to a process. Tracks of one name are shown as one."""
        descriptor, packet = self._track(name)
        descriptor.parent_uuid = process
        self._builder.write_packet(packet)
        return int(descriptor.uuid)

    def counter(self, process: int, name: str, unit: str) -> int:
        """Add a track of numbers to a process."""
        descriptor, packet = self._track(name)
        descriptor.parent_uuid = process
        descriptor.counter.unit_name = unit
        self._builder.write_packet(packet)
        return int(descriptor.uuid)

    def begin_slice(
        self,
        track: int,
        time_ns: int,
        name: str,
        category: str,
        arguments: Arguments = NO_ARGUMENTS,
        leaving: Iterable[int] = (),
        arriving: Iterable[int] = (),
    ) -> None:
        """Begin a slice.

        Args:
            leaving, arriving: numbers of the arrows that begin and that end at the slice.
        """
        packet, event = self._event(track, time_ns, TrackEvent.Type.TYPE_SLICE_BEGIN)
        event.name_iid = self._number(packet, "event_names", name)
        event.category_iids.append(self._number(packet, "event_categories", category))
        for key, value in arguments.items():
            annotation = event.debug_annotations.add()
            annotation.name_iid = self._number(packet, "debug_annotation_names", key)
            if isinstance(value, str):
                field = "debug_annotation_string_values"
                annotation.string_value_iid = self._number(packet, field, value)
            elif isinstance(value, int):
                annotation.int_value = value
            else:
                annotation.double_value = value
        event.flow_ids.extend(leaving)
        event.terminating_flow_ids.extend(arriving)
        self._builder.write_packet(packet)

    def end_slice(self, track: int, time_ns: int) -> None:
        """End the slice of the track that began last and has not ended."""
        packet, _ = self._event(track, time_ns, TrackEvent.Type.TYPE_SLICE_END)
        self._builder.write_packet(packet)

    def count(self, track: int, time_ns: int, value: float) -> None:
        """Set a counter from a time on."""
        packet, event = self._event(track, time_ns, TrackEvent.Type.TYPE_COUNTER)
        event.double_counter_value = value
        self._builder.write_packet(packet)

    def _packet(self) -> TracePacket:
        packet = self._builder.create_packet()
        packet.trusted_packet_sequence_id = SEQUENCE
        flags = TracePacket.SequenceFlags
        packet.sequence_flags = (
            flags.SEQ_INCREMENTAL_STATE_CLEARED if self._is_first else flags.SEQ_NEEDS_INCREMENTAL_STATE
        )
        self._is_first = False
        return packet

    def _track(self, name: str) -> tuple[TrackDescriptor, TracePacket]:
        self._tracks += 1
        packet = self._packet()
        packet.track_descriptor.uuid = self._tracks
        packet.track_descriptor.name = name
        packet.track_descriptor.sibling_order_rank = self._tracks
        return packet.track_descriptor, packet

    def _event(self, track: int, time_ns: int, kind: int) -> tuple[TracePacket, TrackEvent]:
        """Return a new event; rounding never moves it before the last one of its track."""
        packet = self._packet()
        packet.timestamp = self._latest[track] = max(time_ns, self._latest.get(track, 0))
        packet.track_event.type = kind
        packet.track_event.track_uuid = track
        return packet, packet.track_event

    def _number(self, packet: TracePacket, field: str, text: str) -> int:
        """Return the number of a text; one that is new is defined in the packet."""
        numbers = self._numbers.setdefault(field, {})
        if text not in numbers:
            numbers[text] = len(numbers) + 1
            entry = getattr(packet.interned_data, field).add(iid=numbers[text])
            if field == "debug_annotation_string_values":
                entry.str = text.encode()
            else:
                entry.name = text
        return numbers[text]
