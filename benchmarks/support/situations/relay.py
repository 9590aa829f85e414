"""Pass TCP connections on to a port of this machine, slowly.

    python relay.py PORT MBIT

Listens on the loopback interface and prints on which port. Each direction of each connection carries MBIT
megabits a second. Runs until it is killed.
"""

from __future__ import annotations

import asyncio
import sys
import time

PIECE_BYTES = 16_384


async def pump(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, bytes_per_s: float) -> None:
    """Copy one direction, and let each piece take its time."""
    free_s = 0.0  # when the link is free again
    while piece := await reader.read(PIECE_BYTES):
        free_s = max(free_s, time.monotonic()) + len(piece) / bytes_per_s
        await asyncio.sleep(free_s - time.monotonic())
        writer.write(piece)
        await writer.drain()
    writer.close()


async def main(port: int, mbit: float) -> None:
    """Serve connections to a port at a limited rate until killed."""

    async def connect(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        source, target = await asyncio.open_connection("127.0.0.1", port)
        rate = mbit * 125_000
        await asyncio.gather(pump(reader, target, rate), pump(source, writer, rate), return_exceptions=True)

    server = await asyncio.start_server(connect, "127.0.0.1", 0)
    print(server.sockets[0].getsockname()[1], flush=True)
    await server.serve_forever()


if __name__ == "__main__":
    asyncio.run(main(int(sys.argv[1]), float(sys.argv[2])))
