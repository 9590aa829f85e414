"""Decrypt TLS 1.3 (RFC 8446) with a key log, the file that SSLKEYLOGFILE names.

The key log identifies a connection by the 32 random bytes of its ClientHello, which must be in the capture.
Records are decrypted once to find their type and size, and again when they are read; no plain text is stored.
Without keys, only sizes and times are available. Needs the package cryptography.
"""

from __future__ import annotations

import hashlib
import hmac
import importlib
import struct
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

from daskwire.base.errors import WireError
from daskwire.decoder.dask.carriers.derived_stream import DerivedStream
from daskwire.decoder.net.stream import ByteStream, arrival

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
