"""The promises of every `KeyStore`, and the sealed file when it is damaged."""

from __future__ import annotations

import asyncio
import base64
import stat
from pathlib import Path

import orjson
import pytest

from snavio.adapters.embedded.sealed_file import FORMAT_VERSION, MAGIC
from snavio.adapters.embedded.sealed_keystore import SealedKeyStore
from snavio.adapters.embedded.sealing import SealingKey, read_sealing_key
from snavio.domain.keyset import Keyset, create, promote, raise_minimum, rotate
from snavio.domain.lineage import ALWAYS
from snavio.domain.signing_scope import Pair, Scope, provision, rotate_scope
from snavio.errors import Conflict, IntegrityError, SnavioError, StateError, Unavailable
from snavio.native import ed25519_public_key
from snavio.ports.keystore import Authority, KeyStore, Revocation, SnapshotKey
from tests.support import keystores
from tests.support.decisions import always, unless_there
from tests.support.keystores import KEY

NOW = 1_700_000_000_000_000_000
PLANTED = b"planted-secret-0123456789abcdef!"
path, store = keystores.path, keystores.store


def keyset(source: str, secret: bytes = PLANTED) -> Keyset:
    return create(source, secret=secret, now_ns=NOW)


def revocation(serial: str, *, forget_at_ns: int = NOW + 1000) -> Revocation:
    return Revocation(serial, NOW, forget_at_ns, "spiffe://snavio.local/operator/admin", "test")


async def test_empty_store_has_nothing(store: KeyStore) -> None:
    assert await store.authority() is None
    assert await store.keyset("acme/billing") is None
    page = await store.keysets_since(0, limit=10)
    assert page.keysets == ()
    assert not page.more


async def test_second_authority_is_refused(store: KeyStore) -> None:
    first = Authority("certificate", "key")
    await store.put_authority(first)
    with pytest.raises(Conflict):
        await store.put_authority(Authority("other", "other"))
    assert await store.authority() == first


async def test_update_sees_what_was_there_and_equal_update_takes_no_version(store: KeyStore) -> None:
    await store.update_keyset("acme/billing", lambda before: before or keyset("acme/billing"))
    version = (await store.keysets_since(0, limit=10)).version
    again = await store.update_keyset(
        "acme/billing", lambda before: before or keyset("acme/billing", b"x" * 32)
    )
    assert again == keyset("acme/billing")
    assert (await store.keysets_since(0, limit=10)).version == version


async def test_refused_update_writes_nothing(store: KeyStore) -> None:
    def refuse(_before: Keyset | None) -> Keyset:
        raise Conflict("no")

    with pytest.raises(Conflict):
        await store.update_keyset("acme/billing", refuse)
    assert await store.keyset("acme/billing") is None


async def test_updates_at_the_same_time_do_not_overwrite_each_other(store: KeyStore) -> None:
    secrets = [bytes([number]) * 32 for number in range(1, 9)]
    results = await asyncio.gather(
        *(store.update_keyset("acme/billing", unless_there(keyset("acme/billing", s))) for s in secrets)
    )
    assert len({result.versions[0].secret for result in results}) == 1


async def test_pages_lead_through_all_keysets_in_order_of_change(store: KeyStore) -> None:
    for name in ("a", "b", "c", "d", "e"):
        await store.update_keyset(f"acme/{name}", always(keyset(f"acme/{name}")))
    await store.update_keyset("acme/a", lambda _b: keyset("acme/a", b"n" * 32))
    seen: list[str] = []
    version, more = 0, True
    while more:
        page = await store.keysets_since(version, limit=2)
        seen += [entry.source for entry in page.keysets]
        assert page.version > version
        version, more = page.version, page.more
    assert seen == ["acme/b", "acme/c", "acme/d", "acme/e", "acme/a"]
    assert (await store.keysets_since(version, limit=2)).keysets == ()


