"""Programs in the way of packets, for wire_faults.py: forwarder, TCP relay, doubled address.

python interference.py forward LEFT RIGHT REPORT DELAY_MS REPEATED_SHARE
python interference.py relay PORT TARGET
python interference.py announce ADDRESS EVERY_S
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import random
import select
import signal
import socket
import struct
import sys
import time
from collections import deque
from pathlib import Path


def forward(left: str, right: str, report: str, delay_ms: str, repeated: str) -> None:
    """Forward frames between two devices after a delay; repeat a share of them.

    At SIGTERM, write how many frames were lost, and how late the latest one was sent.
    """
    os.sched_setscheduler(0, os.SCHED_FIFO, os.sched_param(1))  # routers do not wait for the CPUs of hosts
    signal.signal(signal.SIGTERM, lambda *_: sys.exit())
    ends = [socket.socket(socket.AF_PACKET, socket.SOCK_RAW, socket.htons(3)) for _ in range(2)]
    for end, name in zip(ends, (left, right), strict=True):
        end.bind((name, 0))
        end.setsockopt(socket.SOL_SOCKET, 33, 64 << 20)  # SO_RCVBUFFORCE
        end.setsockopt(socket.SOL_SOCKET, 35, 1)  # SO_TIMESTAMPNS
    chance, pending = random.Random(1), deque[tuple[float, socket.socket, bytes]]()
    late_s, lost = 0.0, 0
    try:
        while True:
            wait_s = max(pending[0][0] - time.time(), 0.0) if pending else None
            for end in select.select(ends, [], [], wait_s)[0]:
                frame, ((_, _, arrival), *_), _, (_, _, kind, *_) = end.recvmsg(65536, 64)
                if kind != socket.PACKET_OUTGOING:
                    second, nanosecond = struct.unpack("qq", arrival)
                    other = ends[1 - ends.index(end)]
                    for _ in range(1 + (chance.random() < float(repeated))):
                        pending.append((second + nanosecond / 1e9 + float(delay_ms) / 1e3, other, frame))
            while pending and pending[0][0] <= time.time():
                due, other, frame = pending.popleft()
                late_s = max(late_s, time.time() - due)
                try:
                    other.send(frame)
                except OSError:
                    lost += 1
    finally:
        for end in ends:
            lost += struct.unpack("II", end.getsockopt(263, 6, 8))[1]  # SOL_PACKET, PACKET_STATISTICS
        Path(report).write_text(json.dumps({"late_ms": round(1e3 * late_s, 1), "lost": lost}))


def relay(port: str, target: str) -> None:
    """Relay TCP connections to a scheduler; without a target, accept them and wait."""

    async def copy(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(OSError):
            while data := await reader.read(1 << 16):
                writer.write(data)
                await writer.drain()
        writer.close()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if not target:
            await asyncio.sleep(3600)
        other_reader, other_writer = await asyncio.open_connection(target, 8786)
        await asyncio.gather(copy(reader, other_writer), copy(other_reader, writer))

    async def run() -> None:
        async with await asyncio.start_server(serve, "0.0.0.0", int(port)) as server:
            await server.serve_forever()

    asyncio.run(run())


def announce(address: str, every_s: str) -> None:
    """Broadcast gratuitous ARP for an address."""
    raw = socket.socket(socket.AF_PACKET, socket.SOCK_RAW)
    raw.bind(("eth0", 0))
    mac, ip = raw.getsockname()[4], socket.inet_aton(address)
    arp = struct.pack(">HHBBH6s4s6s4s", 1, 0x0800, 6, 4, 2, mac, ip, b"\xff" * 6, ip)
    while True:
        raw.send(b"\xff" * 6 + mac + b"\x08\x06" + arp)
        print("announced", flush=True)
        time.sleep(float(every_s))


if __name__ == "__main__":
    {"forward": forward, "relay": relay, "announce": announce}[sys.argv[1]](*sys.argv[2:])
