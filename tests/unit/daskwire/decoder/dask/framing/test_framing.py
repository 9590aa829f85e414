"""Framing and content: bytes recorded by the study, every generation, and malicious input."""

from __future__ import annotations

import contextlib
import json
import resource
import struct
from collections.abc import Callable
from pathlib import Path

import msgpack
import pytest
from daskwire import Capture
from daskwire.decoder.dask.content import MessageKind, UndecodableError, lz4_block, unpack
from daskwire.decoder.dask.framing import Generation, decompress, generation_of, recognise
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.unit.daskwire.build import ACK, HELLO, PSH, Talk, g1, g3

STUDY = Path(__file__).parents[6] / "lab" / "dasklab" / "study_2019.json"
Read = Callable[..., Capture]
STUDY_REQUEST = bytes.fromhex(
    "02000000000000000000000000000000ff0000000000000085a26f70b06865617274626561745f776f726b6572a761646472657373b97463703a2f2f"
    "3139322e3136382e312e3131373a3434353637a36e6f77cb41d772ac5c302094a76d6574726963738ba3637075cb4000000000000000a66d656d6f72"
    "79ce1c37a000a474696d65cb41d772ac5c3018b5aa726561645f6279746573cb40f2f4a216791e06ab77726974655f6279746573cb4091b516a14f69"
    "d9a76e756d5f6664731fa9657865637574696e6700a9696e5f6d656d6f727900a5726561647900a9696e5f666c6967687400a962616e647769647468"
    "83a5746f74616ccb41af6ccadb3f88c9a7776f726b65727380a5747970657380a57265706c79c3"
)
STUDY_REPLY = bytes.fromhex(
    "02000000000000000000000000000000350000000000000083a6737461747573a24f4ba474696d65cb41d772ac5c330002b26865617274626561742d"
    "696e74657276616ccb3fe0000000000000"
)


def test_heartbeat_recorded_by_the_2019_study(read: Read) -> None:
    """Figures 4 to 7: 279 and 77 bytes, and an interval of 0.5 s where the study read 1022 ms."""
    talk = Talk(client=("192.168.1.117", 59840), server=("192.168.1.116", 8786)).open()
    talk.say(0, STUDY_REQUEST).say(1, STUDY_REPLY)
    capture = read(talk.packets)
    beats = capture.table("heartbeats")
    assert capture.generation == "G1"
    assert (beats["request_bytes"], beats["reply_bytes"], beats["announced_ms"]) == ([279], [77], [500.0])
    assert (beats["cpu_pct"], beats["memory_bytes"], beats["executing"]) == ([2.0], [473407488], [0])
    assert beats["packets"] == [4]
    assert capture.table("matrix")["source"] == ["scheduler", "worker-1"]


def test_bytes_of_the_study_match_its_figures() -> None:
    theirs = json.loads(STUDY.read_text())["figures"]["fig4"]
    for raw, name in ((STUDY_REQUEST, "request"), (STUDY_REPLY, "reply")):
        assert msgpack.unpackb(raw[24:]) == theirs[name]
    assert STUDY_REPLY[-8:] == struct.pack(">d", 0.5) and int.from_bytes(STUDY_REPLY[-8:]) >> 52 == 1022
    assert [point["payload_bytes"] for point in theirs["points"]] == [
        len(STUDY_REQUEST),
        0,
        len(STUDY_REPLY),
        0,
    ]


def test_messages_of_each_generation_are_framed(read: Read) -> None:
    for write, generation in ((g3, "G3"), (g1, "G1")):
        talk = Talk().open()
        if write is g3:
            talk.say(0, g3(HELLO)).say(1, g3(HELLO))
        talk.say(0, write({"op": "get_data", "keys": ["x"], "reply": True}))
        frames = (b"head", bytes(5000), bytes(70_000))
        talk.say(1, g3({"status": "OK"}, *frames) if write is g3 else g1({"status": "OK"}, b"", *frames))
        talk.say(0, write("OK"))
        talk.say(0, write([{"op": "a"}, {"op": "b", "key": ("k", 1)}]))
        capture = read(talk.packets)
        table = capture.table("messages")
        assert capture.generation == generation
        assert [op for op in table["op"] if op != "handshake"] == [
            "get_data",
            "reply to get_data",
            "OK",
            "a+b",
        ]
        assert table["bytes"][-3] > 75_000 and all(capture.messages.complete)
        assert capture.table("transfers")["status"] == ["OK"]


def test_many_messages_in_one_segment_and_one_in_many(read: Read) -> None:
    batch = [g3([{"op": f"op-{i}"}]) for i in range(50)]
    talk = Talk().open().say(0, g3(HELLO)).say(1, g3(HELLO))
    talk.say(0, b"".join(batch), mtu=60_000).say(0, b"".join(batch), mtu=7)
    assert read(talk.packets).table("ops")["op"] == [f"op-{i}" for i in range(50)] * 2


