"""The health port of a service: /livez, /readyz and /metrics over plain HTTP on loopback, and over TLS elsewhere.

Never tells a tenant's name to a stranger: beyond loopback /metrics wants the certificate of an operator or a scraper.
Answers on the service's own event loop, so that a service that hangs is not called alive.
"""

from __future__ import annotations

import asyncio
import ipaddress
import re
import socket
import ssl
from collections.abc import Callable, Mapping
from contextlib import suppress
from http import HTTPStatus
from typing import Final

import orjson
import structlog

from snavio.clock import Clock
from snavio.config.safety import is_loopback
from snavio.config.sections import split_address
from snavio.domain.verdict import Verdict
from snavio.errors import StateError, Unauthenticated
from snavio.host.background import background
from snavio.host.introspection import Introspection
from snavio.host.periodic import Periodic
from snavio.host.small_http import Answer, Connections, Request
from snavio.observe.points import MetricReadings
from snavio.observe.prometheus_text import CONTENT_TYPE, prometheus_text
from snavio.rpc.authorisation import authorise
from snavio.rpc.certificate_gate import CertificateGate
from snavio.rpc.credentials import CertificateFiles, CertificateWatch
from snavio.rpc.peer import Peers
from snavio.rpc.tls_listener import listening_socket, server_context

LIVE: Final = frozenset({"/livez", "/healthz"})
READY: Final = "/readyz"
METRICS: Final = "/metrics"
LOOK_SECONDS: Final = 1.0
_JSON: Final = "application/json"
_HOST: Final = re.compile(r"\[?([0-9a-zA-Z.:-]*?)\]?(?::[0-9]{1,5})?")


class HealthPort:
    """Listens at `address`; if that is taken and was not chosen by anybody, at any port of the same host.

    `readiness` tells whether the service and each of its parts takes work.
    """

    def __init__(
        self,
        address: str,
        *,
        chosen: bool,
        introspection: Introspection,
        readiness: Callable[[], Mapping[str, bool]],
        files: CertificateFiles,
        gate: CertificateGate,
        trust_domain: str,
        clock: Clock,
    ) -> None:
        self._host, self._port = split_address(address)
        self._chosen = chosen
        self._plain = is_loopback(address)
        self._readiness = readiness
        self._service = introspection.service
        self._readings = MetricReadings(introspection)
        self._files = files
        self._gate = gate
        self._peers = Peers(trust_domain=trust_domain)
        self._clock = clock
        self._connections = Connections(self._answer, frozenset({*LIVE, READY, METRICS}))
        self._socket: socket.socket | None = None
        self._tls: ssl.SSLContext | None = None
        self._accepting: asyncio.Task[None] | None = None
        self._watch: CertificateWatch | None = None
        self._renewals = Periodic("health port's certificate", self._follow, every_s=LOOK_SECONDS)
        self._scrape: asyncio.Task[bytes] | None = None
        introspection.counts(lambda: dict(self._connections.answers), prefix="health_port.")
        introspection.series("snavio.ready", self._told_ready)
        self.port = 0
        """The port that it listens on; 0 before `start`."""

    @property
    def readings(self) -> MetricReadings:
        """The source of a scrape."""
        return self._readings

    async def start(self) -> None:
        """Listen; StateError `address-taken` when a chosen address is taken."""
        try:
            self._socket = listening_socket(self._host, self._port)
        except StateError:
            if self._chosen:
                raise
            self._socket = listening_socket(self._host, 0)
            structlog.get_logger().warning(
                "the health port's usual place is taken", usual=self._port, port=self._socket.getsockname()[1]
            )
        self.port = int(self._socket.getsockname()[1])
        if not self._plain:
            self._watch = CertificateWatch(self._files)
            self._tls = server_context(self._files)
            self._renewals.start()
        self._accepting = background().once(
            "health port", self._connections.accept(self._socket, lambda: self._tls)
        )

    async def stop(self) -> None:
        """Close the listener and every connection."""
        await self._renewals.stop()
        if self._accepting is not None:
            self._accepting.cancel()
            with suppress(asyncio.CancelledError):
                await self._accepting
        if self._socket is not None:
            self._socket.close()
        self._connections.close()
        if self._scrape is not None:
            self._scrape.cancel()

    async def _follow(self) -> None:
        if self._watch is not None and self._watch.renewed() is not None:
            self._tls = server_context(self._files)

    async def _answer(self, request: Request) -> Answer:
        if request.path in LIVE:
            return self._live()
        if request.path == READY:
            return self._ready("")
        if request.path.startswith(READY + "/"):
            return self._ready(request.path.removeprefix(READY + "/"))
        if request.path == METRICS:
            return await self._metrics(request)
        return Answer(HTTPStatus.NOT_FOUND, b"There are /livez, /readyz and /metrics.\n")

    def _live(self) -> Answer:
        lost = background().lost_work
        if lost is not None:
            return Answer(HTTPStatus.SERVICE_UNAVAILABLE, f"{lost} cannot go on.\n".encode())
        return Answer(HTTPStatus.OK, b"ok\n")

    def _ready(self, part: str) -> Answer:
        parts = self._readiness()
        if part and part not in parts:
            return Answer(HTTPStatus.NOT_FOUND, b"There is no such part.\n")
        # A part that has a probe of its own, such as the mailbox's writes, does not take the whole service out.
        ready = parts[part] if part else parts[""]
        told = {name: good for name, good in parts.items() if name}
        body = orjson.dumps({"service": self._service, "ready": ready, "parts": told}) + b"\n"
        return Answer(HTTPStatus.OK if ready else HTTPStatus.SERVICE_UNAVAILABLE, body, _JSON)

    def _told_ready(self) -> list[tuple[tuple[str, ...], float]]:
        return [((name or "service",), float(good)) for name, good in self._readiness().items()]

    async def _metrics(self, request: Request) -> Answer:
        refusal = _of_another_site(request.host) if self._plain else self._refusal(request)
        if refusal is not None:
            return refusal
        # One scrape at a time, whoever asks: reading belongs to this thread, writing the text to another.
        if self._scrape is None or self._scrape.done():
            self._scrape = background().once("scrape", self._text())
        return Answer(HTTPStatus.OK, await asyncio.shield(self._scrape), CONTENT_TYPE)

    async def _text(self) -> bytes:
        points = self._readings.points()
        return await asyncio.to_thread(prometheus_text, points)

    def _refusal(self, request: Request) -> Answer | None:
        try:
            peer = self._peers.of_certificate(request.certificate)
        except Unauthenticated:
            return Answer(
                HTTPStatus.UNAUTHORIZED, b"/metrics wants the certificate of an operator or a scraper.\n"
            )
        if not authorise(f"GET {METRICS}", peer.identity):
            return Answer(HTTPStatus.FORBIDDEN, b"Operators and the job scraper may read metrics.\n")
        if self._gate.check(peer) is not Verdict.UNDECIDED:
            return Answer(HTTPStatus.FORBIDDEN, b"The certificate is not valid any more.\n")
        return None


def _of_another_site(host: str) -> Answer | None:
    """A refusal where a browser was led here under the name of a site, whose scripts could read the answer."""
    matched = _HOST.fullmatch(host)
    name = matched[1].lower() if matched else "?"
    if name in ("", "localhost"):
        return None
    try:
        ipaddress.ip_address(name)
    except ValueError:
        return Answer(HTTPStatus.FORBIDDEN, b"Ask by the address, or as localhost.\n")
    return None
