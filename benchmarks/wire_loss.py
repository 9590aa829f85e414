"""Messages found, and false ones, when packets are missing from a capture (classic pcap, little endian)."""

from __future__ import annotations

import argparse
import random
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path

from daskwire import Capture, WireError, open_capture

HEADER, RECORD = 24, 16
Known = dict[tuple[object, ...], tuple[int, str]]


def messages(capture: Capture) -> Known:
    """Endpoints and sequence number of each message's first byte -> its size and ops ("?" when cut)."""
    found, zero = (
        capture.messages,
        dict(zip(capture.pieces.flow.tolist(), capture.pieces.zero.tolist(), strict=True)),
    )
    ops: dict[int, str] = {}
    for message, op in zip(found.op_message.tolist(), found.op_name, strict=True):
        ops[message] = f"{ops.get(message, '')} {op}"
    columns = zip(
        found.flow.tolist(), found.position.tolist(), found.size.tolist(), found.kind.tolist(), strict=True
    )
    return {
        (*capture.connections.endpoints(flow), (zero[flow] + position) & 0xFFFFFFFF): (
            size,
            "?" if kind == 5 else ops.get(i, ""),
        )
        for i, (flow, position, size, kind) in enumerate(columns)
    }


def thinned(path: Path, out: Path, keep: Callable[[int], bool]) -> None:
    """Copy a capture without the packets that ``keep`` refuses (by their number)."""
    with path.open("rb") as source, out.open("wb") as target:
        target.write(source.read(HEADER))
        number = 0
        while len(record := source.read(RECORD)) == RECORD:
            data = source.read(int.from_bytes(record[8:12], "little"))
            if keep(number):
                target.write(record + data)
            number += 1


def main() -> None:
    """Print one line per case."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("capture", type=Path)
    path = parser.parse_args().capture
    try:
        truth = messages(whole := open_capture(path))
    except WireError as error:
        sys.exit(str(error))
    half = whole.tally.packets // 2
    chance = random.Random(2019)
    shares = (0.0001, 0.001, 0.01, 0.05)
    cases: dict[str, Callable[[int], bool]] = {
        f"{share:.2%} lost": (lambda _, share=share: chance.random() >= share) for share in shares
    } | {"second half only": lambda number: number >= half}
    print(f"{path}: {len(truth)} messages")
    for name, keep in cases.items():
        with tempfile.TemporaryDirectory(dir=path.parent) as folder:
            out = Path(folder) / "thin.pcap"
            thinned(path, out, keep)
            found = messages(open_capture(out))
        false = sum(k not in truth or v not in (truth[k], (truth[k][0], "?")) for k, v in found.items())
        print(f"{name:>18}: {len(found):6} found, {false} false")


if __name__ == "__main__":
    main()