async def test_reader_of_the_denylist_misses_nothing_when_the_store_came_from_a_backup(
    store: KeyStore, path: Path
) -> None:
    await store.revoke(revocation("a1"), now_ns=NOW)
    backup = path.read_bytes()
    for number in range(5):
        await store.revoke(revocation(f"b{number}"), now_ns=NOW)
    read = (await store.revocations_since(0, now_ns=NOW, limit=10)).version
    await store.close()
    path.write_bytes(backup)
    restored = await SealedKeyStore.open(path, key=KEY)
    try:
        # As many writes as were lost, so that the versions match and their contents do not.
        for number in range(5):
            await restored.revoke(revocation(f"c{number}"), now_ns=NOW)
        await restored.renew_epoch()
        page = await restored.revocations_since(read, now_ns=NOW, limit=10)
        assert {entry.subject for entry in page.revocations} == {"a1", "c0", "c1", "c2", "c3", "c4"}
        await restored.revoke(revocation("d0"), now_ns=NOW)
        page = await restored.revocations_since(page.version, now_ns=NOW, limit=10)
        assert [entry.subject for entry in page.revocations] == ["d0"]
    finally:
        await restored.close()


async def test_reader_who_is_ahead_gets_a_new_epoch_and_everything(store: KeyStore) -> None:
    await store.update_keyset("acme/billing", lambda _b: keyset("acme/billing"))
    before = await store.keysets_since(0, limit=10)
    ahead = await store.keysets_since(before.version + 100, limit=10)
    assert ahead.store_epoch != before.store_epoch
    assert [entry.source for entry in ahead.keysets] == ["acme/billing"]


async def test_revocation_is_idempotent_and_versions_rise(store: KeyStore) -> None:
    first = await store.revoke(revocation("0a"), now_ns=NOW)
    second = await store.revoke(revocation("0b"), now_ns=NOW)
    assert second > first
    assert await store.revoke(revocation("0a"), now_ns=NOW) == first
    page = await store.revocations_since(first, now_ns=NOW, limit=10)
    assert [entry.subject for entry in page.revocations] == ["0b"]
    assert page.version >= second
    everything = await store.revocations_since(page.version + 100, now_ns=NOW, limit=10)
    assert [entry.subject for entry in everything.revocations] == ["0a", "0b"]


async def test_denylist_is_read_in_pages(store: KeyStore) -> None:
    for number in range(5):
        await store.revoke(revocation(f"0{number}"), now_ns=NOW)
    version, seen, more = 0, [], []
    for _ in range(3):
        page = await store.revocations_since(version, now_ns=NOW, limit=2)
        seen += [entry.subject for entry in page.revocations]
        more.append(page.more)
        version = page.version
    assert seen == ["00", "01", "02", "03", "04"]
    assert more == [True, True, False]


async def test_page_of_which_all_has_expired_says_that_there_is_more(store: KeyStore) -> None:
    for serial, forget_at_ns in (("0a", NOW + 10), ("0b", NOW + 10), ("0c", NOW + 99)):
        await store.revoke(revocation(serial, forget_at_ns=forget_at_ns), now_ns=NOW)
    page = await store.revocations_since(0, now_ns=NOW + 10, limit=2)
    assert (page.revocations, page.more) == ((), True)
    page = await store.revocations_since(page.version, now_ns=NOW + 10, limit=2)
    assert ([entry.subject for entry in page.revocations], page.more) == (["0c"], False)


async def test_expired_serials_are_forgotten(store: KeyStore) -> None:
    await store.revoke(revocation("0a", forget_at_ns=NOW + 10), now_ns=NOW)
    assert (await store.revocations_since(0, now_ns=NOW + 10, limit=10)).revocations == ()
    await store.revoke(revocation("0b", forget_at_ns=NOW + 99), now_ns=NOW + 10)
    assert len((await store.revocations_since(0, now_ns=NOW, limit=10)).revocations) == 1


async def test_key_sets_are_listed_by_name_in_pages(store: KeyStore) -> None:
    for name in ("c", "a", "b"):
        await store.update_keyset(f"acme/{name}", always(keyset(f"acme/{name}")))
    first = await store.keysets(limit=2)
    rest = await store.keysets(after=first[-1].source, limit=2)
    assert [entry.source for entry in (*first, *rest)] == ["acme/a", "acme/b", "acme/c"]
    assert await store.keysets(after="acme/c", limit=2) == ()
    assert set(await store.keysets_of(["acme/a", "acme/x"])) == {"acme/a"}


