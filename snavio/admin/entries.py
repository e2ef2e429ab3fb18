"""Client of operators and principals for the entries of the directory: list, show, delete, suspend, read the log.

Never retries a write: what became of one that was not answered is asked by writing it again.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from snavio.admin.client import RegistryClient
from snavio.errors import NotFound
from snavio.v1 import registry_pb2 as wire

CALL_SECONDS = 10.0


@dataclass(frozen=True, slots=True)
class EntryDetails:
    """An entry as it stands, and the change that wrote it."""

    value: Any
    version: int
    at_unix_ns: int
    actor: str
    """Empty where it is not the reader's to see."""
    reason: str


class EntryClient(RegistryClient):
    """A client of Registry under the certificate in `certificates`."""

    call_seconds = CALL_SECONDS

    async def entries(
        self, kind: str, *, tenant: str = "", target: str = "", limit: int = 0
    ) -> AsyncIterator[tuple[Any, int]]:
        """Entries of a kind with their versions, by key; `limit` is the size of a page."""
        request = wire.ListEntriesRequest(kind=kind, tenant=tenant, target=target, limit=limit)
        answer = await self._list(request)
        while True:
            request.page_token = answer.next_page_token
            # Registry reads the next page while this one is looked at.
            following = asyncio.create_task(self._list(request)) if request.page_token else None
            try:
                for each in answer.entry:
                    yield getattr(each.entry, kind), each.version
                if following is None:
                    return
                answer = await following
            finally:
                if following is not None:
                    following.cancel()

    async def show(self, kind: str, *key: str) -> EntryDetails:
        """One entry; NotFound when it is not there, or not any more."""
        request = wire.HistoryRequest(kind=kind, key=key, limit=1)
        found = await self._call("History", request, wire.HistoryResponse)
        if not found.change or found.change[-1].deleted:
            gone = ", not any more" if found.change else ""
            raise NotFound(
                f"There is no {kind.replace('_', ' ')} {' '.join(key)}{gone}; `snavio log` tells what became of it."
                if gone
                else f"There is no {kind.replace('_', ' ')} {' '.join(key)}.",
                reason=f"unknown-{kind.replace('_', '-')}",
            )
        change = found.change[-1]
        return EntryDetails(
            getattr(change, kind), change.version, change.at_unix_ns, change.actor, change.reason
        )

    async def delete(
        self,
        kind: str,
        *key: str,
        with_dependents: bool = False,
        dry_run: bool = False,
        reason: str = "",
    ) -> wire.DeleteEntryResponse:
        """Delete an entry; Conflict `in-use` when something depends on it and may not go with it."""
        request = wire.DeleteEntryRequest(
            kind=kind,
            key=key,
            with_dependents=with_dependents,
            dry_run=dry_run,
            options=wire.WriteOptions(reason=reason),
        )
        return await self._call("DeleteEntry", request, wire.DeleteEntryResponse)

    async def suspend(self, source: str, *, until_unix_ns: int = 0, reason: str = "") -> wire.WriteResponse:
        """Keep a source out, or with `<tenant>/*` every source of a tenant. Operators only."""
        value = wire.Suspension(source=source, reason=reason, until_unix_ns=until_unix_ns)
        request = wire.SetSuspensionRequest(
            suspension=value, suspended=True, options=wire.WriteOptions(reason=reason)
        )
        return await self._call("SetSuspension", request, wire.WriteResponse)

    async def resume(self, source: str, *, reason: str = "") -> wire.WriteResponse:
        """End that before its time."""
        request = wire.SetSuspensionRequest(
            suspension=wire.Suspension(source=source), options=wire.WriteOptions(reason=reason)
        )
        return await self._call("SetSuspension", request, wire.WriteResponse)

    async def cold_only(
        self,
        source: str,
        *,
        target: str = "",
        name: str = "",
        until_unix_ns: int = 0,
        reason: str = "",
    ) -> wire.WriteResponse:
        """Send a source's commands by Slow: all of them, or those of one route. Operators only."""
        ban = wire.Ban(
            list=wire.BAN_LIST_COLD_ONLY,
            source=source,
            target=target,
            name=name,
            until_unix_ns=until_unix_ns,
            reason=reason,
        )
        request = wire.SetBanRequest(ban=ban, options=wire.WriteOptions(reason=reason))
        return await self._call("SetBan", request, wire.WriteResponse)

    async def log(
        self,
        *,
        tenant: str = "",
        kinds: Iterable[str] = (),
        since_version: int = 0,
        from_unix_ns: int = 0,
        to_unix_ns: int = 0,
    ) -> AsyncIterator[tuple[Sequence[wire.Change], int]]:
        """Changes in order, a page at a time with the version up to which the log was searched."""
        request = wire.ReadLogRequest(
            tenant=tenant,
            kind=sorted(kinds),
            since_version=since_version,
            from_unix_ns=from_unix_ns,
            to_unix_ns=to_unix_ns,
        )
        more = True
        while more:
            answer = await self._call("ReadLog", request, wire.ReadLogResponse)
            yield list(answer.change), answer.version
            request.since_version, more = answer.version, answer.more

    async def rights(self, source: str) -> wire.ListAccessResponse:
        """The rights of a source."""
        request = wire.ListAccessRequest(source=source)
        return await self._call("ListAccess", request, wire.ListAccessResponse)

    async def _list(self, request: wire.ListEntriesRequest) -> wire.ListEntriesResponse:
        return await self._call("ListEntries", request, wire.ListEntriesResponse)