def test_other_protocols_give_no_messages(read: Read) -> None:
    for said in (
        b"GET / HTTP/1.1\r\nHost: x\r\n\r\n" * 50,
        b"SSH-2.0-OpenSSH\r\n",
        bytes(100_000),
        b"\xff" * 5000,
    ):
        capture = read(Talk().open().say(0, said).say(1, said).packets)
        assert len(capture.messages) == 0 and not capture.conversations
    assert capture.table("flows")["generation"] == ["", ""]


def test_g1_compresses_large_messages() -> None:
    """Output of lz4.block.compress: a size, literals, and a match that overlaps itself."""
    data = b"\x80\x00\x00\x00\x8fabcdefgh\x08\x00\x5d\x80abcdefgh"
    assert lz4_block(data) == b"abcdefgh" * 16
    assert decompress(data, msgpack.packb({"compression": "lz4"})) == b"abcdefgh" * 16
    for bad in (
        data[:-9],
        data[:6],
        b"",
        b"\xff\xff\xff\xff" + data[4:],
        data.replace(b"\x08\x00", b"\x09\x00"),
    ):
        with pytest.raises(UndecodableError):
            lz4_block(bad)
    with pytest.raises(UndecodableError, match="snappy"):
        decompress(data, msgpack.packb({"compression": "snappy"}))


@given(st.binary(max_size=300))
def test_lz4_of_random_bytes_terminates(data: bytes) -> None:
    with contextlib.suppress(UndecodableError):
        assert len(lz4_block(data)) == struct.unpack_from("<I", data)[0]


def test_forged_lengths_allocate_no_memory() -> None:
    """A thousand nested arrays that each claim a million items would need 8 GB."""
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    for bomb in (
        b"\xdd\x00\x10\x00\x00" * 1000 + bytes(1 << 20),
        b"\xdf\x7f\xff\xff\xff" * 400 + bytes(4000),
    ):
        with pytest.raises(UndecodableError):
            unpack(bomb)
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 64_000


def test_deep_nesting_and_odd_keys_are_rejected() -> None:
    for data in (b"\x91" * 100_000, b"\x81\x80\x01", b"\xc1", b"\x81\x91\x80\x01", b"\xd6\xff\xff\xff\xff"):
        with pytest.raises(UndecodableError):
            unpack(data)


def test_impossible_frame_count_is_not_a_message(read: Read) -> None:
    talk = Talk().open().say(0, g3(HELLO)).say(1, g3(HELLO))
    talk.say(0, struct.pack("<2Q", 8 + 8 * 999_999 + 5, 999_999) + bytes(100))
    talk.say(0, struct.pack("<2Q", 1 << 63, 1 << 62) + bytes(100))
    capture = read(talk.packets)
    assert set(capture.table("messages")["kind"]) == {"handshake"}
    assert sum(capture.table("flows")["unframed_bytes"]) == 232


@settings(deadline=None, max_examples=40)
@given(st.lists(st.binary(max_size=200), min_size=1, max_size=8), st.integers(0, 2))
def test_garbage_on_a_connection_never_raises(
    tmp_path_factory: pytest.TempPathFactory, parts: list[bytes], after: int
) -> None:
    from daskwire import open_capture
    from daskwire.base.schema import TABLES

    from tests.unit.daskwire.build import pcap

    talk = Talk().open()
    for _ in range(after):
        talk.say(0, g3(HELLO)).say(1, g3({"op": "heartbeat_worker"}))
    for number, part in enumerate(parts):
        talk.add(number % 2, ACK | PSH, part)
        talk.sent[number % 2] += len(part)
    path = tmp_path_factory.mktemp("garbage") / "x.pcap"
    path.write_bytes(pcap(talk.packets))
    capture = open_capture(path)
    for name in TABLES:
        capture.table(name)
    assert sum(kind == MessageKind.HANDSHAKE for kind in capture.messages.kind) <= after + len(parts)


def test_generations_by_version() -> None:
    for version, generation in (
        ("2.8.0", "G1"),
        ("2021.02.0", "G1"),
        ("2021.3.0", "G2"),
        ("2023.10.1", "G2"),
        ("2023.11.0", "G3"),
    ):
        assert generation_of({version}).value == generation
    assert generation_of({"2.8.0", "2026.8.0"}) is generation_of(set()) is Generation.G23


def test_only_a_valid_message_is_recognised(read: Read) -> None:
    capture = read(Talk().open().say(0, g3({"op": "x"}) + bytes(16)).packets)
    stream = next(iter(capture.conversations.values())).streams
    only = next(iter(stream.values()))
    assert recognise(only, 0) is Generation.G23
    assert recognise(only, 1) is recognise(only, int(only.end[-1]) - 16) is None
