"""Export tables as rows, Parquet or pandas frames, and packets with comments."""

from __future__ import annotations

import importlib
import math
import os
import shutil
import tempfile
from collections import Counter, defaultdict
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any

import numpy as np

from daskwire.analysis.tables.messages import message_ops
from daskwire.base.arrays import Ints
from daskwire.base.errors import WireError
from daskwire.base.printable import plain
from daskwire.base.schema import TABLES, Table
from daskwire.decoder.capture import Capture
from daskwire.decoder.dask.content import text
from daskwire.decoder.file.pcapng_writer import PcapngWriter
from daskwire.decoder.file.reading import between, read_blocks
from daskwire.decoder.file.records import Progress
from daskwire.decoder.net.tcp import Stream

if TYPE_CHECKING:
    import pandas as pd

    from daskwire.decoder.capture import Capture


# Export tables: rows for JSON, Parquet files, pandas frames.


def rows(table: Table, limit: int | None = None) -> list[dict[str, Any]]:
    """Convert a table to a list of dicts for JSON (NaN becomes None), at most ``limit`` of them."""
    names = list(table)
    number = len(table[names[0]])
    selected = range(number if limit is None else min(limit, number))
    return [{name: _plain(table[name][i]) for name in names} for i in selected]


def _plain(value: Any) -> Any:
    return None if isinstance(value, float) and not math.isfinite(value) else value


def to_pandas(table: Table) -> pd.DataFrame:
    """Convert a table to a pandas frame.

    Raises:
        WireError: pandas is not installed.
    """
    frame: pd.DataFrame = _import("pandas").DataFrame(table)
    return frame


def write_parquet(capture: Capture, folder: Path, names: list[str] | None = None) -> list[Path]:
    """Write tables (by default all) as Parquet, with the meaning of each column in the metadata.

    Raises:
        WireError: pyarrow is not installed, or the folder cannot be written.
    """
    files = [f"{name}.parquet" for name in names or TABLES]
    is_new = not folder.exists()
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(prefix=".tmp-", dir=folder) as draft:
            _write_tables(capture, Path(draft), names or list(TABLES))
            for file in files:
                Path(draft, file).replace(folder / file)
    except OSError as error:
        if is_new:
            shutil.rmtree(folder, ignore_errors=True)
        reason = os.strerror(error.errno) if error.errno else str(error)
        raise WireError(f"{folder}: {reason}") from error
    return [folder / file for file in files]


def _write_tables(capture: Capture, folder: Path, names: list[str]) -> None:
    arrow, parquet = _import("pyarrow"), _import("pyarrow.parquet")
    for name in names:
        columns = {column: arrow.array(_same_type(v)) for column, v in capture.table(name).items()}
        fields = [
            arrow.field(column, array.type, metadata={"description": TABLES[name][column]})
            for column, array in columns.items()
        ]
        table = arrow.table(list(columns.values()), arrow.schema(fields))
        parquet.write_table(table, folder / f"{name}.parquet", write_page_checksum=True)


def refuse_unwritable(folder: Path) -> None:
    """Raise WireError if a folder, which need not exist yet, cannot be written."""
    nearest = next(path for path in (folder.absolute(), *folder.absolute().parents) if os.path.lexists(path))
    try:
        tempfile.TemporaryFile(dir=nearest).close()
    except OSError as error:
        raise WireError(f"{folder}: {error.strerror}") from error


def _same_type(values: list[Any]) -> list[Any]:
    """Make a column uniform: numbers if all values are numbers, else text (captures are untrusted)."""
    kinds = {type(value) for value in values if value is not None}
    if kinds <= {int} and all(v is None or abs(v) < 1 << 63 for v in values):
        return values
    if kinds <= {int, float}:
        return [None if value is None else float(value) for value in values]
    return values if kinds <= {str} else [None if value is None else str(value) for value in values]


def _import(module: str) -> Any:
    try:
        return importlib.import_module(module)
    except ImportError as error:
        raise WireError(f"this export needs the package {module.split('.')[0]}") from error


# Copy the packets of a capture to a pcapng file whose comments name the Dask messages that begin in them.

MAX_PACKET_COMMENTS = 50
MAX_COMMENT_OPS = 8
MAX_OP_KEYS = 3


@dataclass(frozen=True)
class Packets:
    """All packets of the files as arrays of equal length, by address."""

    address: Ints
    time_ns: Ints
    captured: Ints
    length: Ints
    file: Ints
    link: Ints


def write_annotated(capture: Capture, stream: IO[bytes]) -> int:
    """Write all packets of the requested time span in time order, with comments.

    Packets that are not Dask, or not TCP, are copied as well. Clocks are aligned if the files' clocks differ.

    Returns:
        The number of comments.

    Raises:
        WireError: a file can no longer be read.
    """
    packets = _packets(capture)
    comments = _comments(capture, packets)
    writer = PcapngWriter(stream)
    for file in capture.files:
        if file.progress.secrets:
            writer.key_log(file.progress.secrets)
    interfaces: dict[tuple[int, int], int] = {}
    columns = (packets.address, packets.time_ns, packets.captured, packets.length, packets.file, packets.link)
    order = np.argsort(packets.time_ns, kind="stable")
    rows = zip(order.tolist(), *(column[order].tolist() for column in columns), strict=True)
    for row, address, time_ns, captured, length, file, link in rows:
        if (file, link) not in interfaces:
            interfaces[file, link] = writer.interface(link, plain(capture.files[file].path))
        data = capture.memory.read(address, captured)
        writer.packet(interfaces[file, link], time_ns, data, length, comments.get(row, ()))
    return sum(map(len, comments.values()))


