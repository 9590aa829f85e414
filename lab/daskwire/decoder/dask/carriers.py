"""The protocols under Dask: plain TCP, TLS 1.3 (RFC 8446) with a key log, WebSocket (RFC 6455)."""

from __future__ import annotations

import hashlib
import hmac
import importlib
import struct
from collections import OrderedDict
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Any

import numpy as np
import numpy.typing as npt

from daskwire.base.errors import WireError
from daskwire.decoder.net.tcp import Bytes, ByteStream, arrival

# A stream derived from another one: decrypted TLS records, unmasked WebSocket frames.
#
# Pieces are computed when they are read. A few are cached, so memory does not grow with the capture.

CACHED_PIECES = 64


class DerivedStream:
    """A ``ByteStream`` (see ``daskwire.decoder.net.tcp``) of consecutive pieces without holes.

    ``load`` computes the bytes of a piece by its number; empty if they are not in the capture.
    """

    def __init__(
        self, sizes: Sequence[int], times_ns: Sequence[int], opened: bool, load: Callable[[int], bytes]
    ) -> None:
        self.end = np.cumsum(np.array(sizes, np.int64), dtype=np.int64)
        self.start = self.end - np.array(sizes, np.int64)
        self.time_ns = np.array(times_ns, np.int64)
        self.opened = opened
        self._load = load
        self._cache: OrderedDict[int, bytes] = OrderedDict()

    def piece_at(self, position: int) -> int:
        return int(np.searchsorted(self.end, position, side="right"))

    def read(self, position: int, size: int) -> Bytes | None:
        parts, piece = [], self.piece_at(position)
        while size > 0:
            if piece >= len(self.end):
                return None
            start, end = int(self.start[piece]), int(self.end[piece])
            data = self._piece(piece)
            if len(data) != end - start:
                return None
            part = data[position - start : position - start + size]
            parts.append(part)
            position, size, piece = position + len(part), size - len(part), piece + 1
        return parts[0] if len(parts) == 1 else b"".join(parts)

    def heads(self, chunk: slice) -> npt.NDArray[np.uint64]:
        heads = np.zeros((len(self.start[chunk]), 2), np.uint64)
        for row, start in enumerate(self.start[chunk].tolist()):
            head = self.read(start, 16)
            if head is not None:
                heads[row] = np.frombuffer(head, "<u8")
        return heads

    def _piece(self, piece: int) -> bytes:
        if piece not in self._cache:
            self._cache[piece] = self._load(piece)
            if len(self._cache) > CACHED_PIECES:
                self._cache.popitem(last=False)
        self._cache.move_to_end(piece)
        return self._cache[piece]


# Decode WebSocket (RFC 6455): Dask sends the number of frames as a WebSocket message, then one per frame.
#
# The frames are arranged as if they had been sent over TCP, with the header that G3 would have written, so
# that
# all other code works unchanged. A message's size is therefore its size over TCP. Compressed WebSocket
# messages, which Dask does not enable, are not supported.

MAX_FRAMES = 1_000_000
MAX_HTTP = 16384
CONTINUATION, BINARY, CLOSE = 0, 2, 8


@dataclass(frozen=True)
class Fragment:
    """Position, size and mask of the payload of one WebSocket frame in the stream below."""

    position: int
    size: int
    mask: bytes


Message = list[Fragment]  # a WebSocket message


def is_upgrade(head: bytes) -> bool:
    """Return whether a stream begins with the request or the response that opens a WebSocket."""
    return b"upgrade: websocket" in head.lower() and head.startswith((b"GET ", b"HTTP/1.1 101"))


def plain_stream(below: ByteStream) -> DerivedStream | None:
    """Return the Dask stream inside a WebSocket stream, None if its opening is missing.

    It ends at the first hole: WebSocket frames have no mark that would allow resynchronisation.
    """
    begin = _after_http(below)
    if begin is None:
        return None
    pieces: list[bytes | Message] = []
    sizes: list[int] = []
    ends: list[int] = []
    for frames in _dask_messages(below, begin):
        lengths = [sum(part.size for part in frame) for frame in frames]
        header = struct.pack(
            f"<{2 + len(lengths)}Q", 8 + 8 * len(lengths) + sum(lengths), len(lengths), *lengths
        )
        pieces += [header, *frames]
        sizes += [len(header), *lengths]
        ends += [
            frames[0][0].position,
            *(frame[-1].position + max(frame[-1].size - 1, 0) for frame in frames),
        ]
    times = arrival(below, np.array(ends, np.int64)).tolist()

    def load(number: int) -> bytes:
        piece = pieces[number]
        return piece if isinstance(piece, bytes) else b"".join(_unmask(below, part) for part in piece)

    return DerivedStream(sizes, times, True, load)


def _after_http(below: ByteStream) -> int | None:
    if not below.opened or not len(below.end):
        return None
    size = min(MAX_HTTP, int(below.end[0]) - int(below.start[0]))
    head = below.read(0, size)
    end = bytes(head).find(b"\r\n\r\n") if head is not None else -1
    return end + 4 if end >= 0 else None


