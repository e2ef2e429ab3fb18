"""Reads the bytes behind references to secrets: environment, files, Vault over HTTP, and text that stands in the file.

Never answers with empty bytes, never waits beyond its deadline, and never shows a byte of what it read.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import ssl
import stat
import urllib.error
import urllib.request
from collections.abc import Mapping
from typing import Any, Final
from urllib.parse import quote, urlsplit

import orjson

from snavio.edge.references import SecretReference, SecretScheme
from snavio.errors import BadRequest, NotFound, Unavailable

MOST_BYTES: Final = 64 << 10
MOST_ANSWER: Final = 1 << 20
VAULT_SECONDS: Final = 5.0
DEFAULT_FIELD: Final = "value"
_PREFIXES: Final = ("SNAVIO_VAULT_", "HOOKAIDO_VAULT_", "VAULT_")


class SecretSources:
    """Every scheme. `environment` is that of the process, with what a file of variables added to it."""

    def __init__(self, environment: Mapping[str, str]) -> None:
        self._environment = environment

    async def read(self, reference: SecretReference) -> bytes:
        """The bytes; NotFound when nothing is there, Unavailable when it cannot be told."""
        match reference.scheme:
            case SecretScheme.RAW:
                found = reference.name.encode()
            case SecretScheme.ENV:
                found = self._environment.get(reference.name, "").encode()
                if not found:
                    raise NotFound("The environment variable is not set.", reason="secret-not-found")
            case SecretScheme.FILE:
                found = await self._bounded(asyncio.to_thread(_file, reference.name))
            case SecretScheme.VAULT:
                found = await self._bounded(asyncio.to_thread(self._vault, reference.name))
        if not found:
            # An empty key would verify what anybody signs.
            raise NotFound("It is empty.", reason="secret-empty")
        if len(found) > MOST_BYTES:
            raise BadRequest(f"It is larger than {MOST_BYTES:,} bytes.", reason="secret-too-large")
        return found

    async def _bounded(self, reading: Any) -> bytes:
        try:
            async with asyncio.timeout(VAULT_SECONDS + 1.0):
                return bytes(await reading)
        except TimeoutError:
            raise Unavailable("It was not answered in time.", reason="secret-unavailable") from None

    def _setting(self, name: str) -> str:
        return next((value for prefix in _PREFIXES if (value := self._environment.get(prefix + name))), "")

    def _vault(self, name: str) -> bytes:
        address, token = self._setting("ADDR"), self._setting("TOKEN")
        if not address or not token:
            raise BadRequest(
                "Vault needs SNAVIO_VAULT_ADDR and SNAVIO_VAULT_TOKEN in the environment.",
                reason="vault-not-set",
            )
        if urlsplit(address).scheme not in ("https", "http"):
            raise BadRequest("SNAVIO_VAULT_ADDR must begin with https:// or http://.", reason="vault-not-set")
        path, _, field = name.partition("#")
        if any(each in ("", ".", "..") for each in path.strip("/").split("/")):
            raise BadRequest("The path in Vault has an empty segment, `.` or `..`.", reason="bad-reference")
        headers = {"x-vault-token": token, "x-vault-request": "true"}
        if namespace := self._setting("NAMESPACE"):
            headers["x-vault-namespace"] = namespace
        url = f"{address.rstrip('/')}/v1/{quote(path.strip('/'))}"
        document = _asked(urllib.request.Request(url, headers=headers), self._setting("CACERT"))  # noqa: S310
        data = document.get("data")
        # Version 2 of its key-value store wraps the fields once more, beside their metadata.
        if isinstance(data, dict) and isinstance(data.get("data"), dict) and "metadata" in data:
            data = data["data"]
        value = data.get(field or DEFAULT_FIELD) if isinstance(data, dict) else None
        if not isinstance(value, str):
            raise NotFound(f"Vault has no text `{field or DEFAULT_FIELD}` there.", reason="secret-not-found")
        return value.encode()


def _file(name: str) -> bytes:
    """A small regular file, without the line break at its end; a pipe or a device would never end."""
    try:
        with os.fdopen(os.open(name, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC), "rb") as file:
            if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
                raise BadRequest("It is no regular file.", reason="secret-unreadable")
            return file.read(MOST_BYTES + 2).rstrip(b"\r\n")
    except FileNotFoundError:
        raise NotFound("There is no such file.", reason="secret-not-found") from None
    except OSError as error:
        raise Unavailable(
            f"The file cannot be read: {error.strerror}.", reason="secret-unavailable"
        ) from None


def _asked(request: urllib.request.Request, ca_file: str) -> dict[str, Any]:
    try:
        context = ssl.create_default_context(cafile=ca_file or None)
    except (OSError, ssl.SSLError):
        raise BadRequest("SNAVIO_VAULT_CACERT cannot be read.", reason="vault-not-set") from None
    # No proxy of the environment, and no redirect: the token would go wherever they point.
    opener = urllib.request.build_opener(
        urllib.request.ProxyHandler({}), urllib.request.HTTPSHandler(context=context), _NoRedirect()
    )
    try:
        with contextlib.closing(opener.open(request, timeout=VAULT_SECONDS)) as answer:
            data = answer.read(MOST_ANSWER + 1)
    except urllib.error.HTTPError as error:
        if error.code == 404:
            raise NotFound("Vault has nothing there.", reason="secret-not-found") from None
        if error.code == 403:
            raise Unavailable("Vault does not let this token read it.", reason="secret-refused") from None
        raise Unavailable(f"Vault answered {error.code}.", reason="secret-unavailable") from None
    except (OSError, ValueError) as error:
        why = getattr(error, "reason", None) or error
        raise Unavailable(f"Vault cannot be reached: {why}.", reason="secret-unavailable") from None
    try:
        document = orjson.loads(data)
    except orjson.JSONDecodeError:
        raise Unavailable("Vault's answer cannot be read.", reason="secret-unavailable") from None
    return document if isinstance(document, dict) else {}


class _NoRedirect(urllib.request.HTTPRedirectHandler):
    def redirect_request(self, *_args: Any, **_named: Any) -> None:
        """None makes an error of it."""
