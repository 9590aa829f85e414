"""Files that belong together: rotation, several capture points with different clocks, NAT, overlays.

However a capture is divided, merged, duplicated or reordered, the messages are the same.
"""

from __future__ import annotations

import random
import struct
from collections.abc import Callable
from pathlib import Path

import pytest
from click.testing import CliRunner
from daskwire import Capture, open_capture, summarise
from daskwire.terminal.cli import wire
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.unit.daskwire.build import GOLDEN, Packet, golden_bytes, packets_of, pcap, pcapng
from tests.unit.daskwire.conftest import golden_capture
from tests.unit.daskwire.decoder.file.test_damage import messages
from tests.unit.daskwire.decoder.net.packets.test_tunnels import vxlan, wrapped
from tests.unit.daskwire.decoder.net.test_order import numberless
from tests.unit.daskwire.decoder.net.test_translation import translated

NAME = "g3-2026.8.0"
PACKETS = [p for p in packets_of(golden_bytes(NAME)) if p[1][12:14] == b"\x08\x00"]  # no ARP
PLAIN = [name for name in GOLDEN if not name.startswith(("tls", "ws"))]
ACK = 16
MTU = 1448
TRANSIT_NS = 40_000
FROM_WORKER = bytes([10, 99, 7, 117])


def resegmented(packets: list[Packet], size: int = MTU) -> list[Packet]:
    """Divide super-packets, as a NIC does on the way to the second capture point."""
    result = []
    for time_ns, data, _ in packets:
        head, payload = data[:66], data[66:]
        for at in range(0, max(len(payload), 1), size):
            part = payload[at : at + size]
            seq = (int.from_bytes(head[38:42], "big") + at) & 0xFFFFFFFF
            length = struct.pack(">H", 52 + len(part))
            frame = head[:16] + length + head[18:38] + seq.to_bytes(4, "big") + head[42:] + part
            result.append((time_ns + at, frame, len(frame)))
    return result


def at_worker(packets: list[Packet], offset_ns: int = 0) -> list[Packet]:
    """Move a capture from the bridge to a worker: other transit times, another clock."""
    moved = [
        (t + offset_ns + (-TRANSIT_NS if data[26:30] == FROM_WORKER else TRANSIT_NS), data, n)
        for t, data, n in packets
        if FROM_WORKER in (data[26:30], data[30:34])
    ]
    return sorted(moved, key=lambda p: p[0])


def write(folder: Path, **files: list[Packet]) -> list[Path]:
    paths = []
    for name, packets in files.items():
        paths.append(folder / f"{name}.pcap")
        paths[-1].write_bytes(pcap(packets, nano=True))
    return paths


def same_as_one(capture: Capture, whole: Capture) -> bool:
    return messages(capture) == messages(whole) and all(
        sorted(capture.table("flows")[column]) == sorted(whole.table("flows")[column])
        for column in ("stream_bytes", "retransmitted", "missing_bytes", "resets", "attempts", "zero_windows")
    )


@pytest.mark.parametrize("offset_s", [0.0, 0.5, -7200.0])
@pytest.mark.parametrize("change", [list, resegmented])
def test_two_capture_points_count_once(
    tmp_path: Path, change: Callable[[list[Packet]], list[Packet]], offset_s: float
) -> None:
    offset_ns = round(offset_s * 1e9)
    paths = write(tmp_path, bridge=PACKETS, worker=at_worker(change(PACKETS), offset_ns))
    capture = open_capture(paths)
    assert same_as_one(capture, open_capture(paths[0]))
    assert capture.files[1].progress.offset_ns == pytest.approx(offset_ns, abs=TRANSIT_NS)
    flows = capture.table("flows")
    assert flows["payload_bytes"] == flows["stream_bytes"] and capture.tally.repeated > 100


def test_clock_correction_is_reported(tmp_path: Path) -> None:
    paths = write(tmp_path, bridge=PACKETS, worker=at_worker(PACKETS, 1_500_000_000))
    result = CliRunner().invoke(wire, [*map(str, paths)])
    assert (
        f"{paths[1]}: its clock was 1.500" in result.stderr and "ahead of the first file's" in result.stderr
    )
    repeated = len(at_worker(PACKETS))
    assert f"{repeated} packets were captured at several points; each counts once" in result.stdout


def test_points_fill_each_others_gaps(tmp_path: Path) -> None:
    chance = random.Random(5)
    lost = [chance.random() < 0.2 for _ in PACKETS]
    bridge = [p for p, gone in zip(PACKETS, lost, strict=True) if not gone]
    worker = [p for p, gone in zip(PACKETS, lost, strict=True) if gone]
    capture = open_capture(write(tmp_path, bridge=bridge, worker=worker))
    assert same_as_one(capture, golden_capture(NAME)) and capture.tally.repeated == 0


def test_rotated_files_of_two_points(tmp_path: Path) -> None:
    worker = at_worker(resegmented(PACKETS), 300_000_000)
    third, half = len(PACKETS) // 3, len(worker) // 2
    parts = {
        "a1": PACKETS[:third], "a2": PACKETS[third : 2 * third], "a3": PACKETS[2 * third :],
        "b1": worker[:half], "b2": worker[half:],
    }  # fmt: skip
    capture = open_capture(write(tmp_path, **parts))
    assert same_as_one(capture, golden_capture(NAME))


