"""The kill switch: stops a source, a target or one command, and tells who obeys already and by when all must.

Never says that an instance obeys because it ought to: each has told Registry which version of the directory it follows.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Collection
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Self

from snavio.admin.client import RegistryClient
from snavio.clock import Clock
from snavio.domain.directory import Profile
from snavio.domain.directory.rules import require_command, require_target, split_source
from snavio.domain.identity import DEFAULT_TRUST_DOMAIN
from snavio.domain.revocation import CEILING_S
from snavio.errors import BadRequest, NotFound, SnavioError
from snavio.v1 import registry_pb2 as wire

CALL_SECONDS: Final = 5.0
ASK_SECONDS: Final = 1.0
PAUSE_SECONDS: Final = 0.05
SHIELD_BOUND_S: Final = 180.0
"""Bound when Registry knows of no Shield: the default of `[shield] keys_stale_ms`."""


@dataclass(frozen=True, slots=True)
class FrozenSubject:
    """The object of a freeze: a source, a target, or one command of it."""

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
class FreezeOrder:
    """A freeze, or its end, as Registry has it."""

    subject: FrozenSubject
    frozen: bool
    version: int
    changed: bool
    bound_s: float
    """From the order on, an instance that hears nothing obeys by then all the same."""
    began_mono_ns: int
    listening_s: float
    """Seconds since Registry started: an instance that has not called it since cannot be named."""


@dataclass(frozen=True, slots=True)
class Acknowledgement:
    """One instance obeys, or gave no word in time."""

    service: str
    instance: str
    obeys: bool
    after_s: float
    detail: str


class KillSwitch(RegistryClient):
    """A client of Registry under an operator's certificate. Every Shield, Fast and Slow calls Registry about once a
    second and says what it has applied, so all of them are heard of, wherever they run."""

    call_seconds = CALL_SECONDS

    def __init__(
        self,
        registry: str,
        *,
        certificates: Path,
        clock: Clock,
        trust_domain: str = DEFAULT_TRUST_DOMAIN,
    ) -> None:
        super().__init__(registry, certificates=certificates, trust_domain=trust_domain)
        self._clock = clock

    async def order(
        self, subject: FrozenSubject, *, frozen: bool, until_unix_ns: int = 0, reason: str = ""
    ) -> FreezeOrder:
        """Write it down; durable when this returns. It ends by itself at `until_unix_ns`, if that is not 0."""
        began = self._clock.mono_ns()
        options = wire.WriteOptions(reason=reason)
        if subject.source:
            written = await self._write(
                "SetSuspension",
                wire.SetSuspensionRequest(
                    suspension=wire.Suspension(
                        source=subject.source, reason=reason or "frozen", until_unix_ns=until_unix_ns
                    ),
                    suspended=frozen,
                    options=options,
                ),
            )
        else:
            ban = wire.Ban(
                list=wire.BAN_LIST_FROZEN,
                target=subject.target,
                name=subject.name,
                until_unix_ns=until_unix_ns,
                reason=reason,
            )
            written = await self._write(
                "SetBan", wire.SetBanRequest(ban=ban, lifted=not frozen, options=options)
            )
        followers = await self._followers(CALL_SECONDS)
        return FreezeOrder(
            subject,
            frozen,
            written.version,
            written.changed,
            await self._bound_s(subject, followers),
            began,
            followers.listening_ms / 1000,
        )

    async def acknowledgements(
        self, order: FreezeOrder, *, within_s: float
    ) -> AsyncIterator[Acknowledgement]:
        """One per instance, as they come; those that gave no word by `within_s` come last and do not obey yet."""
        # Fast has no part in stopping a source: Shield lets none of its commands in.
        services = ("shield", "slow") if order.subject.source else ("fast", "slow")
        obeying: set[tuple[str, str]] = set()
        silent: dict[tuple[str, str], str] = {}
        while True:
            found = await self._heard(services)
            after_s = (self._clock.mono_ns() - order.began_mono_ns) / 1e9
            silent = dict.fromkeys(((service, "") for service in services), "Registry has heard of none.")
            for each in found:
                key = (each.service, each.instance)
                silent.pop((each.service, ""), None)
                obeys, detail = _word(each, order)
                if key in obeying:
                    continue
                if obeys:
                    obeying.add(key)
                    yield Acknowledgement(*key, True, after_s, detail)
                else:
                    silent[key] = detail
            if not silent or after_s >= within_s:
                break
            await asyncio.sleep(PAUSE_SECONDS)
        for (service, instance), detail in silent.items():
            yield Acknowledgement(service, instance or f"every {service}", False, after_s, detail)

    async def _heard(self, services: Collection[str]) -> list[wire.Follower]:
        try:
            answer = await self._followers(ASK_SECONDS)
        except SnavioError:
            # It may come back within the time that the caller gave us.
            return []
        return [follower for follower in answer.follower if follower.service in services]

    async def _bound_s(self, subject: FrozenSubject, followers: wire.FollowersResponse) -> float:
        if subject.source:
            shields = [each.bound_ms / 1000 for each in followers.follower if each.service == "shield"]
            return max(shields, default=SHIELD_BOUND_S)
        fasts = [each.bound_ms / 1000 for each in followers.follower if each.service == "fast"]
        promised_s = max(CEILING_S.values())
        longest_s: float = max([promised_s, *fasts])
        if not subject.name or longest_s > promised_s:
            # Some command of it may be of any profile, or the installation has ages of its own.
            return longest_s
        request = wire.HistoryRequest(kind="route", key=[subject.target, subject.name], limit=1)
        rights = wire.ListAccessRequest(target=subject.target)
        try:
            found = await self._call("History", request, wire.HistoryResponse)
            listed = await self._call("ListAccess", rights, wire.ListAccessResponse)
        except (NotFound, BadRequest):
            return longest_s
        if listed.more:
            return longest_s
        # A right may be less sensitive than its route.
        profiles = {right.profile for right in listed.acl if right.name == subject.name and right.profile}
        profiles.add(found.change[-1].route.profile if found.change else 0)
        return max(CEILING_S[Profile(profile or Profile.LOW)] for profile in profiles)

    async def _followers(self, timeout_s: float) -> wire.FollowersResponse:
        return await self._call(
            "Followers", wire.FollowersRequest(), wire.FollowersResponse, timeout_s=timeout_s
        )

    async def _write(
        self, method: str, request: wire.SetSuspensionRequest | wire.SetBanRequest
    ) -> wire.WriteResponse:
        return await self._call(method, request, wire.WriteResponse)


def _word(follower: wire.Follower, order: FreezeOrder) -> tuple[bool, str]:
    """True if it obeys, and the evidence for it."""
    if follower.version >= order.version:
        if follower.service == "slow":
            return True, "It asks Registry about every command."
        return True, f"It follows version {follower.version}."
    silent_s = follower.silent_ms / 1000
    if follower.silent_ms >= follower.bound_ms:
        return True, f"Not heard of for {silent_s:.0f} s: whatever it knew is too old to be used by now."
    return False, (
        f"It followed version {follower.version} when it last called, {silent_s:.1f} s ago, and the order is "
        f"{order.version}."
    )
