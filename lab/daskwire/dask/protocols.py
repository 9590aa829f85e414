"""What a connection speaks below Dask: plain TCP, TLS, WebSocket, or something that is not Dask at all."""

from __future__ import annotations

from collections.abc import Mapping

from daskwire.dask import tls, websocket
from daskwire.net.stream import ByteStream

KNOWN = {b"SSH-": "ssh", b"GET ": "http", b"POST": "http", b"HEAD": "http", b"PUT ": "http", b"HTTP": "http"}
Streams = dict[int, ByteStream]


def uncover(both: Streams, secrets: Mapping[tuple[str, bytes], bytes]) -> tuple[str, Streams]:
    """The protocol, and the streams in which Dask's framing would be found (none when they stay covered)."""
    heads = [_head(stream) for stream in both.values()]
    if any(map(tls.is_tls, heads)):
        opened = tls.plain_streams(both, dict(secrets)) if secrets else None
        if opened is None:
            return "tls", {}
        inner, streams = uncover(dict(opened), {})
        return ("wss" if inner == "ws" else "tls"), streams
    if any(map(websocket.is_upgrade, heads)):
        plain = {d: websocket.plain_stream(stream) for d, stream in both.items()}
        return "ws", {d: stream for d, stream in plain.items() if stream is not None}
    return next((KNOWN[h[:4]] for h in heads if h[:4] in KNOWN), "tcp"), both


def _head(stream: ByteStream) -> bytes:
    """The beginning of a stream whose beginning is in the capture."""
    if not stream.opened or not len(stream.end) or int(stream.start[0]) != 0:
        return b""
    head = stream.read(0, min(1024, int(stream.end[0])))
    return bytes(head) if head is not None else b""
