"""``--follow``: a line per second with the ops that were said in it, while the file still grows."""

from __future__ import annotations

import time
from collections import Counter
from datetime import datetime
from pathlib import Path

from daskwire.follow import Follower, Said
from daskwire.terminal.text import say


def watch(file: Path, interval_s: float = 1.0, rounds: int | None = None) -> None:
    """Until Ctrl-C, or until the file turns out to be damaged. Raises WireError."""
    follower = Follower(file)
    try:
        while rounds is None or rounds > 0:
            _tell(follower.poll())
            follower.check()
            rounds = None if rounds is None else rounds - 1
            time.sleep(interval_s)
    except KeyboardInterrupt:
        return


def _tell(said: list[Said]) -> None:
    ops = Counter(op for message in said for op in message.ops)
    text = "  ".join(f"{op} {number}" for op, number in ops.most_common(8))
    size = sum(message.size for message in said)
    say(f"{datetime.now():%H:%M:%S}  {len(said):6} messages  {size / 1e6:9.2f} MB  {text}")
