"""The kill switch: stops a source, a target or one command, and tells who obeys already and by when all must.

Never says that an instance obeys because it ought to: each tells which version of the directory it follows.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Final, Self

from snavio.clock import Clock
from snavio.domain.directory import Profile
from snavio.domain.directory.rules import require_command, require_target, split_source
from snavio.domain.identity import DEFAULT_TRUST_DOMAIN
from snavio.domain.revocation import CEILING_S
from snavio.errors import BadRequest, NotFound, SnavioError
from snavio.transport.channel import MeshChannel
from snavio.transport.credentials import CertificateFiles
from snavio.v1 import registry_pb2 as wire
from snavio.v1.introspection_pb2 import StatusRequest, StatusResponse

CALL_SECONDS: Final = 5.0
ASK_SECONDS: Final = 1.0
PAUSE_SECONDS: Final = 0.05


@dataclass(frozen=True, slots=True)
class Subject:
    """What is to stop: a source, a target, or one command of it."""

    source: str = ""
    target: str = ""
    name: str = ""

    @classmethod
    def read(cls, what: str, command: str = "") -> Self:
        """`<tenant>/<service>`, or `<target>` with or without a command."""
        if "/" in what:
            if command:
                raise BadRequest("A source is stopped as a whole: leave the command out.", reason="bad-field")
            split_source(what, "source")
            return cls(source=what)
        require_target(what, "target")
        if command:
            require_command(command, "command")
        return cls(target=what, name=command)

    def __str__(self) -> str:
        return self.source or f"{self.target} {self.name}".strip()


@dataclass(frozen=True, slots=True)
class Order:
    """A freeze, or its end, as Registry has it."""

    subject: Subject
    frozen: bool
    version: int
    changed: bool
    bound_s: float
    """From the order on, an instance that hears nothing obeys by then all the same."""
    began_mono_ns: int


@dataclass(frozen=True, slots=True)
class Acknowledgement:
    """One instance obeys, or gave no word in time."""

    service: str
    instance: str
    obeys: bool
    after_s: float
    detail: str


class KillSwitch:
    """A client of Registry, Shield, Fast and Slow under an operator's certificate."""

    def __init__(
        self,
        addresses: Mapping[str, str],
        *,
        certificates: Path,
        clock: Clock,
        trust_domain: str = DEFAULT_TRUST_DOMAIN,
    ) -> None:
        files = CertificateFiles.in_folder(certificates)
        self._clock = clock
        self._channels = {
            name: MeshChannel(addresses[name], files=files, service=name, trust_domain=trust_domain)
            for name in ("registry", "shield", "fast", "slow")
        }

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for channel in self._channels.values():
            await channel.close()

    async def order(self, subject: Subject, *, frozen: bool, reason: str = "") -> Order:
        """Write it down; durable when this returns."""
        began = self._clock.mono_ns()
        options = wire.WriteOptions(reason=reason)
        if subject.source:
            written = await self._write(
                "SetSuspension",
                wire.SetSuspensionRequest(
                    suspension=wire.Suspension(source=subject.source, reason=reason or "frozen"),
                    suspended=frozen,
                    options=options,
                ),
            )
        else:
            ban = wire.Ban(list=wire.BAN_LIST_FROZEN, target=subject.target, name=subject.name, reason=reason)
            written = await self._write(
                "SetBan", wire.SetBanRequest(ban=ban, lifted=not frozen, options=options)
            )
        return Order(subject, frozen, written.version, written.changed, await self._bound_s(subject), began)

    async def acknowledgements(self, order: Order, *, within_s: float) -> AsyncIterator[Acknowledgement]:
        """One per instance, as they come; those that gave no word by `within_s` come last and do not obey yet."""
        # Fast has no part in stopping a source: Shield lets none of its commands in.
        names = ("shield", "slow") if order.subject.source else ("fast", "slow")
        asking = [asyncio.create_task(self._acknowledged(name, order, within_s)) for name in names]
        try:
            for done in asyncio.as_completed(asking):
                yield await done
        finally:
            for task in asking:
                task.cancel()

    async def _acknowledged(self, service: str, order: Order, within_s: float) -> Acknowledgement:
        last = "It does not answer."
        instance = service
        while True:
            status = await self._status(service)
            after_s = (self._clock.mono_ns() - order.began_mono_ns) / 1e9
            if status is not None:
                instance = status.instance
                version = _gauge(status, "directory.version")
                if service == "slow":
                    detail = "It asks Registry about every command."
                    return Acknowledgement(service, instance, True, after_s, detail)
                if version is not None and version >= order.version:
                    detail = f"It follows version {int(version)}."
                    return Acknowledgement(service, instance, True, after_s, detail)
                last = f"It follows version {int(version or 0)}, and the order is {order.version}."
            if after_s >= within_s:
                return Acknowledgement(service, instance, False, after_s, last)
            await asyncio.sleep(PAUSE_SECONDS)

    async def _bound_s(self, subject: Subject) -> float:
        if subject.source:
            status = await self._status("shield")
            return (_gauge(status, "directory.bound_s") if status is not None else None) or CEILING_S[
                Profile.LOW
            ]
        if not subject.name:
            # Some command of it may be of any profile.
            return max(CEILING_S.values())
        request = wire.HistoryRequest(kind="route", key=[subject.target, subject.name], limit=1)
        try:
            found = await self._channels["registry"].call(
                "/snavio.v1.Registry/History", request, wire.HistoryResponse, timeout_s=CALL_SECONDS
            )
        except (NotFound, BadRequest):
            return max(CEILING_S.values())
        profile = found.change[-1].route.profile if found.change else 0
        return CEILING_S[Profile(profile or Profile.LOW)]

    async def _status(self, service: str) -> StatusResponse | None:
        try:
            return await self._channels[service].call(
                "/snavio.v1.Introspection/Status", StatusRequest(), StatusResponse, timeout_s=ASK_SECONDS
            )
        except SnavioError:
            return None

    async def _write(
        self, method: str, request: wire.SetSuspensionRequest | wire.SetBanRequest
    ) -> wire.WriteResponse:
        return await self._channels["registry"].call(
            f"/snavio.v1.Registry/{method}", request, wire.WriteResponse, timeout_s=CALL_SECONDS
        )


def _gauge(status: StatusResponse, name: str) -> float | None:
    return next((gauge.value for gauge in status.gauge if gauge.name == name), None)
