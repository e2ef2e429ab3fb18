"""Conditions of the mesh itself that operators are told of: what is away, what is nearly full, what ends soon.

Never tells of a pause that a restart takes: a condition has to hold for a while.
"""

from __future__ import annotations

import math
from collections.abc import Awaitable, Callable, Mapping, Sequence
from pathlib import Path
from typing import Final

from cryptography import x509

from snavio.clock import Clock
from snavio.domain.alerts import BOUND_NEAR, CERTIFICATE_ENDING, OPERATORS, SERVICE_AWAY, Occurrence
from snavio.errors import SnavioError
from snavio.rpc.channel import MeshChannel
from snavio.v1.introspection_pb2 import StatusRequest, StatusResponse

LOOK_SECONDS: Final = 15.0
AWAY_NS: Final = 60 * 1_000_000_000
NEAR: Final = 0.8
STATUS: Final = "/snavio.v1.Introspection/Status"
CALL_SECONDS: Final = 3.0
CA_NS: Final = 30 * 86_400 * 1_000_000_000
LEAF_LEFT: Final = 0.2
"""A leaf is renewed long before this much of its life is left."""
EXPIRES: Final = "certificate.expires_in_s"
LIFETIME: Final = "certificate.lifetime_s"
"""The gauges by which a service tells of its own certificate."""
AGAIN_NS: Final = 3600 * 1_000_000_000
"""A condition that lasts counts again once an hour."""

Note = Callable[[Sequence[Occurrence]], Awaitable[None]]
Fullness = Callable[[], Mapping[str, float]]


class OperatorWatch:
    """Lives on one event loop; one look at a time."""

    def __init__(
        self,
        *,
        services: Mapping[str, MeshChannel],
        fullness: Fullness,
        certificate: Path,
        ca: Path,
        note: Note,
        clock: Clock,
    ) -> None:
        self._services = services
        self._fullness = fullness
        self._certificate = certificate
        self._ca = ca
        self._note = note
        self._clock = clock
        self._away_since: dict[str, int] = {}
        self._told: dict[tuple[str, str], int] = {}

    async def look(self) -> None:
        """Look at everything once, and tell what holds."""
        conditions: list[tuple[str, str, dict[str, str]]] = []
        for name, channel in self._services.items():
            conditions += await self._service(name, channel)
        for name, part in self._fullness().items():
            if part >= NEAR:
                conditions.append((BOUND_NEAR, name, {"detail": f"{part:.0%} of its bound"}))
        conditions += self._certificates()
        now = self._clock.unix_ns()
        holding = {(event, reason) for event, reason, _ in conditions}
        self._told = {key: at for key, at in self._told.items() if key in holding}
        occurrences = []
        for event, reason, sample in conditions:
            if now - self._told.get((event, reason), 0) >= AGAIN_NS:
                occurrences.append(Occurrence(OPERATORS, event, reason, 1, now, sample))
        if occurrences:
            await self._note(occurrences)
            self._told |= {(each.event, each.reason): now for each in occurrences}

    async def _service(self, name: str, channel: MeshChannel) -> list[tuple[str, str, dict[str, str]]]:
        now = self._clock.mono_ns()
        try:
            told = await channel.call(STATUS, StatusRequest(), StatusResponse, timeout_s=CALL_SECONDS)
        except SnavioError as error:
            since = self._away_since.setdefault(name, now)
            if now - since < AWAY_NS:
                return []
            away_s = (now - since) // 1_000_000_000
            return [(SERVICE_AWAY, name, {"service": name, "detail": f"for {away_s} s: {error.reason}"})]
        self._away_since.pop(name, None)
        gauges = {gauge.name: gauge.value for gauge in told.gauge if gauge.name in (EXPIRES, LIFETIME)}
        found: list[tuple[str, str, dict[str, str]]] = []
        # A service that has said nothing yet has read no certificate.
        left_s = gauges.get(EXPIRES, math.inf)
        if left_s < LEAF_LEFT * gauges.get(LIFETIME, 0.0):
            sample = {"service": name, "detail": f"ends in {max(0, round(left_s))} s, and was not renewed"}
            found.append((CERTIFICATE_ENDING, name, sample))
        return found + [
            (
                BOUND_NEAR,
                f"{name}.{share.bound}",
                {"service": name, "detail": f"{share.used} of {share.total}"},
            )
            for share in told.share
            if share.total and share.used >= NEAR * share.total
        ]

    def _certificates(self) -> list[tuple[str, str, dict[str, str]]]:
        now = self._clock.unix_ns()
        found = []
        for name, path in (("ca", self._ca), ("relay", self._certificate)):
            try:
                certificate = x509.load_pem_x509_certificate(path.read_bytes())
            except (OSError, ValueError):
                continue
            begins, ends = (
                round(at.timestamp() * 1e9)
                for at in (certificate.not_valid_before_utc, certificate.not_valid_after_utc)
            )
            near = CA_NS if name == "ca" else round((ends - begins) * LEAF_LEFT)
            if ends - now < near:
                detail = f"ends {certificate.not_valid_after_utc:%Y-%m-%d %H:%M} UTC"
                found.append((CERTIFICATE_ENDING, name, {"service": name, "detail": detail}))
        return found
