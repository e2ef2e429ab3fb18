"""Suspensions and bans in force, by tenant, as Registry's directory has them.

Never says "none" before it has read them, and never tells a tenant the evidence, which is the operators'.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from snavio.clock import Clock
from snavio.host.periodic import Periodic
from snavio.native import format_timestamp
from snavio.replication.directory_dump import DumpReading
from snavio.rpc.channel import MeshChannel
from snavio.v1.registry_pb2 import BAN_LIST_FROZEN, Ban, BanList, Change, Suspension

AGAIN_SECONDS: Final = 600.0
"""Changes are taken as they come; reading all of it again mends what was missed."""
FIRST_SECONDS: Final = 1.0
MOST_TOLD: Final = 200
"""Of each, in the state of one tenant."""

_Key = tuple[int, str, str, str]


class TenantRestrictions:
    """Lives on one event loop; as large as the directory's lists, which Registry bounds."""

    def __init__(self, registry: MeshChannel, *, owner: Callable[[str], str], clock: Clock) -> None:
        self._registry = registry
        self._owner = owner
        self._clock = clock
        self._suspensions: dict[str, Suspension] = {}
        self._bans: dict[_Key, Ban] = {}
        self._read = False
        # Changes that came while everything was read: the reading may be of before them.
        self._meanwhile: list[Change] | None = None
        self._readings = Periodic(
            "restrictions",
            self.read,
            # Registry may start after Relay: the first reading is not to be awaited for ten minutes.
            every_s=lambda: AGAIN_SECONDS if self._read else FIRST_SECONDS,
            first_s=0.5,
            longest_s=30.0,
        )

    async def start(self) -> None:
        """Read in the background until `stop`."""
        self._readings.start(at_once=True)

    async def stop(self) -> None:
        """End the readings."""
        await self._readings.stop()

    async def read(self) -> None:
        """Read all of them anew."""
        suspensions: dict[str, Suspension] = {}
        bans: dict[_Key, Ban] = {}
        self._meanwhile = []
        try:
            async for entry in DumpReading(self._registry, kind="suspension").entries():
                suspensions[entry.suspension.source] = entry.suspension
            async for entry in DumpReading(self._registry, kind="ban").entries():
                bans[_key(entry.ban)] = entry.ban
        finally:
            missed, self._meanwhile = self._meanwhile, None
        self._suspensions, self._bans, self._read = suspensions, bans, True
        for change in missed:
            self.take(change)

    def take(self, change: Change) -> None:
        """Apply a change of the directory."""
        kind = change.WhichOneof("value")
        if kind not in ("suspension", "ban"):
            return
        if self._meanwhile is not None:
            self._meanwhile.append(change)
        match kind, change.deleted:
            case "suspension", False:
                self._suspensions[change.suspension.source] = change.suspension
            case "suspension", True:
                self._suspensions.pop(change.suspension.source, None)
            case "ban", False:
                self._bans[_key(change.ban)] = change.ban
            case "ban", True:
                self._bans.pop(_key(change.ban), None)

    def members(self, tenant: str) -> dict[str, Any] | None:
        """Those in force for the tenant's sources and targets, for its signed state; None while unknown."""
        if not self._read:
            return None
        now = self._clock.unix_ns()
        suspensions = [
            {"source": each.source, "reason": each.reason, "until": _until(each.until_unix_ns)}
            for each in sorted(self._suspensions.values(), key=lambda each: each.source)
            if each.source.startswith(f"{tenant}/") and _in_force(each.until_unix_ns, now)
        ]
        bans = [
            {
                "list": BanList.Name(each.list).removeprefix("BAN_LIST_").lower(),
                "source": each.source or None,
                "target": each.target or None,
                "name": each.name or None,
                "reason": each.reason,
                "until": _until(each.until_unix_ns),
            }
            for each in sorted(self._bans.values(), key=_key)
            if self._concerns(each, tenant) and _in_force(each.until_unix_ns, now)
        ]
        return {"suspensions": suspensions[:MOST_TOLD], "bans": bans[:MOST_TOLD]}

    def _concerns(self, ban: Ban, tenant: str) -> bool:
        if ban.list == BAN_LIST_FROZEN:
            return self._owner(ban.target) == tenant
        return ban.source.startswith(f"{tenant}/")


def _key(ban: Ban) -> _Key:
    return ban.list, ban.source, ban.target, ban.name


def _in_force(until_unix_ns: int, now_unix_ns: int) -> bool:
    return until_unix_ns == 0 or until_unix_ns > now_unix_ns


def _until(unix_ns: int) -> str | None:
    return format_timestamp(unix_ns) if unix_ns else None
