"""TLS 1.3 with a key log (the file that SSLKEYLOGFILE makes): records to plain text.

RFC 8446. The key log names each connection by the 32 random bytes of its ClientHello, so the beginning must
be in the capture. Records are decrypted once to learn what they hold, and again when they are read; nothing
is kept. Without keys only sizes and times remain. Needs the package cryptography.
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

from daskwire.dask.overlay import Overlay
from daskwire.errors import WireError
from daskwire.net.stream import ByteStream, arrival

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
    """One decrypted record of application data: where it lies, with which key and number it opens, its
    plain size.
    """

    position: int
    size: int
    key: Key
    number: int
    plain: int


class Key:
    """Traffic keys that follow from one secret (RFC 8446, 7.3)."""

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
        """The key after a KeyUpdate message."""
        return Key(self._expand(b"traffic upd", hashlib.new(self._hash).digest_size), self.suite)

    def open(self, number: int, header: bytes, sealed: bytes) -> bytes | None:
        """Plain text with its inner type at the end; None when key or number are not the right ones."""
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
    """Secrets by label and client random, from the lines of a key log."""
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
    """Whether a stream begins with a TLS handshake record."""
    return len(head) >= 3 and head[0] == HANDSHAKE and head[1] == 3


def plain_streams(both: dict[int, ByteStream], secrets: KeyLog) -> dict[int, Overlay] | None:
    """The streams of a connection, decrypted; None when the key log does not have it."""
    hellos = {direction: _hello(stream) for direction, stream in both.items()}
    client = next((d for d, hello in hellos.items() if hello and hello[0] == CLIENT_HELLO), None)
    if client is None or client ^ 1 not in both:
        return None
    client_hello, server_hello = hellos[client], hellos[client ^ 1]
    if not client_hello or not server_hello:
        return None
    random, suite = client_hello[6:38], _suite(server_hello)
    if suite not in SUITES:
        return None
    plain = {}
    for direction, who in ((client, "CLIENT"), (client ^ 1, "SERVER")):
        names = (f"{who}_HANDSHAKE_TRAFFIC_SECRET", f"{who}_TRAFFIC_SECRET_0")
        found = [secrets.get((name, random)) for name in names]
        if found[0] is None or found[1] is None:
            return None
        records = list(_records(both[direction], Key(found[0], suite), Key(found[1], suite)))
        plain[direction] = _overlay(both[direction], records)
    return plain


def _overlay(below: ByteStream, records: list[Record]) -> Overlay:
    ends = np.array([r.position + HEADER + r.size - 1 for r in records], np.int64)

    def load(number: int) -> bytes:
        record = records[number]
        opened = _open(below, record.position, record.size, record.key, record.number)
        return opened[: record.plain] if opened else b""

    return Overlay([r.plain for r in records], arrival(below, ends).tolist(), True, load)


def _hello(stream: ByteStream) -> bytes | None:
    """The handshake message in the first record."""
    head = stream.read(0, HEADER) if stream.opened else None
    if head is None or head[0] != HANDSHAKE:
        return None
    body = stream.read(HEADER, min(int.from_bytes(head[3:5], "big"), MAX_RECORD))
    return bytes(body) if body is not None and len(body) >= 44 else None


def _suite(server_hello: bytes) -> int:
    at = 39 + server_hello[38]  # type, length, version, random, session id
    return int.from_bytes(server_hello[at : at + 2], "big")


def _records(stream: ByteStream, handshake: Key, application: Key) -> Iterator[Record]:
    """Application data in order. Ends at a hole: the records after it cannot be numbered with certainty."""
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
