"""A request's parameters: from its query, its form or JSON body, or the fields of an upload.

All that is read here has a size and a time that bound it; see the README for the figures.
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

from minipve import strict_json
from minipve.errors import ApiError

MAX_BYTES = 512 * 1024
MAX_PUBLIC_BYTES = 16 * 1024  # of a request that says who one is only in its body
BODY_S, PUBLIC_BODY_S = 60.0, 10.0
MAX_FIELDS = 1000
MAX_FIELD_BYTES = 8 * 1024
_UPLOAD_FIELDS = ("content", "checksum-algorithm", "checksum", "filename")  # in this order, as pveproxy's
_CHUNK_BYTES = 2**20
FORM, JSON, MULTIPART = "application/x-www-form-urlencoded", "application/json", "multipart/form-data"
Given = dict[str, Any]


def refuse_framing(request: web.BaseRequest) -> None:
    """501 for a body that does not say its length first, as PVE does."""
    encoding = request.headers.get("Transfer-Encoding")
    if encoding and encoding.lower() == "chunked":
        raise ApiError("chunked transfer encoding not supported", 501)
    if encoding:
        raise ApiError(f"Unknown transfer encoding '{encoding}'", 501)


def query(request: web.BaseRequest) -> Given:
    """The parameters behind the question mark."""
    return _form(request.rel_url.raw_query_string)


async def parameters(request: web.BaseRequest, public: bool) -> Given:
    """The parameters of a form or JSON body; those of the query override them."""
    most, seconds = (MAX_PUBLIC_BYTES, PUBLIC_BODY_S) if public else (MAX_BYTES, BODY_S)
    if (request.content_length or 0) > most:
        raise ApiError("for data too large", 501)
    kind = request.content_type if "Content-Type" in request.headers else FORM
    if kind not in (FORM, JSON):
        raise ApiError(f"upload 'Content-Type '{kind}' not implemented", 506)
    async with asyncio.timeout(seconds):
        text = (await request.read()).decode("utf-8", errors="replace")
    return _json(text) if kind == JSON and text else _form(text)


def _form(text: str) -> Given:
    """Repeated keys become lists; the cache-breaking ``_dc`` is dropped."""
    found: dict[str, list[str]] = {}
    try:
        pairs = parse_qsl(text, keep_blank_values=True, max_num_fields=MAX_FIELDS)
    except ValueError:
        raise ApiError(f"too many parameters (> {MAX_FIELDS})", 400) from None
    for key, value in pairs:
        found.setdefault(key, []).append(value)
    found.pop("_dc", None)
    return {key: values if len(values) > 1 else values[0] for key, values in found.items()}


def _json(text: str) -> Given:
    """Numbers stay text, as everything that a form has; booleans become 0 and 1."""
    try:
        given = strict_json.loads(text, numbers_as_text=True)
    except json.JSONDecodeError as error:
        raise ApiError(f"malformed JSON string, at character offset {error.pos}") from None
    except strict_json.NestingError:
        raise ApiError("json text or perl structure exceeds maximum nesting level", 400) from None
    except ValueError:  # half a surrogate pair, NaN
        raise ApiError("malformed JSON string, neither tag, array, object, number, string or atom") from None
    if not isinstance(given, dict):
        raise ApiError("malformed JSON string, parameters must be an object")
    return {key: _plain(value) for key, value in given.items() if value is not None}


def _plain(value: Any) -> Any:
    if isinstance(value, list):
        return [_plain(item) for item in value]
    return str(int(value)) if isinstance(value, bool) else value


async def upload(request: web.BaseRequest, place: Callable[[str], Path], received: list[Path]) -> Given:
    """Form fields, and the file part streamed to disk; its place is handed on as ``tmpfilename``.

    Each file that is made is noted in ``received`` first: the caller removes what is left of them.
    """
    if request.content_type != MULTIPART:
        raise ApiError(f"upload 'Content-Type '{request.content_type}' not implemented")
    fields: Given = {}
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
    except (ValueError, AssertionError, RuntimeError, HttpProcessingError):  # what aiohttp says of garbage
        raise ApiError("upload failed") from None
    return fields


def _check_order(name: str | None, fields: Given) -> None:
    """A field may come once, and none after one that pveproxy reads later: there it would be lost."""
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
    """Write the file as it comes; what bounds it is the disk, and that something has to come each minute."""
    loop = asyncio.get_running_loop()
    with target.open("xb") as stream:
        while chunk := await part.read_chunk(_CHUNK_BYTES):
            await asyncio.to_thread(stream.write, chunk)
            limit.reschedule(loop.time() + BODY_S)
