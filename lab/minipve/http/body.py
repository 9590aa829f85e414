"""Read a request's parameters: from its query, its form or JSON body, or the fields of an upload.

Everything that is read has a limit in size and time, listed in docs/reference/minipve-limits.md.
"""

from __future__ import annotations

import asyncio
import json
import secrets
from collections.abc import Callable
from pathlib import Path
from typing import Any
from urllib.parse import parse_qsl

from aiohttp import BodyPartReader, web
from aiohttp.http_exceptions import HttpProcessingError

from minipve.base import strict_json
from minipve.base.errors import ApiError

MAX_BYTES = 512 * 1024
MAX_LOGIN_BYTES = 16 * 1024  # the sender of a login is not authenticated yet
BODY_S, PUBLIC_BODY_S = 60.0, 10.0
MAX_FIELDS = 1000
MAX_FIELD_BYTES = 8 * 1024
_UPLOAD_FIELDS = ("content", "checksum-algorithm", "checksum", "filename")  # pveproxy requires this order
_CHUNK_BYTES = 2**20
FORM, JSON, MULTIPART = "application/x-www-form-urlencoded", "application/json", "multipart/form-data"
Params = dict[str, Any]


def refuse_framing(request: web.BaseRequest) -> None:
    """Raise 501, as PVE does, for a body without a ``Content-Length``."""
    encoding = request.headers.get("Transfer-Encoding")
    if encoding and encoding.lower() == "chunked":
        raise ApiError("chunked transfer encoding not supported", 501)
    if encoding:
        raise ApiError(f"Unknown transfer encoding '{encoding}'", 501)


def query(request: web.BaseRequest) -> Params:
    """Return the parameters of the query string."""
    return _form(request.rel_url.raw_query_string)


async def parameters(request: web.BaseRequest, public: bool) -> Params:
    """Return the parameters of a form or JSON body. ``public`` requests have tighter limits."""
    max_bytes, timeout_s = (MAX_LOGIN_BYTES, PUBLIC_BODY_S) if public else (MAX_BYTES, BODY_S)
    if (request.content_length or 0) > max_bytes:
        raise ApiError("for data too large", 501)
    kind = request.content_type if "Content-Type" in request.headers else FORM
    if kind not in (FORM, JSON):
        raise ApiError(f"upload 'Content-Type '{kind}' not implemented", 506)
    async with asyncio.timeout(timeout_s):
        text = (await request.read()).decode("utf-8", errors="replace")
    return _json(text) if kind == JSON and text else _form(text)


def _form(text: str) -> Params:
    """Parse a form. Repeated keys become lists; ``_dc``, which browsers add to avoid caches, is dropped."""
    params: dict[str, list[str]] = {}
    try:
        pairs = parse_qsl(text, keep_blank_values=True, max_num_fields=MAX_FIELDS)
    except ValueError:
        raise ApiError(f"too many parameters (> {MAX_FIELDS})", 400) from None
    for key, value in pairs:
        params.setdefault(key, []).append(value)
    params.pop("_dc", None)
    return {key: values if len(values) > 1 else values[0] for key, values in params.items()}


def _json(text: str) -> Params:
    """Parse a JSON object. Numbers stay text, as in a form; booleans become 0 and 1."""
    try:
        params = strict_json.loads(text, numbers_as_text=True)
    except json.JSONDecodeError as error:
        raise ApiError(f"malformed JSON string, at character offset {error.pos}") from None
    except strict_json.NestingError:
        raise ApiError("json text or perl structure exceeds maximum nesting level", 400) from None
    except ValueError:  # half a surrogate pair, NaN
        raise ApiError("malformed JSON string, neither tag, array, object, number, string or atom") from None
    if not isinstance(params, dict):
        raise ApiError("malformed JSON string, parameters must be an object")
    return {key: _plain(value) for key, value in params.items() if value is not None}


def _plain(value: Any) -> Any:
    if isinstance(value, list):
        return [_plain(item) for item in value]
    return str(int(value)) if isinstance(value, bool) else value


async def upload(request: web.BaseRequest, place: Callable[[str], Path], received: list[Path]) -> Params:
    """Return the form fields, and stream the file to disk. Its name on disk is the field ``tmpfilename``.

    The path of each new file is appended to ``received`` first, so that the caller can remove leftovers.
    """
    if request.content_type != MULTIPART:
        raise ApiError(f"upload 'Content-Type '{request.content_type}' not implemented")
    fields: Params = {}
    try:
        async with asyncio.timeout(BODY_S) as limit:
            async for part in await request.multipart():
                if not isinstance(part, BodyPartReader):
                    raise ApiError("upload failed - unexpected part")
                _check_order(part.name, fields)
                if part.name and part.name != "filename":
                    fields[part.name] = (await _bounded(part)).decode("utf-8", errors="replace")
                    continue
                name = f"/var/tmp/pveupload-{secrets.token_hex(8)}"
                received.append(place(name))
                fields |= {"filename": part.filename or "", "tmpfilename": name}
                await _store(part, received[-1], limit)
    except (
        ValueError,
        AssertionError,
        RuntimeError,
        HttpProcessingError,
    ):  # of aiohttp, for malformed uploads
        raise ApiError("upload failed") from None
    return fields


def _check_order(name: str | None, fields: Params) -> None:
    """Raise 500 for a repeated or misplaced field; pveproxy would ignore it silently."""
    if name not in _UPLOAD_FIELDS:
        raise ApiError(f"wrong field name '{name}' for file upload, expected 'filename'")
    if fields.keys() & set(_UPLOAD_FIELDS[_UPLOAD_FIELDS.index(name) :]):
        raise ApiError(f"upload failed - fields must come in the order {', '.join(_UPLOAD_FIELDS)}")


async def _bounded(part: BodyPartReader) -> bytes:
    data = b""
    while chunk := await part.read_chunk(MAX_FIELD_BYTES):
        data += chunk
        if len(data) > MAX_FIELD_BYTES:
            raise ApiError("upload failed - form field too large")
    return data


async def _store(part: BodyPartReader, target: Path, limit: asyncio.Timeout) -> None:
    """Write the file as it arrives. The limits are the disk, and a chunk in every ``BODY_S`` seconds."""
    loop = asyncio.get_running_loop()
    with target.open("xb") as stream:
        while chunk := await part.read_chunk(_CHUNK_BYTES):
            await asyncio.to_thread(stream.write, chunk)
            limit.reschedule(loop.time() + BODY_S)
