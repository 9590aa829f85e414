"""The memory that decoding an untrusted file may use, measured in a separate process."""

from __future__ import annotations

import subprocess
import sys

ITEMS = (
    b"\x80", b"\x81\xc0\xc0", b"\x91" * 400 + b"\x90", b"\xa2ab", b"\xcd\x7f\xff", b"\xd4\x05a", b"\xc4\x01a",
)  # fmt: skip
SIZES = (1 << 20, 7_000_000)  # bytes: below the limit of values, and above it for every item
DECODE = """
import struct
from daskwire.dask.messagepack import UndecodableError, unpack
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