async def test_polls_move_forward_only_and_belong_to_a_key_set(store: KeyStore) -> None:
    await store.update_keyset("acme/billing", lambda _b: keyset("acme/billing"))
    await store.record_polls({"acme/billing": 20, "acme/stranger": 20})
    await store.record_polls({"acme/billing": 10})
    assert await store.polls() == {"acme/billing": 20}


async def test_polls_tell_readers_of_key_sets_nothing(store: KeyStore) -> None:
    await store.update_keyset("acme/billing", lambda _b: keyset("acme/billing"))
    read = await store.keysets_since(0, limit=10)
    await store.record_polls({"acme/billing": 20})
    assert (await store.keysets_since(read.version, limit=10)).keysets == ()


async def test_turn_is_taken_by_one_of_many_until_it_ends(store: KeyStore) -> None:
    claims = await asyncio.gather(
        *(store.claim_turn("rotation", now_ns=NOW, until_ns=NOW + 60) for _ in range(8))
    )
    assert sorted(claims) == [False] * 7 + [True]
    assert await store.claim_turn("another", now_ns=NOW, until_ns=NOW + 60)
    assert not await store.claim_turn("rotation", now_ns=NOW + 59, until_ns=NOW + 119)
    assert await store.claim_turn("rotation", now_ns=NOW + 60, until_ns=NOW + 120)


async def test_turn_claimed_by_a_clock_that_ran_ahead_holds_nobody_up(store: KeyStore) -> None:
    assert await store.claim_turn("rotation", now_ns=NOW + 10**18, until_ns=NOW + 10**18 + 60)
    assert await store.claim_turn("rotation", now_ns=NOW, until_ns=NOW + 60)


def scope(number: int, name: str = "platform") -> Scope:
    seed = bytes([number]) * 32
    return provision(name, Pair(ed25519_public_key(seed), seed), now_ns=NOW)


async def test_scope_updates_at_the_same_time_do_not_overwrite_each_other(store: KeyStore) -> None:
    assert await store.scope("platform") is None
    kept = await asyncio.gather(
        *(store.update_scope("platform", unless_there(scope(n))) for n in range(1, 6))
    )
    assert len({one.keys[0].key_id for one in kept}) == 1
    assert await store.scope("platform") == kept[0]

    def refuse(_before: Scope | None) -> Scope:
        raise Conflict("no")

    with pytest.raises(Conflict):
        await store.update_scope("tenant:acme", refuse)
    assert await store.scope("tenant:acme") is None


async def test_keys_polls_minimum_and_turns_are_there_after_reopening(path: Path) -> None:
    store = await SealedKeyStore.open(path, key=KEY, create=True)
    raised = raise_minimum(
        promote(
            rotate(keyset("acme/billing"), secret=b"2" * 32, now_ns=NOW), "hmac-v2", now_ns=NOW, overlap_ns=9
        ),
        "hmac-v2",
        now_ns=NOW,
    )
    await store.update_keyset("acme/billing", lambda _b: raised)
    rotated = rotate_scope(
        scope(1), Pair(ed25519_public_key(b"2" * 32), b"2" * 32), now_ns=NOW, delay_ns=1, overlap_ns=9
    )
    await store.update_scope("platform", lambda _b: rotated)
    await store.record_polls({"acme/billing": 20})
    await store.claim_turn("rotation", now_ns=NOW, until_ns=NOW + 60)
    await store.close()
    assert scope(1).keys[0].seed not in path.read_bytes()
    again = await SealedKeyStore.open(path, key=KEY)
    assert await again.keyset("acme/billing") == raised
    assert await again.scope("platform") == rotated
    assert await again.scopes() == (rotated,)
    assert await again.polls() == {"acme/billing": 20}
    assert not await again.claim_turn("rotation", now_ns=NOW + 1, until_ns=NOW + 61)
    await again.close()


