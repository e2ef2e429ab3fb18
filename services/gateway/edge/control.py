"""The local interface of one edge process: health, what became of a request, and a try that stores nothing.

Never reachable from another machine, and never answers with a secret: the socket is its owner's alone.
"""

from __future__ import annotations

import asyncio
import base64
import binascii
import contextlib
import os
import socket
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Final
from urllib.parse import parse_qsl, unquote

import orjson
from uvicorn.server import ServerState

from services.gateway.edge.answers import EdgeAnswer, RequestNotes
from services.gateway.edge.bearer import permitted, shown_token
from services.gateway.edge.ingress import Ingress, new_request_id
from services.gateway.edge.recent_requests import RecentRequests, document
from services.gateway.edge.reloading import Reloading
from services.gateway.edge.running_plan import RunningPlan
from snavio.edge.requests import BadPath, EdgeRequest, address_of, request_path
from snavio.errors import SnavioError, StateError
from snavio.host.shares import ShareLimit, Shares
from snavio.http.limits import HttpLimits
from snavio.http.protocol import protocols

MOST_BODY: Final = 8 << 20
MOST_RECENT: Final = 1000
Answer = tuple[int, Any]


class EdgeHealth:
    """The answer to a health check. Without details it tells nothing but that the process answers."""

    def __init__(self, reloading: Reloading, more: Callable[[], Mapping[str, Any]]) -> None:
        self._reloading = reloading
        self._more = more

    def details(self) -> dict[str, Any]:
        """Fingerprint, generation, and what the last reload came to."""
        status = self._reloading.status
        return {
            "status": "ok",
            "config": {
                "fingerprint": status.fingerprint,
                "generation": status.generation,
                "loaded_at_unix_ns": status.loaded_unix_ns,
                "last_reload_failed": status.failed or None,
                "restart_required": list(status.restart),
            },
            **self._more(),
        }


class AdminApp:
    """The ASGI application of `admin_api`: health, and nothing else yet."""

    def __init__(self, health: EdgeHealth, prefix: str, running: Callable[[], RunningPlan | None]) -> None:
        self._health = health
        self._path = f"{prefix}/healthz".encode()
        self._running = running

    async def __call__(self, scope: Any, _receive: Any, send: Any) -> None:
        status, document = self._answer(scope)
        await _send(send, status, document)

    def _answer(self, scope: Any) -> Answer:
        if scope["raw_path"] != self._path:
            return 404, {"code": "not_found", "detail": "There is nothing here."}
        if scope["method"] not in ("GET", "HEAD"):
            return 405, {"code": "method_not_allowed", "detail": "Permitted here: GET."}
        if not scope["query_string"]:
            return 200, {"status": "ok"}
        running = self._running()
        listener = running.plan.admin_api if running else None
        if running is None or listener is None:
            return 503, {"code": "unavailable", "detail": "The gateway is starting."}
        try:
            # A load balancer asks without a token; whoever wants details shows one.
            if listener.tokens and not permitted(
                shown_token(scope["headers"]), listener.tokens, running.secrets
            ):
                return 401, {"code": "unauthorized", "detail": "A bearer token is required."}
        except SnavioError as error:
            return 503, {"code": error.reason, "detail": str(error)}
        return 200, self._health.details()