def _packets(capture: Capture) -> Packets:
    """Read the records of the files once more."""
    tally, parts = capture.tally, []
    regions = zip(capture.files, capture.memory.regions(), strict=True)
    for number, (file, (base, view)) in enumerate(regions):
        for block in read_blocks(file.path, view, Progress()):
            records = between(block, tally.first_ns, tally.last_ns + 1)
            many = len(records.offset)
            parts.append(
                np.array([
                    records.offset + base,
                    records.time_ns - file.progress.offset_ns,
                    records.captured.astype(np.int64),
                    records.length.astype(np.int64),
                    np.full(many, number),
                    np.full(many, records.link),
                ])
            )  # fmt: skip
    table = np.concatenate(parts, axis=1) if parts else np.zeros((6, 0), np.int64)
    return Packets(*table[:, np.argsort(table[0], kind="stable")])


def _comments(capture: Capture, packets: Packets) -> dict[int, list[str]]:
    """Return the comments of each packet (its row), one per message that begins in it."""
    result: defaultdict[int, list[str]] = defaultdict(list)
    if not len(packets.address):
        return {}
    rows = np.searchsorted(packets.address, _addresses(capture), side="right") - 1
    omitted: Counter[int] = Counter()
    for row, comment in zip(rows.tolist(), _texts(capture), strict=True):
        if len(result[row]) < MAX_PACKET_COMMENTS:
            result[row].append(comment)
        else:
            omitted[row] += 1
    for row, number in omitted.items():
        result[row].append(f"Dask: {number} more messages begin in this packet")
    return result


def _addresses(capture: Capture) -> Ints:
    """Return the address of the first byte of each message; of its packet's payload if it is encrypted."""
    messages, segments = capture.messages, capture.segments
    result = np.zeros(len(messages), np.int64)
    for connection, conversation in capture.conversations.items():
        for direction in conversation.framed:
            flow = 2 * connection + direction
            of_flow = np.flatnonzero(messages.flow == flow)
            stream = conversation.streams[direction]
            if isinstance(stream, Stream):
                position = messages.position[of_flow]
                piece = np.minimum(np.searchsorted(stream.end, position, side="right"), len(stream.end) - 1)
                result[of_flow] = stream.offset[piece] + position - stream.start[piece]
            else:
                lane = capture.lanes.rows(flow)
                row = np.searchsorted(segments.time_ns[lane], messages.time_ns[of_flow])
                result[of_flow] = segments.offset[lane[np.minimum(row, len(lane) - 1)]]
    return result


def _texts(capture: Capture) -> Iterator[str]:
    """Yield the comment of each message: its ops, sender, receiver, size and times."""
    messages = capture.messages
    ops = _ops(capture)
    source, destination = capture.sources[messages.flow], capture.sources[messages.flow ^ 1]
    columns = (messages.time_ns, messages.end_ns, messages.size, messages.answer)
    rows = zip(message_ops(capture), source, destination, *(c.tolist() for c in columns), strict=True)
    begins = messages.time_ns.tolist()
    for row, (name, sender, receiver, begin, end, size, answer) in enumerate(rows):
        line = f"Dask: {ops.get(row) or name or 'message'}, {sender} -> {receiver}, {size:,} bytes"
        if end > begin:
            line += f", last byte after {(end - begin) / 1e6:.3f} ms"
        if answer > row:
            line += f", reply after {(begins[answer] - begin) / 1e6:.3f} ms"
        yield plain(line)


def _ops(capture: Capture) -> dict[int, str]:
    """Return the ops of messages, with the number of each in a batch, and the first task keys."""
    keys: defaultdict[int, dict[str, list[str]]] = defaultdict(lambda: defaultdict(list))
    messages = capture.messages
    for message, op, key in zip(messages.op_message.tolist(), messages.op_name, messages.op_key, strict=True):
        keys[message][op].append("" if key is None else text(key))
    return {message: _described(of_message) for message, of_message in keys.items()}


def _described(keys: dict[str, list[str]]) -> str:
    parts = []
    for op, of_op in list(keys.items())[:MAX_COMMENT_OPS]:
        task_keys = [key for key in of_op if key]
        number = op if len(of_op) == 1 else f"{op} x {len(of_op)}"
        more = ", ..." if len(task_keys) > MAX_OP_KEYS else ""
        parts.append(f"{number} ({', '.join(task_keys[:MAX_OP_KEYS])}{more})" if task_keys else number)
    return " + ".join(parts) + (" + ..." if len(keys) > MAX_COMMENT_OPS else "")
