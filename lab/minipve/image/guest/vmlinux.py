"""Write the kernel proper that is packed in a bzImage: an emulated machine takes seconds to unpack it."""

import lzma
import sys
from pathlib import Path

packed = Path(sys.argv[1]).read_bytes()
kernel = lzma.LZMADecompressor().decompress(packed[packed.index(b"\xfd7zXZ\x00") :])
assert kernel.startswith(b"\x7fELF"), "not an ELF kernel"
Path(sys.argv[2]).write_bytes(kernel)
