"""Wires that hold frames back, between network namespaces: for kernels without netem.

A wire joins an interface in one namespace with a port of a bridge in another. Both are TAP devices of this
process, which writes each frame that it reads from one of them to the other, ``delay_s`` later.
"""

from __future__ import annotations

import contextlib
import ctypes
import fcntl
import os
import selectors
import struct
import sys
import threading
import time
from collections import deque
from pathlib import Path

TUNSETIFF, IFF_TAP, IFF_NO_PI = 0x400454CA, 0x0002, 0x1000
CLONE_NEWNET = 0x40000000
FRAME_BYTES = 65_536


def tap(namespace: str, name: str) -> int:
    """Create a TAP device in a namespace and return its file descriptor."""
    opened: list[int] = []

    def create() -> None:  # a namespace is entered by a thread, for good
        with Path(f"/run/netns/{namespace}").open() as entrance:
            if ctypes.CDLL(None, use_errno=True).setns(entrance.fileno(), CLONE_NEWNET):
                raise OSError(ctypes.get_errno(), f"cannot enter {namespace}")
        device = os.open("/dev/net/tun", os.O_RDWR | os.O_NONBLOCK)
        fcntl.ioctl(device, TUNSETIFF, struct.pack("16sH", name.encode(), IFF_TAP | IFF_NO_PI))
        opened.append(device)

    thread = threading.Thread(target=create)
    thread.start()
    thread.join()
    if not opened:
        sys.exit(f"{name}: no TAP device in {namespace}")
    return opened[0]


def forward(wires: list[tuple[int, int]], delay_s: float) -> None:
    """Move frames until the process is ended."""
    selector = selectors.DefaultSelector()
    for near, far in wires:
        selector.register(near, selectors.EVENT_READ, far)
        selector.register(far, selectors.EVENT_READ, near)
    waiting: deque[tuple[float, int, bytes]] = deque()  # in order of time: the delay is the same for all
    while True:
        patience_s = max(0.0, waiting[0][0] - time.monotonic()) if waiting else None
        for key, _ in selector.select(patience_s):
            due = time.monotonic() + delay_s
            try:
                while True:
                    waiting.append((due, key.data, os.read(key.fd, FRAME_BYTES)))
            except BlockingIOError:
                pass
        now = time.monotonic()
        while waiting and waiting[0][0] <= now:
            _, target, frame = waiting.popleft()
            with contextlib.suppress(OSError):  # a full queue drops frames, as that of a real wire does
                os.write(target, frame)


def main() -> None:
    """Arguments: the delay in seconds, the bridge's namespace, then NAMESPACE=PORT for each wire."""
    delay_s, switch, *wires = sys.argv[1:]
    devices = []
    for wire in wires:
        namespace, port = wire.split("=")
        devices.append((tap(namespace, "eth0"), tap(switch, port)))
    print("ready", flush=True)
    forward(devices, float(delay_s))


if __name__ == "__main__":
    main()
