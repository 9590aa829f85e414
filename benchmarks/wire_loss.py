"""Count correct and false messages when packets are missing from a capture (little-endian pcap).

python benchmarks/wire_loss.py CAPTURE
"""

from __future__ import annotations

import random
import sys
import tempfile
from argparse import Namespace
from collections.abc import Callable
from pathlib import Path

from benchmarks.support.command_line import parse

if __name__ == "__main__":  # before what takes long to import
    ARGUMENTS = parse(__doc__, {"capture": (Path, "a pcap file")}, smallest="{capture}")

from daskwire import Capture, WireError, open_capture

HEADER, RECORD = 24, 16
MessageMap = dict[tuple[object, ...], tuple[int, str]]


def messages(capture: Capture) -> MessageMap:
    """Map endpoints and sequence number of each message to its size and ops ("?" if truncated)."""
    table = capture.messages
    zero = dict(zip(capture.pieces.flow.tolist(), capture.pieces.zero.tolist(), strict=True))
    ops: dict[int, str] = {}
    for message, op in zip(table.op_message.tolist(), table.op_name, strict=True):
        ops[message] = f"{ops.get(message, '')} {op}"
    columns = zip(
        table.flow.tolist(), table.position.tolist(), table.size.tolist(), table.kind.tolist(), strict=True
    )
    return {
        (*capture.connections.endpoints(flow), (zero[flow] + position) & 0xFFFFFFFF): (
            size,
            "?" if kind == 5 else ops.get(i, ""),
        )
        for i, (flow, position, size, kind) in enumerate(columns)
    }


def thinned(path: Path, out: Path, keep: Callable[[int], bool]) -> None:
    """Copy a capture without the packets whose number ``keep`` rejects."""
    with path.open("rb") as source, out.open("wb") as target:
        target.write(source.read(HEADER))
        number = 0
        while len(record := source.read(RECORD)) == RECORD:
            data = source.read(int.from_bytes(record[8:12], "little"))
            if keep(number):
                target.write(record + data)
            number += 1


def main(args: Namespace) -> None:
    """Print the number of messages for each share of lost packets."""
    path = args.capture
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
            decoded = messages(open_capture(out))
        false = sum(k not in truth or v not in (truth[k], (truth[k][0], "?")) for k, v in decoded.items())
        print(f"{name:>18}: {len(decoded):6} decoded, {false} false")


if __name__ == "__main__":
    main(ARGUMENTS)