def _dask_messages(below: ByteStream, position: int) -> Iterator[list[Message]]:
    """Yield the frames of each Dask message (a count, then that many frames) until one is incomplete."""
    messages = _messages(below, position)
    for first in messages:
        count = b"".join(_unmask(below, part) for part in first)
        number = int.from_bytes(count, "little")
        if len(count) != 8 or not 1 <= number <= MAX_FRAMES:
            return
        frames = list(islice(messages, number))
        if len(frames) < number:
            return
        yield frames


def _messages(below: ByteStream, position: int) -> Iterator[Message]:
    """Yield binary messages in order, without control frames, until the stream ends or has a hole."""
    message: Message = []
    while (head := below.read(position, 2)) is not None:
        final, opcode, masked, size = head[0] & 0x80, head[0] & 0x0F, head[1] & 0x80, head[1] & 0x7F
        extra = {126: 2, 127: 8}.get(size, 0)
        rest = below.read(position + 2, extra + (4 if masked else 0))
        if rest is None or head[0] & 0x70:
            return
        size = int.from_bytes(rest[:extra], "big") if extra else size
        position += 2 + len(rest)
        if position + size > int(below.end[-1]):
            return
        if opcode in (CONTINUATION, BINARY):
            message.append(Fragment(position, size, bytes(rest[extra:])))
            if final:
                yield message
                message = []
        elif opcode < CLOSE:
            return
        position += size