async def test_store_of_the_first_format_is_read(path: Path) -> None:
    path.parent.mkdir()
    secret = base64.b64encode(PLANTED).decode()
    version = {"number": 1, "secret": secret, "not_before_ns": 1, "primary_from_ns": 1, "not_after_ns": 0}
    document = {
        "store_epoch": 7,
        "version": 3,
        "authority": None,
        "keysets": [{"at": 3, "source": "acme/billing", "versions": [{**version, "revoked": False}]}],
        "revocations": [],
    }
    path.write_bytes(KEY.seal(orjson.dumps(document), magic=MAGIC, format_version=1))
    store = await SealedKeyStore.open(path, key=KEY)
    kept = await store.keyset("acme/billing")
    assert kept is not None
    assert (kept.minimum, kept.versions[0].secret) == (0, PLANTED)
    assert await store.polls() == {}
    await store.close()


async def test_everything_is_there_after_reopening(path: Path) -> None:
    store = await SealedKeyStore.open(path, key=KEY, create=True)
    await store.put_authority(Authority("certificate", "key"))
    await store.update_keyset("acme/billing", lambda _b: keyset("acme/billing"))
    await store.revoke(revocation("0a"), now_ns=NOW)
    before = await store.keysets_since(0, limit=10)
    await store.close()
    again = await SealedKeyStore.open(path, key=KEY)
    assert await again.keysets_since(0, limit=10) == before
    assert await again.authority() == Authority("certificate", "key")
    assert len((await again.revocations_since(0, now_ns=NOW, limit=10)).revocations) == 1
    await again.close()


async def test_second_owner_is_refused(path: Path) -> None:
    store = await SealedKeyStore.open(path, key=KEY, create=True)
    with pytest.raises(StateError) as refusal:
        await SealedKeyStore.open(path, key=KEY)
    assert refusal.value.reason == "store-locked"
    await store.close()
    await (await SealedKeyStore.open(path, key=KEY)).close()


async def test_absent_store_is_not_made_by_the_way(path: Path) -> None:
    with pytest.raises(StateError, match="init"):
        await SealedKeyStore.open(path, key=KEY)
    assert not path.exists()


async def sealed_file(path: Path) -> bytes:
    store = await SealedKeyStore.open(path, key=KEY, create=True)
    await store.update_keyset("acme/billing", lambda _b: keyset("acme/billing"))
    await store.close()
    return path.read_bytes()


async def test_file_is_private_and_holds_no_secret_in_the_clear(path: Path) -> None:
    sealed = await sealed_file(path)
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert PLANTED not in sealed
    assert b"acme" not in sealed


