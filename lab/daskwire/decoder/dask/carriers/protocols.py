"""Recognise the protocol under Dask: plain TCP, TLS, WebSocket; or a protocol that is not Dask."""

from __future__ import annotations

from collections.abc import Mapping

from daskwire.decoder.dask.carriers import tls, websocket
from daskwire.decoder.net.stream import ByteStream

OTHERS = {b"SSH-": "ssh", b"GET ": "http", b"POST": "http", b"HEAD": "http", b"PUT ": "http", b"HTTP": "http"}
Streams = dict[int, ByteStream]


def uncover(streams: Streams, secrets: Mapping[tuple[str, bytes], bytes]) -> tuple[str, Streams]:
    """Return the protocol of a connection, and the streams that may contain Dask messages.

    Without keys for an encrypted connection there are no such streams.
    """
    heads = [_head(stream) for stream in streams.values()]
    if any(map(tls.is_tls, heads)):
        decrypted = tls.plain_streams(streams, dict(secrets)) if secrets else None
        if decrypted is None:
            return "tls", {}
        protocol, inner = uncover(dict(decrypted), {})
        return ("wss" if protocol == "ws" else "tls"), inner
    if any(map(websocket.is_upgrade, heads)):
        plain = {d: websocket.plain_stream(stream) for d, stream in streams.items()}
        return "ws", {d: stream for d, stream in plain.items() if stream is not None}
    return next((OTHERS[h[:4]] for h in heads if h[:4] in OTHERS), "tcp"), streams


def _head(stream: ByteStream) -> bytes:
    """Read the first bytes of a stream, none if its beginning is not in the capture."""
    if not stream.opened or not len(stream.end) or int(stream.start[0]) != 0:
        return b""
    head = stream.read(0, min(1024, int(stream.end[0])))
    return bytes(head) if head is not None else b""
