"""Reads traces in Perfetto's format, as Perfetto does."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from perfetto.protos.perfetto.trace import perfetto_trace_pb2 as protos


@dataclass
class Slice:
    """A slice as a reader of the trace finds it; ``inside`` is the slice around it."""

    track: str
    name: str
    category: str
    start: int
    stop: int = -1
    inside: Slice | None = None
    arguments: dict[str, object] = field(default_factory=dict)
    leaving: list[int] = field(default_factory=list)
    arriving: list[int] = field(default_factory=list)


class Trace:
    """Reads a trace as Perfetto does: packets in order of time, texts by number, a stack per track."""

    def __init__(self, file: Path) -> None:
        trace = protos.Trace()
        trace.ParseFromString(file.read_bytes())
        self.metadata, self.counters = {}, defaultdict(list)
        self.slices: list[Slice] = []
        self.processes, self.tracks = {}, {}
        self.texts: dict[str, dict[int, str]] = defaultdict(dict)
        for packet in trace.packet:
            self._define(packet)
        events = [packet for packet in trace.packet if packet.HasField("track_event")]
        stacks: dict[int, list[Slice]] = defaultdict(list)
        for packet in sorted(events, key=lambda packet: packet.timestamp):  # stable, as Perfetto sorts
            self._event(packet, stacks[packet.track_event.track_uuid])
        assert not any(stacks.values()), "a slice has no end"

    def _define(self, packet: Any) -> None:
        for entry in packet.chrome_events.metadata:
            self.metadata[entry.name] = entry.string_value
        for kind in ("event_names", "event_categories", "debug_annotation_names"):
            for entry in getattr(packet.interned_data, kind):
                assert entry.iid not in self.texts[kind]
                self.texts[kind][entry.iid] = entry.name
        for entry in packet.interned_data.debug_annotation_string_values:
            self.texts["values"][entry.iid] = entry.str.decode()
        if packet.HasField("track_descriptor"):
            track = packet.track_descriptor
            if track.HasField("process"):
                self.processes[track.process.pid] = track.process.process_name
                name = track.process.process_name
            elif track.HasField("thread"):
                name = f"{self.processes[track.thread.pid]}/{track.thread.thread_name}"
            else:
                name = f"{self.tracks[track.parent_uuid]}/{track.name}"
            assert track.uuid not in self.tracks
            self.tracks[track.uuid] = name

    def _event(self, packet: Any, stack: list[Slice]) -> None:
        event, kinds = packet.track_event, protos.TrackEvent.Type
        track = self.tracks[event.track_uuid]
        if event.type == kinds.TYPE_COUNTER:
            self.counters[track].append(event.double_counter_value)
        elif event.type == kinds.TYPE_SLICE_END:
            stack.pop().stop = packet.timestamp
        else:
            [category] = event.category_iids
            begun = Slice(
                track,
                self.texts["event_names"][event.name_iid],
                self.texts["event_categories"][category],
                packet.timestamp,
                inside=stack[-1] if stack else None,
                arguments={
                    self.texts["debug_annotation_names"][a.name_iid]: (
                        self.texts["values"][a.string_value_iid] if a.string_value_iid else a.int_value
                    )
                    for a in event.debug_annotations
                },
                leaving=list(event.flow_ids),
                arriving=list(event.terminating_flow_ids),
            )
            self.slices.append(begun)
            stack.append(begun)

    def arrows(self) -> list[tuple[Slice, Slice]]:
        """Return where each arrow begins and ends; each has one of either."""
        begins = {number: one for one in self.slices for number in one.leaving}
        ends = {number: one for one in self.slices for number in one.arriving}
        assert begins.keys() == ends.keys()
        assert len(begins) == sum(len(one.leaving) for one in self.slices)
        assert len(ends) == sum(len(one.arriving) for one in self.slices)
        return [(begins[number], ends[number]) for number in begins]
