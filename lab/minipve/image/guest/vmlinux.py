"""Unpack the kernel of a bzImage to a file: an emulated machine takes seconds to unpack it at each boot."""

import lzma
import sys
from pathlib import Path

packed = Path(sys.argv[1]).read_bytes()
kernel = lzma.LZMADecompressor().decompress(packed[packed.index(b"\xfd7zXZ\x00") :])
assert kernel.startswith(b"\x7fELF"), "not an ELF kernel"
Path(sys.argv[2]).write_bytes(kernel)