def test_keepalives_across_rotated_files_are_not_copies(tmp_path: Path) -> None:
    """An idle connection repeats the same ACK in each file."""
    last = PACKETS[-1]
    idle = [(last[0] + i * 10**9, last[1], last[2]) for i in range(1, 9)]
    capture = open_capture(write(tmp_path, a=PACKETS, b=idle[:4], c=idle[4:]))
    assert capture.tally.repeated == 0 and len(capture.segments) == len(PACKETS) + 8


def test_both_sides_of_a_nat_in_two_files(tmp_path: Path) -> None:
    inner = translated(PACKETS, {"10.99.7.117": "172.17.0.5"}, {})
    own = [p for p in inner if b"\xac\x11\x00\x05" in (p[1][26:30], p[1][30:34])]
    paths = write(tmp_path, outer=PACKETS, inner=resegmented(own))
    capture = open_capture(paths)
    assert same_as_one(capture, golden_capture(NAME)) and summarise(capture)["translated_connections"] > 1


def test_overlay_and_its_inner_network_in_one_file(tmp_path: Path) -> None:
    outer = wrapped(resegmented(PACKETS), vxlan(4789))
    path = tmp_path / "node.pcap"
    path.write_bytes(pcap(sorted(PACKETS + outer, key=lambda p: p[0])))
    assert same_as_one(open_capture(path), golden_capture(NAME))


def test_interfaces_of_a_pcapng_are_points(tmp_path: Path) -> None:
    raw = pcapng(PACKETS)
    second = bytearray(pcapng(resegmented(PACKETS)))
    header = len(pcapng([]))
    at = header
    while at < len(second):  # packets of the second interface
        second[at + 8] = 1
        at += struct.unpack_from("<I", second, at + 4)[0]
    interface = pcapng([])[28:header]
    path = tmp_path / "any.pcapng"
    path.write_bytes(raw[:header] + interface + raw[header:] + bytes(second[header:]))
    capture = open_capture(path)
    assert same_as_one(capture, golden_capture(NAME)) and capture.tally.repeated == len(PACKETS)


def divided(packets: list[Packet], chance: random.Random, number: int) -> list[list[Packet]]:
    """Cut packets into parts, repeat some of them, reorder their packets, shuffle or merge the parts."""
    cuts = sorted(chance.sample(range(1, len(packets)), number))
    parts = [packets[a:b] for a, b in zip([0, *cuts], [*cuts, len(packets)], strict=True)]
    parts += [part for part in parts if chance.random() < 0.4]
    parts = [chance.sample(part, len(part)) if chance.random() < 0.5 else part for part in parts]
    chance.shuffle(parts)
    if chance.random() < 0.3:
        parts = [[packet for part in parts for packet in part]]
    return parts


@settings(deadline=None, max_examples=25)
@given(st.sampled_from(PLAIN), st.randoms(use_true_random=False), st.integers(1, 5))
def test_divided_duplicated_and_merged_files_give_the_same_messages(
    tmp_path_factory: pytest.TempPathFactory, name: str, chance: random.Random, number: int
) -> None:
    """Cut a capture into files, duplicate some of them, reorder their packets, shuffle or merge the files."""
    parts = divided(packets_of(golden_bytes(name)), chance, number)
    folder = tmp_path_factory.mktemp("parts")
    capture = open_capture(write(folder, **{f"part{i}": part for i, part in enumerate(parts)}))
    assert messages(capture) == messages(golden_capture(name))
    for table in ("messages", "tasks", "transfers"):
        assert numberless(capture.table(table)) == numberless(golden_capture(name).table(table)), table


def test_merged_parts_in_no_order_are_no_clock_that_was_set_back(tmp_path: Path) -> None:
    """Most flows of the last part seem to go on: the packets of the first part are in no order."""
    name = "p2p-2026.8.0"
    (merged,) = divided(packets_of(golden_bytes(name)), random.Random(217), 5)
    capture = open_capture(write(tmp_path, merged=merged))
    assert not capture.files[0].progress.set_back_ns
    assert messages(capture) == messages(golden_capture(name))


BEHIND_NAT = translated(PACKETS, {"10.99.7.117": "192.168.9.117", "10.99.7.118": "192.168.9.118"}, {})


def delayed(packets: list[Packet], offset_s: float) -> list[Packet]:
    return [(time_ns + round(offset_s * 1e9), data, size) for time_ns, data, size in packets]


@pytest.mark.parametrize("offset_s", [0.0, 0.3, 2.0, -7200.0])
def test_both_sides_of_a_nat_with_different_clocks_count_once(tmp_path: Path, offset_s: float) -> None:
    paths = write(tmp_path, before=PACKETS, behind=delayed(BEHIND_NAT, offset_s))
    capture = open_capture(paths)
    assert len(capture.messages) == len(golden_capture(NAME).messages)
    assert len(capture.translations) == 7  # two are between the client and the scheduler
    assert capture.files[1].progress.offset_ns == pytest.approx(offset_s * 1e9, abs=1e5)


def test_clocks_that_cannot_be_aligned_across_a_nat_are_reported(tmp_path: Path) -> None:
    scheduler, behind = bytes([10, 99, 7, 116]), bytes([192, 168])
    one_way = [p for p in BEHIND_NAT if p[1][26:28] == behind and p[1][30:34] == scheduler]
    paths = write(tmp_path, before=PACKETS, behind=delayed(one_way, 2.0))
    result = CliRunner().invoke(wire, [str(path) for path in paths])
    assert "behind.pcap: it has packets of an earlier file on the other side of a NAT" in result.stderr