def _unmask(below: ByteStream, part: Fragment) -> bytes:
    data = below.read(part.position, part.size) if part.size else b""
    if data is None:
        return b""
    if not part.mask:
        return bytes(data)
    repeated = np.frombuffer((part.mask * (part.size // 4 + 1))[: part.size], np.uint8)
    return (np.frombuffer(data, np.uint8) ^ repeated).tobytes()


# Decrypt TLS 1.3 (RFC 8446) with a key log, the file that SSLKEYLOGFILE names.
#
# The key log identifies a connection by the 32 random bytes of its ClientHello, which must be in the
# capture.
# Records are decrypted once to find their type and size, and again when they are read; no plain text is
# stored.
# Without keys, only sizes and times are available. Needs the package cryptography.

HANDSHAKE, APPLICATION = 22, 23
CLIENT_HELLO, SERVER_HELLO, KEY_UPDATE = 1, 2, 24
HEADER, TAG, MAX_RECORD = 5, 16, (1 << 14) + 256
SUITES = {
    0x1301: ("AESGCM", 16, "sha256"),
    0x1302: ("AESGCM", 32, "sha384"),
    0x1303: ("ChaCha20Poly1305", 32, "sha256"),
}
KeyLog = dict[tuple[str, bytes], bytes]


@dataclass(frozen=True)
class Record:
    """A record of application data.

    Attributes:
        position: stream position of its header.
        size: encrypted size, bytes.
        key: the key that decrypts it.
        number: its sequence number for that key.
        plain: decrypted size, bytes.
    """

    position: int
    size: int
    key: Key
    number: int
    plain: int


class Key:
    """A traffic key, derived from a secret (RFC 8446, 7.3)."""

    def __init__(self, secret: bytes, suite: int) -> None:
        algorithm, size, self._hash = SUITES[suite]
        self.secret, self.suite = secret, suite
        self._iv = int.from_bytes(self._expand(b"iv", 12), "big")
        self._cipher: Any = getattr(_aead(), algorithm)(self._expand(b"key", size))

    def _expand(self, label: bytes, size: int) -> bytes:
        name = b"tls13 " + label
        info = struct.pack(">HB", size, len(name)) + name + b"\0"
        return hmac.new(self.secret, info + b"\x01", self._hash).digest()[:size]

    def updated(self) -> Key:
        """Return the key that follows a KeyUpdate message."""
        return Key(self._expand(b"traffic upd", hashlib.new(self._hash).digest_size), self.suite)

    def open(self, number: int, header: bytes, sealed: bytes) -> bytes | None:
        """Decrypt a record; the last byte is its inner type. Return None for a wrong key or number."""
        nonce = (self._iv ^ number).to_bytes(12, "big")
        try:
            plain: bytes = self._cipher.decrypt(nonce, sealed, header)
        except importlib.import_module("cryptography.exceptions").InvalidTag:
            return None
        return plain


def _aead() -> Any:
    try:
        return importlib.import_module("cryptography.hazmat.primitives.ciphers.aead")
    except ImportError as error:
        raise WireError("decrypting TLS needs the package cryptography") from error


def read_key_log(text: str) -> KeyLog:
    """Parse a key log into secrets by label and client random."""
    secrets: KeyLog = {}
    for line in text.splitlines():
        words = line.split()
        if len(words) == 3 and not line.startswith("#"):
            try:
                secrets[words[0], bytes.fromhex(words[1])] = bytes.fromhex(words[2])
            except ValueError:
                continue
    return secrets


def is_tls(head: bytes) -> bool:
    """Return whether a stream begins with a TLS handshake record."""
    return len(head) >= 3 and head[0] == HANDSHAKE and head[1] == 3


def plain_streams(streams: dict[int, ByteStream], secrets: KeyLog) -> dict[int, DerivedStream] | None:
    """Decrypt both streams of a connection. Return None if the key log does not contain its keys."""
    hellos = {direction: _hello(stream) for direction, stream in streams.items()}
    client = next((d for d, hello in hellos.items() if hello and hello[0] == CLIENT_HELLO), None)
    if client is None or client ^ 1 not in streams:
        return None
    client_hello, server_hello = hellos[client], hellos[client ^ 1]
    if not client_hello or not server_hello:
        return None
    random, suite = client_hello[6:38], _suite(server_hello)
    if suite not in SUITES:
        return None
    plain = {}
    for direction, side in ((client, "CLIENT"), (client ^ 1, "SERVER")):
        handshake = secrets.get((f"{side}_HANDSHAKE_TRAFFIC_SECRET", random))
        traffic = secrets.get((f"{side}_TRAFFIC_SECRET_0", random))
        if handshake is None or traffic is None:
            return None
        records = list(_records(streams[direction], Key(handshake, suite), Key(traffic, suite)))
        plain[direction] = _decrypted(streams[direction], records)
    return plain


def _decrypted(below: ByteStream, records: list[Record]) -> DerivedStream:
    ends = np.array([r.position + HEADER + r.size - 1 for r in records], np.int64)

    def load(number: int) -> bytes:
        record = records[number]
        text = _open(below, record.position, record.size, record.key, record.number)
        return text[: record.plain] if text else b""

    return DerivedStream([r.plain for r in records], arrival(below, ends).tolist(), True, load)


def _hello(stream: ByteStream) -> bytes | None:
    """Read the handshake message in the first record."""
    head = stream.read(0, HEADER) if stream.opened else None
    if head is None or head[0] != HANDSHAKE:
        return None
    body = stream.read(HEADER, min(int.from_bytes(head[3:5], "big"), MAX_RECORD))
    return bytes(body) if body is not None and len(body) >= 44 else None


def _suite(server_hello: bytes) -> int:
    at = 39 + server_hello[38]  # type, length, version, random, session id
    return int.from_bytes(server_hello[at : at + 2], "big")


def _records(stream: ByteStream, handshake: Key, application: Key) -> Iterator[Record]:
    """Yield the records of application data up to the first hole: after it, sequence numbers are unknown."""
    position, number, key = 0, 0, handshake
    while (head := stream.read(position, HEADER)) is not None:
        kind, size = head[0], int.from_bytes(head[3:5], "big")
        if head[1] != 3 or size > MAX_RECORD:
            return
        if kind == APPLICATION:
            plain = _open(stream, position, size, key, number)
            if plain is None and key is handshake:
                key, number = application, 0
                plain = _open(stream, position, size, key, number)
            if plain is None:
                return
            number += 1
            content = plain.rstrip(b"\0")
            if content and content[-1] == APPLICATION and key is not handshake:
                yield Record(position, size, key, number - 1, len(content) - 1)
            elif content and content[-1] == HANDSHAKE and key is not handshake and content[0] == KEY_UPDATE:
                key, number = key.updated(), 0
        position += HEADER + size


def _open(stream: ByteStream, position: int, size: int, key: Key, number: int) -> bytes | None:
    data = stream.read(position, HEADER + size)
    return key.open(number, bytes(data[:HEADER]), bytes(data[HEADER:])) if data is not None else None


# Recognise the protocol under Dask: plain TCP, TLS, WebSocket; or a protocol that is not Dask.

OTHERS = {b"SSH-": "ssh", b"GET ": "http", b"POST": "http", b"HEAD": "http", b"PUT ": "http", b"HTTP": "http"}
Streams = dict[int, ByteStream]


def uncover(streams: Streams, secrets: Mapping[tuple[str, bytes], bytes]) -> tuple[str, Streams]:
    """Return the protocol of a connection, and the streams that may contain Dask messages.

    Without keys for an encrypted connection there are no such streams.
    """
    heads = [_head(stream) for stream in streams.values()]
    if any(map(is_tls, heads)):
        decrypted = plain_streams(streams, dict(secrets)) if secrets else None
        if decrypted is None:
            return "tls", {}
        protocol, inner = uncover(dict(decrypted), {})
        return ("wss" if protocol == "ws" else "tls"), inner
    if any(map(is_upgrade, heads)):
        plain = {d: plain_stream(stream) for d, stream in streams.items()}
        return "ws", {d: stream for d, stream in plain.items() if stream is not None}
    return next((OTHERS[h[:4]] for h in heads if h[:4] in OTHERS), "tcp"), streams


def _head(stream: ByteStream) -> bytes:
    """Read the first bytes of a stream, none if its beginning is not in the capture."""
    if not stream.opened or not len(stream.end) or int(stream.start[0]) != 0:
        return b""
    head = stream.read(0, min(1024, int(stream.end[0])))
    return bytes(head) if head is not None else b""
