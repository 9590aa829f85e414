"""Remove the signatures of kernel modules below a directory: an emulated machine takes long to check them.

The format is that of the kernel's scripts/sign-file.c: module, signature, a header that ends with the
signature's length, a magic line. The modules of the root file system keep their signatures.
"""

import struct
import sys
from pathlib import Path

MAGIC = b"~Module signature appended~\n"
HEADER_BYTES = 12

for module in Path(sys.argv[1]).rglob("*.ko"):
    signed = module.read_bytes()
    if signed.endswith(MAGIC):
        (length,) = struct.unpack(">I", signed[-len(MAGIC) - 4 : -len(MAGIC)])
        module.write_bytes(signed[: -len(MAGIC) - HEADER_BYTES - length])
