"""The HTTPS half: requests to calls, answers to responses, with PVE's status lines, headers and shapes.

Everything that touches files or machines runs in a bounded pool of threads, so that reads stay quick while a
hotplug waits for its guest.
"""

from __future__ import annotations

import asyncio
import json
import secrets
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from email.utils import formatdate
from pathlib import Path
from typing import Any
from urllib.parse import parse_qsl

from aiohttp import BodyPartReader, web

from lab.minipve import dispatch
from lab.minipve.errors import ApiError, UnauthorizedError
from lab.minipve.node import Node

PREFIX = "/api2/json"
MAX_BODY_BYTES = 512 * 1024
THREADS = 16
_FORM, _JSON, _MULTIPART = "application/x-www-form-urlencoded", "application/json", "multipart/form-data"
_CONTENT_TYPE = "application/json;charset=UTF-8"


def create_app(node: Node, unauthorized_delay_s: float = 3.0) -> web.Application:
    """The application for one instance; every 401 waits ``unauthorized_delay_s`` first, as PVE's do."""
    app = web.Application(client_max_size=2**40)
    front = _Front(node, unauthorized_delay_s)
    app.router.add_route("*", "/{path:.*}", front.handle)
    app.on_cleanup.append(front.close)
    return app


class _Front:
    def __init__(self, node: Node, unauthorized_delay_s: float) -> None:
        self.node = node
        self.delay_s = unauthorized_delay_s
        self.pool = ThreadPoolExecutor(THREADS, thread_name_prefix="api")

    async def close(self, _: web.Application) -> None:
        self.pool.shutdown(wait=False, cancel_futures=True)

    async def handle(self, request: web.Request) -> web.StreamResponse:
        try:
            return await self._handle(request)
        except UnauthorizedError as refused:
            await asyncio.sleep(self.delay_s)
            return _response(401, str(refused))
        except ApiError as failed:
            if failed.status == 401:
                await asyncio.sleep(self.delay_s)
            if any(ord(letter) > 0xFF for letter in failed.message):
                return _response(596, "Broken pipe")  # what PVE's formatter makes of it (qemu-ga's quotes)
            body: dict[str, Any] = {"data": None, "message": failed.message}
            if failed.errors:
                body["errors"] = failed.errors
            return _response(failed.status, failed.reason, body)

    async def _handle(self, request: web.Request) -> web.Response:
        verb = request.method
        if verb not in ("GET", "POST", "PUT", "DELETE"):
            return _response(501, f"method '{verb}' not available")
        if not request.path.startswith(PREFIX + "/"):
            return _response(501, f"no such uri '{request.path}'")
        path = request.path.removeprefix(PREFIX)
        authid = self._caller(request, verb, path)
        if request.body_exists and verb in ("GET", "DELETE") and (request.content_length or 0) > 0:
            complaint = f"Unexpected content for method '{verb}'"
            return _response(501, complaint, complaint)
        upload: list[Path] = []
        try:
            given = await self._parameters(request, verb, path, authid, upload)
            loop = asyncio.get_running_loop()
            reply = await loop.run_in_executor(self.pool, dispatch.call, self.node, verb, path, authid, given)
        finally:
            for file in upload:
                file.unlink(missing_ok=True)
        return _response(200, "OK", reply.extra | {"data": reply.data})

    def _caller(self, request: web.Request, verb: str, path: str) -> str:
        authorization = request.headers.get("Authorization")
        if (verb, path) in dispatch.PUBLIC and not authorization:
            return "nobody@pam"
        cookie, csrf = request.cookies.get("PVEAuthCookie"), request.headers.get("CSRFPreventionToken")
        return self.node.tickets.authenticate(verb, authorization, cookie, csrf)

    async def _parameters(
        self, request: web.Request, verb: str, path: str, authid: str, upload: list[Path]
    ) -> dict[str, Any]:
        query = _gather(parse_qsl(request.rel_url.raw_query_string, keep_blank_values=True))
        if verb in ("GET", "DELETE") or not request.body_exists:
            return query
        if request.content_type == _MULTIPART:
            dispatch.permitted(self.node, verb, path, authid)  # before gigabytes are taken in
            return await self._multipart(request, upload) | query
        if (request.content_length or 0) > MAX_BODY_BYTES:
            raise ApiError("for data too large", 501)
        text = (await request.read()).decode("utf-8", errors="replace")
        if not text or request.content_type == _FORM:
            return _gather(parse_qsl(text, keep_blank_values=True)) | query
        if request.content_type != _JSON:
            raise ApiError(f"content-type '{request.content_type}' not supported", 506)
        return _from_json(text) | query

    async def _multipart(self, request: web.Request, upload: list[Path]) -> dict[str, Any]:
        """Form fields, and the file part streamed to disk; its place is handed on as ``tmpfilename``."""
        fields: dict[str, Any] = {}
        async for part in await request.multipart():
            if not isinstance(part, BodyPartReader) or part.name is None:
                raise ApiError("upload failed - unexpected part", 501)
            if part.name != "filename":
                fields[part.name] = await part.text()
                continue
            name = f"/var/tmp/pveupload-{secrets.token_hex(8)}"
            upload.append(self.node.storage.received(name))
            fields |= {"filename": part.filename or "", "tmpfilename": name}
            await self._receive(part, upload[-1])
        return fields

    async def _receive(self, part: BodyPartReader, target: Path) -> None:
        loop = asyncio.get_running_loop()
        with target.open("wb") as stream:
            while chunk := await part.read_chunk(2**20):
                await loop.run_in_executor(self.pool, stream.write, chunk)


def _gather(pairs: list[tuple[str, str]]) -> dict[str, Any]:
    """Repeated keys become lists; the cache-breaking ``_dc`` is dropped."""
    found: dict[str, Any] = {}
    for key, value in pairs:
        if key in found:
            found[key] = [*(found[key] if isinstance(found[key], list) else [found[key]]), value]
        elif key != "_dc":
            found[key] = value
    return found


def _from_json(text: str) -> dict[str, Any]:
    try:
        given = json.loads(text)
    except ValueError as error:
        raise ApiError(f"malformed JSON string: {error}") from None
    if not isinstance(given, dict):
        raise ApiError("malformed JSON string: parameters must be an object")
    return {key: value for key, value in given.items() if value is not None}


def _response(status: int, reason: str, body: Mapping[str, Any] | str | None = None) -> web.Response:
    headers = {
        "Server": "pve-api-daemon/3.0",
        "Cache-Control": "max-age=0",
        "Pragma": "no-cache",
        "Expires": formatdate(usegmt=True),
    }
    if isinstance(body, Mapping):
        headers["Content-Type"] = _CONTENT_TYPE
        text = json.dumps(body, ensure_ascii=False, separators=(",", ":"))
        response = web.Response(status=status, reason=reason, headers=headers, body=text.encode())
        if len(text) > 1024:
            response.enable_compression()
    else:
        response = web.Response(status=status, reason=reason, headers=headers, body=(body or "").encode())
    if status >= 400:
        response.force_close()
    return response
