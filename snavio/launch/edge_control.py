"""Asks an edge process of this machine over the socket in its state folder.

Never waits beyond its deadline, and never asks another machine.
"""

from __future__ import annotations

import http.client
import os
import socket
from pathlib import Path
from typing import Any, Final
from urllib.parse import quote

import orjson

from snavio.errors import BadRequest, NotFound, SnavioError, Unavailable

SOCKET: Final = "control.sock"
ANSWER_SECONDS: Final = 30.0


class EdgeControl:
    """The edge that runs on a folder."""

    def __init__(self, state: Path) -> None:
        self._path = state / SOCKET

    def health(self) -> dict[str, Any]:
        """Configuration, listeners and routes."""
        return self._ask("GET", "/healthz")

    def explain(self, name: str) -> dict[str, Any]:
        """The judgement of a request, by its own id or that of an event or command."""
        return self._ask("GET", f"/explain/{quote(name, safe='')}")

    def recent(self, *, most: int, refused: bool, route: str) -> list[dict[str, Any]]:
        """The newest requests."""
        found = self._ask("GET", f"/recent?limit={most}&refused={int(refused)}&route={quote(route, safe='')}")
        return list(found["requests"])

    def attempt(self, request: dict[str, Any]) -> dict[str, Any]:
        """Take a request through every step, without storing it."""
        return self._ask("POST", "/try", request)

    def reload(self) -> dict[str, Any]:
        """Have it read its file again; what came of it."""
        return self._ask("POST", "/reload", {})

    def _ask(self, method: str, path: str, body: dict[str, Any] | None = None) -> dict[str, Any]:
        connection = _UnixConnection(self._path)
        try:
            connection.request(method, path, None if body is None else orjson.dumps(body), {"host": "edge"})
            answer = connection.getresponse()
            data = answer.read()
        except OSError:
            raise Unavailable(
                f"No edge runs on {self._path.parent}: start one with `snavio edge run`, or name its folder with "
                "--db or its mesh with --context.",
                reason="no-edge",
            ) from None
        finally:
            connection.close()
        try:
            found = orjson.loads(data)
        except orjson.JSONDecodeError:
            raise Unavailable("The edge's answer cannot be read.", reason="malformed") from None
        if answer.status in (200, 409):
            return dict(found)
        raise _ERRORS.get(answer.status, Unavailable)(str(found.get("detail", "")), reason=found.get("code"))


_ERRORS: Final[dict[int, type[SnavioError]]] = {400: BadRequest, 404: NotFound}


class _UnixConnection(http.client.HTTPConnection):
    def __init__(self, path: Path) -> None:
        super().__init__("edge", timeout=ANSWER_SECONDS)
        self._path = path

    def connect(self) -> None:
        """Connect by a name that fits into an address of 107 bytes, however deep the folder is."""
        folder = os.open(self._path.parent, os.O_RDONLY | os.O_DIRECTORY)
        try:
            self.sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
            self.sock.settimeout(ANSWER_SECONDS)
            self.sock.connect(f"/proc/self/fd/{folder}/{self._path.name}")
        finally:
            os.close(folder)
