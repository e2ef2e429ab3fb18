"""The promises of every `KeyStore` about enrolment tokens, delegations, and many revocations at once."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from snavio.adapters.embedded.sealed_keystore import SealedKeyStore
from snavio.domain.delegation import Delegation
from snavio.domain.enrolment import Enrolment, Enrolments
from snavio.errors import SnavioError
from snavio.ports.keystore import KeyStore, Revocation
from tests.support import keystores
from tests.support.keystores import KEY

NOW = 1_700_000_000_000_000_000
path, store = keystores.path, keystores.store
TOKEN = Enrolment(b"planted-digest-0123456789abcdef!", "acme", "", NOW + 1000, "admin")


async def test_enrolments_and_delegations_are_there_after_reopening_and_sealed(path: Path) -> None:
    first = await SealedKeyStore.open(path, key=KEY, create=True)
    await first.update_enrolments(lambda before: before.added(TOKEN, now_ns=NOW))
    await first.put_delegation("acme/billing", Delegation("acme/billing", ("ci",), suspended=True))
    await first.close()
    assert TOKEN.digest not in path.read_bytes()
    assert TOKEN.digest.hex().encode() not in path.read_bytes()
    second = await SealedKeyStore.open(path, key=KEY)
    assert await second.enrolments() == Enrolments(NOW, (TOKEN,))
    assert await second.delegation("acme/billing") == Delegation("acme/billing", ("ci",), suspended=True)
    await second.close()


async def test_of_many_who_take_one_token_one_has_it(store: KeyStore) -> None:
    await store.update_enrolments(lambda before: before.added(TOKEN, now_ns=NOW))
    had: list[int] = []

    def take(number: int) -> None:
        def decide(before: Enrolments) -> Enrolments:
            if before.find(TOKEN.digest) is not None:
                had.append(number)
            return before.without(TOKEN.digest, now_ns=NOW)

        tasks.append(asyncio.ensure_future(store.update_enrolments(decide)))

    tasks: list[asyncio.Future[Enrolments]] = []
    for number in range(8):
        take(number)
    await asyncio.gather(*tasks)
    assert len(had) == 1


async def test_decision_that_raises_writes_nothing(store: KeyStore) -> None:
    def refuse(_before: Enrolments) -> Enrolments:
        raise SnavioError("no")

    with pytest.raises(SnavioError):
        await store.update_enrolments(refuse)
    assert await store.enrolments() == Enrolments()


async def test_delegation_is_replaced_and_forgotten(store: KeyStore) -> None:
    one, two = Delegation("acme/billing", ("ci",)), Delegation("acme/billing", ("cd",))
    assert await store.put_delegation("acme/billing", one) is None
    assert await store.put_delegation("acme/billing", two) == one
    assert await store.put_delegation("acme/billing", None) == two
    assert await store.delegation("acme/billing") is None


async def test_many_revocations_are_one_write_and_come_in_pages(store: KeyStore) -> None:
    revocations = [Revocation(f"a{number}", NOW, NOW + 1000, "admin", "test") for number in range(10)]
    version = await store.revoke_all(revocations, now_ns=NOW)
    assert await store.revoke_all(revocations, now_ns=NOW) == version
    assert await store.revoke_all([], now_ns=NOW) == 0
    seen: list[str] = []
    since = 0
    while page := (await store.revocations_since(since, now_ns=NOW, limit=3)):
        if not page.revocations:
            break
        seen += [revocation.subject for revocation in page.revocations]
        since = page.version
    assert seen == [revocation.subject for revocation in revocations]
    assert since == version