async def test_truncated_file_is_refused_at_every_length(path: Path) -> None:
    sealed = await sealed_file(path)
    for length in [*range(64), len(sealed) // 2, len(sealed) - 1]:
        path.write_bytes(sealed[:length])
        with pytest.raises((IntegrityError, StateError)):
            await SealedKeyStore.open(path, key=KEY)


async def test_flipped_bit_is_refused_wherever_it_is(path: Path) -> None:
    sealed = await sealed_file(path)
    for place in [*range(60), len(sealed) // 2, len(sealed) - 1]:
        damaged = bytearray(sealed)
        damaged[place] ^= 1
        path.write_bytes(damaged)
        with pytest.raises((IntegrityError, StateError)):
            await SealedKeyStore.open(path, key=KEY)
    path.write_bytes(sealed)
    await (await SealedKeyStore.open(path, key=KEY)).close()


async def test_wrong_sealing_key_is_named_as_such(path: Path) -> None:
    await sealed_file(path)
    with pytest.raises(StateError) as refusal:
        await SealedKeyStore.open(path, key=SealingKey(b"w" * 32))
    assert refusal.value.reason == "wrong-sealing-key"


async def test_newer_format_is_refused(path: Path) -> None:
    path.parent.mkdir()
    path.write_bytes(KEY.seal(b"{}", magic=MAGIC, format_version=FORMAT_VERSION + 1))
    with pytest.raises(StateError) as refusal:
        await SealedKeyStore.open(path, key=KEY)
    assert refusal.value.reason == "newer-store"


async def test_errors_and_reprs_carry_no_secret(path: Path) -> None:
    path.parent.mkdir()
    path.write_bytes(KEY.seal(b'{"secret":"' + PLANTED + b'"', magic=MAGIC, format_version=FORMAT_VERSION))
    with pytest.raises(SnavioError) as refusal:
        await SealedKeyStore.open(path, key=KEY)
    error: BaseException | None = refusal.value
    assert error is not None
    assert error.__cause__ is None
    for text in (repr(error), str(error), repr(KEY), repr(Authority("certificate", PLANTED.decode()))):
        assert "planted" not in text
        assert "6b6b6b6b" not in text


@pytest.mark.parametrize("fault", ["before the rename", "after the rename"])
async def test_failed_write_leaves_what_the_disk_says(
    path: Path, monkeypatch: pytest.MonkeyPatch, fault: str
) -> None:
    store = await SealedKeyStore.open(path, key=KEY, create=True)
    await store.update_keyset("acme/billing", lambda _b: keyset("acme/billing"))

    def full(*_arguments: object) -> None:
        raise OSError(28, "No space left on device")

    place = "os.fsync" if fault == "before the rename" else "fsync_folder"
    with monkeypatch.context() as patch:
        patch.setattr(f"snavio.durable_files.{place}", full)
        with pytest.raises(Unavailable, match="No space left"):
            await store.update_keyset("acme/bot", lambda _b: keyset("acme/bot"))
    survived = fault == "after the rename"
    assert (await store.keyset("acme/bot") is not None) is survived
    await store.update_keyset("acme/third", lambda _b: keyset("acme/third"))
    page = await store.keysets_since(0, limit=10)
    await store.close()
    again = await SealedKeyStore.open(path, key=KEY)
    assert await again.keysets_since(0, limit=10) == page
    await again.close()


async def test_sealing_key_that_others_can_read_is_refused(tmp_path: Path) -> None:
    file = tmp_path / "sealing.key"
    file.write_bytes(b"k" * 32)
    file.chmod(0o644)
    with pytest.raises(StateError) as refusal:
        read_sealing_key(file, environment={})
    assert refusal.value.reason == "open-sealing-key"
    file.chmod(0o600)
    assert read_sealing_key(file, environment={}).key_id == KEY.key_id
    assert read_sealing_key(file, environment={"SNAVIO_SEALING_KEY": "77" * 32}).key_id != KEY.key_id
    with pytest.raises(StateError):
        read_sealing_key(file, environment={"SNAVIO_SEALING_KEY": "not hex"})


async def test_survey_has_every_key_set_and_living_revocation_of_one_version(store: KeyStore) -> None:
    await store.update_keyset("acme/a", lambda _before: keyset("acme/a"))
    await store.update_keyset("acme/b", lambda _before: keyset("acme/b"))
    await store.revoke(Revocation("a1", 1, 100, actor="ada", reason=""), now_ns=1)
    await store.revoke(Revocation("b2", 1, 200, actor="ada", reason=""), now_ns=1)
    survey = await store.survey(now_ns=150)
    assert {keyset.source for keyset in survey.keysets} == {"acme/a", "acme/b"}
    assert survey.revoked == (("b2", ALWAYS),)
    page = await store.keysets_since(0, limit=10)
    assert (survey.store_epoch, survey.version) == (page.store_epoch, page.version)
    assert "planted" not in repr(survey)


async def test_snapshot_key_is_made_once_and_replaced_by_decision_alone(store: KeyStore) -> None:
    first = SnapshotKey(b"k" * 32, 5)
    assert await store.snapshot_key(lambda before: before or first) == first
    before = (await store.survey(now_ns=0)).version
    assert await store.snapshot_key(lambda found: found or SnapshotKey(b"x" * 32, 9)) == first
    assert (await store.survey(now_ns=0)).version == before
    second = SnapshotKey(b"n" * 32, 10)
    assert await store.snapshot_key(lambda _found: second) == second
    assert await store.snapshot_key(lambda found: found or first) == second
    assert "kkkk" not in repr(first)
