"""Access requests when a target's name changes hands."""

from __future__ import annotations

from dataclasses import replace

import pytest

from services.registry.reads.history import History
from services.registry.writes.access_requests import AccessRequests
from services.registry.writes.entry_limits import EntryLimits
from services.registry.writes.ownership import Ownership
from snavio.clock import ManualClock
from snavio.domain.directory import (
    AccessRequest,
    AclEntry,
    Draft,
    RequestState,
    Route,
    Service,
    Target,
    Tenant,
)
from snavio.domain.identity import Identity, IdentityKind
from snavio.errors import NotFound
from tests.support.decisions import always
from tests.support.memory_directory import MemoryDirectory

SHOP = "shop/web"
ASKED = AccessRequest(SHOP, "bot", "Ping", reason="our new campaign")


def principal(tenant: str) -> Identity:
    return Identity("snavio.local", IdentityKind.PRINCIPAL, "ci", tenant)


class Town:
    """`acme` was asked for access to `bot`, declined, and gave the name back; `globex` has it now."""

    def __init__(self) -> None:
        self.clock = ManualClock()
        self.directory = MemoryDirectory(clock=self.clock)
        self.asking = AccessRequests(Ownership(EntryLimits(), self.clock))

    async def begin(self) -> None:
        tenants = [Draft(Tenant(name)) for name in ("acme", "globex", "shop")]
        drafts = [
            *tenants,
            Draft(Service("shop", "web")),
            Draft(Target("bot", "acme")),
            Draft(Route("bot", "Ping")),
        ]
        await self.directory.write(lambda _view: drafts, actor="test")
        await self.ask()
        decide = self.asking.answer(principal("acme"), ASKED.acl, grant=False, words="we leave the market")
        await self.directory.write(decide, actor="test")
        for draft in (
            Draft(Target("bot", "acme"), deleted=True),
            Draft(Target("bot", "globex")),
        ):
            await self.directory.write(always(draft), actor="test")

    async def ask(self, reason: str = ASKED.reason) -> bool:
        decide = self.asking.ask(principal("shop"), replace(ASKED, reason=reason))
        return (await self.directory.write(decide, actor="test")).changed

    async def incoming(self) -> list[AccessRequest]:
        _, (incoming, _, _) = await self.directory.read(self.asking.concerning(principal("globex"), "globex"))
        return incoming


@pytest.fixture
async def town() -> Town:
    made = Town()
    await made.begin()
    return made


async def test_the_next_owner_neither_reads_nor_answers_what_the_one_before_was_asked(town: Town) -> None:
    assert await town.incoming() == []
    with pytest.raises(NotFound):
        decide = town.asking.answer(principal("globex"), ASKED.acl, grant=True, words="")
        await town.directory.write(decide, actor="test")
    assert town.directory.find(AclEntry, SHOP, "bot", "Ping") is None


async def test_the_next_owner_can_be_asked_the_same_and_learns_nothing_of_the_first_answer(
    town: Town,
) -> None:
    assert await town.ask()
    (asked,) = await town.incoming()
    assert (asked.state, asked.answer) == (RequestState.PENDING, "")
    past = History(town.directory, town.clock)
    (change,) = await past.history("access_request", ASKED.key, limit=0, reader=principal("globex"))
    assert change.before is None
    assert len(await past.history("access_request", ASKED.key, limit=0, reader=principal("shop"))) == 3


async def test_a_page_of_history_says_what_stood_there_before_it(town: Town) -> None:
    await town.ask()
    past = History(town.directory, town.clock)
    (newest,) = await past.history("access_request", ASKED.key, limit=1, reader=principal("shop"))
    assert isinstance(newest.before, AccessRequest)
    assert newest.before.answer == "we leave the market"
