"""Authentication: password hashes, API token secrets, tickets and their CSRF tokens."""

from __future__ import annotations

import base64
import hashlib
import hmac
import logging
import re
import secrets
import time
from pathlib import Path
from urllib.parse import unquote

from minipve.access.accounts import Access, owner
from minipve.base.atomic import write_atomic
from minipve.base.errors import UnauthorizedError

LIFETIME_S = 2 * 3600
_GRACE_S = 300
_KEY_BYTES = 32
log = logging.getLogger(__name__)
_TICKET = re.compile(r"PVE:([^:]+@[^:]+):([0-9A-F]{8})::(\S+)")
_TOKEN = re.compile(r"PVEAPIToken[= ]([^\s:/]+@[\w.\-]+![\w.\-]+)[=: ](\S+)")


def _bytes(text: str) -> bytes:
    """Encode any text: a header may contain any byte, and JSON half of a surrogate pair."""
    return text.encode("utf-8", "surrogatepass")


def _same(text: str, other: str) -> bool:
    """Compare two texts in constant time."""
    return hmac.compare_digest(_bytes(text), _bytes(other))


def hash_secret(secret: str, salt: str | None = None) -> str:
    """Return a salted scrypt hash as ``salt$hash`` in hex."""
    salt = salt or secrets.token_hex(8)
    digest = hashlib.scrypt(_bytes(secret), salt=bytes.fromhex(salt), n=2**12, r=8, p=1)
    return f"{salt}${digest.hex()}"


def same_secret(secret: str, stored: str) -> bool:
    """Return, in constant time, whether ``stored`` is the hash of ``secret``."""
    return _same(hash_secret(secret, stored.partition("$")[0]), stored)


def token_digest(secret: str) -> str:
    """Return a token's secret as we store it. It is a random UUID, so a fast hash without salt is safe."""
    return hashlib.sha256(_bytes(secret)).hexdigest()


def _valid(entry: dict[str, object], now: float) -> bool:
    expire = entry.get("expire") or 0
    return bool(entry.get("enable", 1)) and (not isinstance(expire, int) or expire == 0 or expire > now)


def _read_key(file: Path) -> bytes | None:
    try:
        key = bytes.fromhex(file.read_text())
    except FileNotFoundError:
        return None
    except ValueError:
        key = b""
    if len(key) < _KEY_BYTES:
        log.warning("%s is damaged: a new key replaces it, and all tickets are invalid", file)
        return None
    return key


def _make_key(file: Path) -> bytes:
    key = secrets.token_bytes(_KEY_BYTES)
    write_atomic(file, key.hex(), 0o600)
    return key


class Tickets:
    """Issues and checks tickets with a key from the state folder."""

    def __init__(self, access: Access, key_file: Path) -> None:
        self.access = access
        self._key = _read_key(key_file) or _make_key(key_file)
        self._unknown = hash_secret(secrets.token_hex())
        """Hash that stands in for a missing user or password, so that every refusal takes the same time."""

    def _sign(self, text: str) -> str:
        return base64.b64encode(hmac.digest(self._key, _bytes(text), "sha256")).decode()

    def issue(self, userid: str, now: float) -> tuple[str, str]:
        """Return a new ticket and its CSRF prevention token."""
        stamp = f"{int(now):08X}"
        plain = f"PVE:{userid}:{stamp}"
        return f"{plain}::{self._sign(plain)}", f"{stamp}:{self._sign(f'{stamp}:{userid}').rstrip('=')}"

    def login(self, userid: str, password: str) -> bool:
        """Return whether the password, or a valid ticket in its place, belongs to the user."""
        if password.startswith("PVE:"):
            return self.user_of(password) == userid
        entry = self.access.data["users"].get(userid, {})
        stored = entry.get("password")
        genuine = same_secret(password, stored or self._unknown)  # hash in every case, see above
        return bool(stored) and genuine and _valid(entry, time.time())

    def user_of(self, ticket: str) -> str | None:
        """Return the user of a ticket; None when it is forged, expired, or the user may no longer log in."""
        match = _TICKET.fullmatch(ticket)
        if not match or not _same(self._sign(f"PVE:{match[1]}:{match[2]}"), match[3]):
            return None
        age_s = time.time() - int(match[2], 16)
        entry = self.access.data["users"].get(match[1])
        fresh = -_GRACE_S < age_s < LIFETIME_S
        return match[1] if fresh and entry is not None and _valid(entry, time.time()) else None

    def _csrf_ok(self, token: str, userid: str) -> bool:
        stamp, _, signature = token.partition(":")
        genuine = _same(self._sign(f"{stamp}:{userid}").rstrip("="), signature)
        return genuine and time.time() - int(stamp, 16) < LIFETIME_S + _GRACE_S

    def _token_user(self, header: str) -> str:
        match = _TOKEN.fullmatch(unquote(header.strip()))
        entry = self.access.token(match[1]) if match else None
        if not match or entry is None or not _same(entry["secret"], token_digest(match[2])):
            raise UnauthorizedError("Authentication failed!")
        now, user = time.time(), self.access.data["users"].get(owner(match[1]))
        if user is None or not _valid(entry, now) or not _valid(user, now):
            raise UnauthorizedError("Authentication failed!")
        return match[1]

    def authenticate(self, verb: str, authorization: str | None, cookie: str | None, csrf: str | None) -> str:
        """Return the caller's id from the Authorization header or the cookie. Raises UnauthorizedError."""
        if authorization and authorization.startswith("PVEAPIToken"):
            return self._token_user(authorization)
        if not cookie:
            raise UnauthorizedError("No ticket")
        user = self.user_of(unquote(cookie))
        if user is None:
            raise UnauthorizedError("Authentication failed!")
        if verb != "GET" and not (csrf and re.match(r"[0-9A-F]{8}:", csrf) and self._csrf_ok(csrf, user)):
            raise UnauthorizedError("Permission denied - invalid csrf token")
        return user