class ControlApp:
    """The ASGI application of the control socket."""

    def __init__(
        self,
        *,
        ingress: Ingress,
        recent: RecentRequests,
        health: EdgeHealth,
        reloading: Reloading,
        clock: Any,
    ) -> None:
        self._ingress = ingress
        self._recent = recent
        self._health = health
        self._reloading = reloading
        self._clock = clock

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        try:
            status, found = await self._answer(scope, receive)
        except (ValueError, KeyError, TypeError, binascii.Error):
            status, found = 400, {"code": "bad-request", "detail": "The request cannot be read."}
        await _send(send, status, found)

    async def _answer(self, scope: Any, receive: Any) -> Answer:
        path, method = unquote(scope["raw_path"].decode("ascii")), scope["method"]
        query = dict(parse_qsl(scope["query_string"].decode("ascii")))
        if method == "GET" and path == "/healthz":
            return 200, self._health.details()
        if method == "GET" and path == "/recent":
            most = min(MOST_RECENT, int(query.get("limit", "20")))
            refused = query.get("refused") == "1"
            return 200, {
                "requests": self._recent.newest(most=most, refused_only=refused, route=query.get("route", ""))
            }
        if method == "GET" and path.startswith("/explain/"):
            found = self._recent.find(path.removeprefix("/explain/"))
            if found is None:
                return 404, {"code": "not-found", "detail": "This process does not remember such a request."}
            return 200, found
        if method == "POST" and path == "/reload":
            swapped = await self._reloading.reload()
            return (200 if swapped else 409), self._health.details()
        if method == "POST" and path == "/try":
            return 200, await self._try(orjson.loads(await _whole(receive)))
        return 404, {"code": "not-found", "detail": "There is nothing here."}

    async def _try(self, asked: dict[str, Any]) -> dict[str, Any]:
        notes = RequestNotes(
            new_request_id(), "try", self._clock.unix_ns(), method=str(asked["method"]).upper()
        )
        began = self._clock.mono_ns()
        body = base64.b64decode(asked.get("body", ""), validate=True)
        try:
            notes.path = request_path(str(asked["path"]).encode("latin-1"))
        except BadPath as wrong:
            notes.refused("listener", str(wrong))
            return document(notes, EdgeAnswer(400, "bad-path", str(wrong)), 0)
        headers = [
            (str(n).lower().encode("latin-1"), str(v).encode("latin-1")) for n, v in asked.get("headers", [])
        ]
        remote = address_of(str(asked.get("remote", "127.0.0.1")))
        notes.remote, notes.bytes_in = str(remote or ""), len(body)
        certificate = str(asked.get("certificate", ""))
        request = EdgeRequest(
            notes.method, notes.path, str(asked.get("query", "")), headers, remote, certificate
        )
        try:
            answer = await self._ingress.judge_dry(request, body, notes)
        except SnavioError as error:
            notes.refused("internal", str(error))
            answer = EdgeAnswer(503, error.reason, str(error))
        return document(notes, answer, self._clock.mono_ns() - began)


class ControlServer:
    """Serves the application on a socket in the state folder."""

    def __init__(self, app: ControlApp, path: Path) -> None:
        self._path = path
        self._state = ServerState()
        connections = Shares("connections", ShareLimit(64, 64))
        limits = HttpLimits(body_bytes=MOST_BODY)
        self._protocol = protocols(app, state=self._state, limits=limits, connections=connections)
        self._server: asyncio.Server | None = None

    async def start(self) -> None:
        """Listen; StateError when another process does, or the folder cannot be written."""
        folder = self._path.parent
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        if await self._answers():
            raise StateError(
                f"Another edge runs on {folder}: stop it, or name another folder with --db.",
                reason="already-running",
            )
        before = os.umask(0o177)
        try:
            with contextlib.suppress(FileNotFoundError):
                self._path.unlink()
            with short_path(self._path) as short:
                found = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
                found.bind(short)
            found.listen(16)
            found.setblocking(False)
        except OSError as error:
            raise StateError(
                f"{self._path} cannot be made: {error.strerror}.", reason="state-unwritable"
            ) from None
        finally:
            os.umask(before)
        self._server = await asyncio.get_running_loop().create_server(self._protocol, sock=found)

    async def stop(self) -> None:
        """Close it, and take it away."""
        if self._server is None:
            return
        self._server.close()
        for connection in list(self._state.connections):
            connection.transport.abort()
        with contextlib.suppress(OSError):
            self._path.unlink()

    async def _answers(self) -> bool:
        def ask() -> bool:
            with short_path(self._path) as short, socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as asking:
                asking.settimeout(1.0)
                asking.connect(short)
                return True

        try:
            return await asyncio.to_thread(ask)
        except OSError:
            return False


@contextlib.contextmanager
def short_path(path: Path) -> Any:
    """The same place under a name that fits into the address of a socket, which has 107 bytes."""
    folder = os.open(path.parent, os.O_RDONLY | os.O_DIRECTORY)
    try:
        yield f"/proc/self/fd/{folder}/{path.name}"
    finally:
        os.close(folder)


async def _whole(receive: Any) -> bytes:
    parts, more = [], True
    while more:
        message = await receive()
        if message["type"] == "http.disconnect":
            raise ValueError
        parts.append(message.get("body", b""))
        more = message.get("more_body", False)
    return b"".join(parts)


async def _send(send: Any, status: int, found: Any) -> None:
    body = orjson.dumps(found)
    headers = [(b"content-type", b"application/json"), (b"content-length", b"%d" % len(body))]
    await send({"type": "http.response.start", "status": status, "headers": headers})
    await send({"type": "http.response.body", "body": body})
