"""The option ``--follow``: print the ops of each second while the capture file grows."""

from __future__ import annotations

import time
from collections import Counter
from datetime import datetime
from pathlib import Path

from daskwire.follow import Follower, NewMessage
from daskwire.terminal.text import write_line


def watch(file: Path, interval_s: float = 1.0, rounds: int | None = None) -> None:
    """Print a line per interval until Ctrl-C (or for a number of rounds).

    Raises:
        WireError: the file is damaged.
    """
    follower = Follower(file)
    try:
        while rounds is None or rounds > 0:
            _print(follower.poll())
            follower.check()
            rounds = None if rounds is None else rounds - 1
            time.sleep(interval_s)
    except KeyboardInterrupt:
        return


def _print(messages: list[NewMessage]) -> None:
    ops = Counter(op for message in messages for op in message.ops)
    counts = "  ".join(f"{op} {number}" for op, number in ops.most_common(8))
    size = sum(message.size for message in messages)
    write_line(f"{datetime.now():%H:%M:%S}  {len(messages):6} messages  {size / 1e6:9.2f} MB  {counts}")
