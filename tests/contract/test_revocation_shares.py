"""The denylist of a `KeyStore`: one entry per subject, shares, and wider entries where there is no room."""

from __future__ import annotations

from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path

import pytest

from snavio.adapters.embedded.sealed_keystore import SealedKeyStore
from snavio.domain.lineage import ALWAYS, Revoked
from snavio.errors import Saturated
from snavio.host.shares import MESH, ShareLimit
from snavio.ports.keystore import KeyStore, Revocation
from tests.support.keystores import KEY

NOW = 1_700_000_000 * 10**9
LIMIT = ShareLimit(10, 4, 2)


@pytest.fixture
async def store(tmp_path: Path) -> AsyncIterator[KeyStore]:
    opened = await SealedKeyStore.open(tmp_path / "keys", key=KEY, create=True)
    yield opened
    await opened.close()


def service(tenant: str, name: str = "billing") -> str:
    return f"spiffe://d/tenant/{tenant}/service/{name}"


def entry(
    subject: str, *, tenant: str = "acme", name: str = "billing", holder: str | None = None, **more: int
) -> Revocation:
    fields = {"before_ns": NOW, "forget_at_ns": NOW + 1000, **more}
    return Revocation(
        subject,
        NOW,
        actor="",
        reason="",
        identity=service(tenant, name),
        holder=tenant if holder is None else holder,
        **fields,
    )


async def revoke(store: KeyStore, *entries: Revocation, now_ns: int = NOW) -> int:
    return await store.revoke_all(entries, now_ns=now_ns, limit=LIMIT)


async def told(store: KeyStore, since: int = 0) -> dict[str, int]:
    page = await store.revocations_since(since, now_ns=NOW, limit=100)
    return dict(each.entry for each in page.revocations)


async def test_same_subject_again_is_one_entry_up_to_the_later_time(store: KeyStore) -> None:
    first = await revoke(store, entry("a1"))
    assert await revoke(store, entry("a1", before_ns=NOW - 5)) == first
    assert await revoke(store, entry("a1", before_ns=NOW + 5)) > first
    assert await told(store, first) == {"a1": NOW + 5}
    assert await told(store) == {"a1": NOW + 5}
    assert await store.latest_revoked_ns() == NOW + 5


async def test_tenant_whose_share_is_full_gets_wider_entries_and_takes_nothing_from_others(
    store: KeyStore,
) -> None:
    for number in range(4):
        await revoke(store, entry(f"a{number}", before_ns=NOW + number))
    before = await revoke(store, entry("b", tenant="rival"))
    await revoke(store, entry("c", name="bot", before_ns=NOW + 9))
    # Everything of one identity is one entry now, as late as the latest of them; the new one and the rival's stand.
    assert await told(store) == {service("acme"): NOW + 3, "c": NOW + 9, "b": NOW}
    # A service that had read everything before receives the new entries.
    assert set(await told(store, before)) == {service("acme"), "c"}
    assert await store.revocation_holders() == {"acme": 2, "rival": 1}


async def test_identities_of_one_tenant_become_the_tenant(store: KeyStore) -> None:
    for number in range(5):
        await revoke(store, entry(f"a{number}", name=f"s{number}"))
    assert await told(store) == {"tenant:acme": NOW, "a4": NOW}


async def test_operator_always_has_room(store: KeyStore) -> None:
    for tenant in ("acme", "rival"):
        for number in range(4):
            await revoke(
                store, entry(f"{tenant[0]}{number}".replace("r", "d"), tenant=tenant, name=f"s{number}")
            )
    for number in range(40):
        subject = f"{number:x}{'f' * 20}"
        await revoke(
            store, entry(subject, tenant="thief", name=f"n{number}", holder=MESH, before_ns=NOW + number)
        )
        found = await told(store)
        assert subject in found
        assert len(found) <= LIMIT.total


async def test_tenant_with_room_in_its_share_gets_it_from_the_one_that_has_most(store: KeyStore) -> None:
    for number in range(4):
        await revoke(store, entry(f"a{number}", name=f"s{number}"))
        await revoke(store, entry(f"d{number}", tenant="rival", name=f"s{number}"))
    await revoke(store, entry("e", tenant="third"))
    assert await store.revocation_holders() == {"acme": 1, "rival": 4, "third": 1}
    assert {"tenant:acme", "e", "d0", "d3"} <= (await told(store)).keys()


async def test_what_cannot_be_made_wider_is_refused(store: KeyStore) -> None:
    unknown = [replace(entry(f"{number:x}", holder=MESH), identity="") for number in range(1, 11)]
    await revoke(store, *unknown)
    with pytest.raises(Saturated):
        await revoke(store, replace(entry("ff", holder=MESH), identity=""))
    assert len(await told(store)) == 10


async def test_entries_end_with_what_they_cover_and_make_room(store: KeyStore) -> None:
    for number in range(4):
        await revoke(store, entry(f"a{number}", forget_at_ns=NOW + 10))
    await revoke(store, entry("b", forget_at_ns=NOW + 99), now_ns=NOW + 10)
    assert await told(store) == {"b": NOW}


async def test_serials_of_before_take_no_part_and_stay(store: KeyStore) -> None:
    await store.revoke_all(
        [Revocation(f"{number:x}", NOW, NOW + 1000, "", "") for number in range(1, 30)], now_ns=NOW
    )
    await revoke(store, entry("abc"))
    found = await told(store)
    assert len(found) == 30
    assert found["1"] == ALWAYS
    assert (await store.survey(now_ns=NOW)).revoked[-1] == Revoked("abc", NOW)
