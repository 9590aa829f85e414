"""Limits on disk, memory and time for any file, whatever it claims."""

from __future__ import annotations

import bz2
import gzip
import lzma
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgpack
import pyarrow
import pytest
from daskwire import Capture, WireError, open_capture
from daskwire.decoder.dask import content
from daskwire.decoder.dask.content import UndecodableError, name, unpack
from daskwire.decoder.file import source
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.unit.daskwire.build import HELLO, Talk, g3, pcap, small_talk


def test_large_message_with_many_values_is_decoded() -> None:
    large = {"op": "update-graph", "tasks": {f"key-{i}": b"x" * 300 for i in range(100_000)}}
    assert unpack(msgpack.packb(large)) == large


VALUES = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**63), 2**64 - 1) | st.floats() | st.text() | st.binary()
    | st.builds(msgpack.ExtType, st.integers(0, 127), st.binary(max_size=20)),
    lambda inner: st.lists(inner) | st.dictionaries(st.text() | st.integers(0, 9), inner), max_leaves=30,
)  # fmt: skip


def values_in(item: Any) -> int:
    if isinstance(item, dict):
        return 1 + sum(1 + values_in(value) for value in item.values())
    return 1 + sum(map(values_in, item)) if isinstance(item, list) else 1


@settings(deadline=None)
@given(VALUES, st.sampled_from([0, 40, 300, 70_000]))
def test_value_count_is_exact(value: Any, pad: int) -> None:
    item = [value, "x" * pad, b"x" * pad, msgpack.ExtType(1, b"x" * pad), [0] * pad]
    body, number = msgpack.packb(item), values_in([value, 0, 0, 0, []]) + pad
    assert content._has_at_most(body, number) and not content._has_at_most(body, number - 1)


def test_stored_keys_have_limited_length(read: Callable[..., Capture]) -> None:
    """A task key may have any type; only text and plain tuples are stored unchanged."""
    deep: Any = "x"
    for _ in range(900):
        deep = (deep,)
    keys = ["plain", ["tuple", 1, 2], [{}] * 50_000, {"a": 1}, deep]
    talk = Talk().open().say(0, g3(HELLO)).say(1, g3(HELLO))
    talk.say(1, g3([{"op": "free-keys", "key": key} for key in keys]), mtu=60_000)
    actual = read(talk.packets).messages.op_key
    assert actual[:2] == ["plain", ("tuple", 1, 2)] and all(isinstance(key, str) for key in actual[2:])
    assert all(len(str(key)) <= 4096 for key in actual)
    assert name(("a", ("b", 1))) == "('a', ('b', 1))"


def test_lz4_block_above_the_limit_is_rejected(monkeypatch: pytest.MonkeyPatch) -> None:
    data = b"\x80\x00\x00\x00\x8fabcdefgh\x08\x00\x5d\x80abcdefgh"
    assert len(content.lz4_block(data)) == 128
    monkeypatch.setattr(content, "MAX_MESSAGE_BYTES", 127)
    with pytest.raises(UndecodableError, match="impossible size"):
        content.lz4_block(data)


PACKERS = {
    "gz": gzip.compress,
    "xz": lzma.compress,
    "bz2": bz2.compress,
    "zst": lambda raw: pyarrow.compress(raw, "zstd", asbytes=True),
}


def test_xz_file_that_needs_much_memory_is_refused(tmp_path: Path) -> None:
    filters = [{"id": lzma.FILTER_LZMA2, "preset": 6, "dict_size": 1 << 30}]
    path = tmp_path / "dictionary.pcap.xz"
    path.write_bytes(lzma.compress(pcap(small_talk().packets), filters=filters))
    with pytest.raises(WireError, match="more than 256 MiB of memory"):
        open_capture(path)


@pytest.mark.parametrize("kind", PACKERS)
def test_decompression_stops_at_the_limit(tmp_path: Path, kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The limit is 1 GB or 100 x the file size; the test lowers the first."""
    assert (source.MINIMUM_LIMIT, source.RATIO_LIMIT) == (1 << 30, 100)
    monkeypatch.setattr(source, "MINIMUM_LIMIT", 1 << 20)
    path = tmp_path / f"bomb.pcap.{kind}"
    path.write_bytes(PACKERS[kind](pcap(small_talk().packets) + bytes(50_000_000)))
    assert path.stat().st_size < 200_000
    written: list[int] = []
    with open(path, "rb") as file, open(tmp_path / "plain", "w+b") as plain:  # noqa: PTH123
        with pytest.raises(WireError, match="decompresses to more than"):
            source.unpack(file, plain, str(path))
        written.append(plain.tell())
    assert written[0] <= max(1 << 20, 100 * path.stat().st_size) + source.UNPACK_BYTES
    with pytest.raises(WireError) as caught:
        open_capture(path)
    message, command = (
        str(caught.value),
        {"gz": "gzip -dk", "xz": "xz -dk", "bz2": "bzip2 -dk", "zst": "zstd -d"}[kind],
    )
    assert message.startswith(f"{path}: decompresses to more than") and command in message


@pytest.mark.parametrize("kind", PACKERS)
def test_small_file_with_high_compression_ratio_is_read(tmp_path: Path, kind: str) -> None:
    talk = small_talk(3)
    for _ in range(20):
        talk.say(0, g3({"op": "x", "pad": "y" * 100_000}), mtu=60_000)
    path = tmp_path / f"good.pcap.{kind}"
    path.write_bytes(PACKERS[kind](pcap(talk.packets)))
    assert path.stat().st_size * 100 < len(pcap(talk.packets))
    assert open_capture(path).tally.packets == len(talk.packets)


def test_full_disk_is_reported(tmp_path: Path) -> None:
    class Full:
        def write(self, part: bytes) -> int:
            raise OSError(28, "No space left on device")

    path = tmp_path / "a.pcap.gz"
    path.write_bytes(gzip.compress(pcap(small_talk().packets)))
    with (
        path.open("rb") as file,
        pytest.raises(WireError, match=r"cannot store it in .*: No space left"),
    ):
        source.unpack(file, Full(), str(path))
