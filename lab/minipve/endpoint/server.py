"""Turn HTTP requests into calls, and answers into responses with PVE's status lines, headers and formats.

Handlers run in a pool of threads, so that quick requests do not wait for slow ones such as a hotplug.
"""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import nullcontext
from email.utils import formatdate
from pathlib import Path
from typing import Any

from aiohttp import web

from minipve.api import dispatch
from minipve.base.errors import ApiError, UnauthorizedError, UnreachedError, text_of
from minipve.http import body
from minipve.http.listener import Connection
from minipve.node.node import Node

PREFIX = "/api2/json"
THREADS = 16
MAX_REASON = 1024  # clients refuse long status lines (Python: 64 KiB); a body has the whole message
_HOME_PAGE = f"""<!doctype html>
<title>minipve</title>
<h1>minipve</h1>
<p>This is the API of Proxmox VE, below <code>{PREFIX}</code>. There is no web interface.</p>
"""
_CONTENT_TYPE = "application/json;charset=UTF-8"


class HttpApi:
    """Answers the requests of an instance. Every 401 is delayed by ``unauthorized_delay_s``, as in PVE."""

    def __init__(self, node: Node, unauthorized_delay_s: float = 3.0) -> None:
        self.node = node
        self.delay_s = unauthorized_delay_s
        self.pool = ThreadPoolExecutor(THREADS, thread_name_prefix="api")

    def close(self) -> None:
        """Finish the running calls, and start no others."""
        self.pool.shutdown(wait=False, cancel_futures=True)

    async def handle(self, request: web.BaseRequest) -> web.StreamResponse:
        connection = _connection(request)
        connection.begin()
        try:
            return await self._answer(request)
        finally:
            connection.end()

    async def _answer(self, request: web.BaseRequest) -> web.StreamResponse:
        try:
            return await self._handle(request)
        except UnauthorizedError as refused:
            await self._delay(request)
            return _response(refused.status, str(refused))
        except UnreachedError as silent:
            return _response(silent.status, silent.reason)
        except TimeoutError:
            return _response(408, "request timed out")
        except OSError as failed:  # the disk, while an upload is written
            return _failure(ApiError(text_of(failed)))
        except ApiError as failed:
            if failed.status == 401:
                await self._delay(request)
            return _failure(failed)

    async def _delay(self, request: web.BaseRequest) -> None:
        with _connection(request).yielding_slot():
            await asyncio.sleep(self.delay_s)

    async def _handle(self, request: web.BaseRequest) -> web.Response:
        verb = request.method
        if verb not in ("GET", "POST", "PUT", "DELETE"):
            return _response(501, f"method '{verb}' not available")
        if verb == "GET" and request.path == "/":
            return web.Response(text=_HOME_PAGE, content_type="text/html")
        if not request.path.startswith("/api2/"):
            return _response(500, f"no such file '{request.path}'")
        if not request.path.startswith(PREFIX + "/"):
            return _response(501, f"no such uri '{request.path}'", f"minipve answers only below {PREFIX}/\n")
        body.refuse_framing(request)
        path = request.path.removeprefix(PREFIX)
        authid = self._caller(request, verb, path)
        if verb in ("GET", "DELETE") and (request.content_length or 0) > 0:
            complaint = f"Unexpected content for method '{verb}'"
            return _response(501, complaint, complaint)
        received: list[Path] = []
        try:
            params = await self._parameters(request, verb, path, authid, received)
            loop = asyncio.get_running_loop()
            reply = await loop.run_in_executor(
                self.pool, dispatch.call, self.node, verb, path, authid, params
            )
        finally:
            for file in received:
                file.unlink(missing_ok=True)
        return _response(200, "OK", reply.extra | {"data": reply.data})

    def _caller(self, request: web.BaseRequest, verb: str, path: str) -> str:
        authorization = request.headers.get("Authorization")
        if (verb, path) in dispatch.PUBLIC and not authorization:
            return "nobody@pam"
        cookie, csrf = request.cookies.get("PVEAuthCookie"), request.headers.get("CSRFPreventionToken")
        return self.node.tickets.authenticate(verb, authorization, cookie, csrf)

    async def _parameters(
        self, request: web.BaseRequest, verb: str, path: str, authid: str, received: list[Path]
    ) -> body.Params:
        query = body.query(request)
        is_upload = dispatch.takes_upload(verb, path)
        if is_upload and "tmpfilename" in query:
            raise ApiError("'tmpfilename' query parameter is not allowed for file uploads")
        if verb in ("GET", "DELETE") or not request.content_length:
            return query
        if is_upload:
            self._admit(verb, path, authid)  # before we receive gigabytes
            return await body.upload(request, self.node.storage.upload_path, received) | query
        public = (verb, path) in dispatch.PUBLIC
        with _connection(request).yielding_slot() if public else nullcontext():
            return await body.parameters(request, public) | query

    def _admit(self, verb: str, path: str, authid: str) -> None:
        try:
            dispatch.permitted(self.node, verb, path, authid)
        except ApiError as refused:
            raise UnauthorizedError(refused.reason, refused.status) from None


def _connection(request: web.BaseRequest) -> Connection:
    connection = request.protocol
    assert isinstance(connection, Connection)
    return connection


def _failure(failed: ApiError) -> web.Response:
    if any(ord(letter) > 0xFF for letter in failed.message):
        return _response(596, "Broken pipe")  # as in PVE, whose formatter fails at such characters
    content: dict[str, Any] = {"data": None, "message": failed.message}
    if failed.errors:
        content["errors"] = failed.errors
    return _response(failed.status, failed.reason, content)


def _response(status: int, reason: str, content: Mapping[str, Any] | str | None = None) -> web.Response:
    headers = {
        "Server": "pve-api-daemon/3.0",
        "Cache-Control": "max-age=0",
        "Pragma": "no-cache",
        "Expires": formatdate(usegmt=True),
    }
    reason = re.sub(r"[\x00-\x1f\x7f]", " ", reason[:MAX_REASON])
    if isinstance(content, Mapping):
        headers["Content-Type"] = _CONTENT_TYPE
        text = json.dumps(content, ensure_ascii=False, separators=(",", ":"))
        data = text.encode(errors="replace")
        response = web.Response(status=status, reason=reason, headers=headers, body=data)
        if len(text) > 1024:
            response.enable_compression()
    else:
        response = web.Response(status=status, reason=reason, headers=headers, body=(content or "").encode())
    if status >= 400:
        response.force_close()
    return response
