"""The memory that daskwire may use, measured in a separate process."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from tests.unit.daskwire.build import HELLO, Talk, g3, pcap

ITEMS = (
    b"\x80", b"\x81\xc0\xc0", b"\x91" * 400 + b"\x90", b"\xa2ab", b"\xcd\x7f\xff", b"\xd4\x05a", b"\xc4\x01a",
)  # fmt: skip
SIZES = (1 << 20, 7_000_000)  # bytes: below the limit of values, and above it for every item
DECODE = """
import struct
from daskwire.decoder.dask.content import UndecodableError, unpack
def peak():
    lines = open("/proc/self/status").read().splitlines()
    return next(int(line.split()[1]) / 1e3 for line in lines if line.startswith("VmHWM"))
begin = peak()
for size in {sizes}:
    for item in {items}:
        number = size // len(item)
        try: unpack(b"\\xdd" + struct.pack(">I", number) + item * number)
        except UndecodableError: pass
print(peak() - begin)
"""


def test_messagepack_memory_is_within_the_documented_limit() -> None:
    """20 MB of empty maps would become 1.5 GB without the limit."""
    program = DECODE.format(sizes=SIZES, items=ITEMS)
    result = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    input_mb = 3 * max(SIZES) / 1e6  # the bytes, here and in the checker
    assert 40 < float(result.stdout) < 170 + input_mb


LIVE_MB = 300
MESSAGE = g3({"op": "scatter", "data": bytes(1_000_000)})


def connection(number: int) -> bytes:
    """Return the records of a connection that carries 10 MB, ten seconds after the previous one."""
    talk = Talk(client=("10.0.0.2", 20000 + number), time_ns=(1_700_000_000 + 10 * number) * 10**9)
    talk.open().say(0, g3(HELLO)).say(1, g3(HELLO))
    for _ in range(10):
        talk.say(0, MESSAGE, mtu=60_000)
    return pcap(talk.packets)[24:]


def test_live_memory_does_not_grow_with_the_recording() -> None:
    command = [sys.executable, "-m", "daskwire", "live", "-", "--interval", "0.1"]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        assert process.stdin is not None and process.stdout is not None
        process.stdin.write(pcap([]))
        fed = 0
        while fed < 2 * LIVE_MB * 1e6:
            fed += process.stdin.write(connection(fed // 10_000_000))
            process.stdout.readline()  # of an interval
        status = Path(f"/proc/{process.pid}/status").read_text()
        output, _ = process.communicate()
    (peak,) = [int(line.split()[1]) / 1e3 for line in status.splitlines() if line.startswith("VmHWM")]
    assert f"{60 * 12} messages in " in output.decode()
    assert 40 < peak < LIVE_MB
