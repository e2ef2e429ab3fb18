"""Flipped bits in any file of a killed mesh: each is refused or reported, or hides nothing that was acknowledged."""

from __future__ import annotations

import asyncio
import os
import random
import shutil
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pytest
import structlog
from structlog.testing import capture_logs

from snavio.adapters.embedded.checksums import connect
from snavio.adapters.embedded.journal_files import FileJournalMark
from snavio.adapters.embedded.keystore_check import check_key_store
from snavio.adapters.embedded.sqlite import open_store, store_errors
from snavio.adapters.embedded.sqlite_mailbox_store import SqliteMailboxStore
from snavio.adapters.embedded.store_rescue import rescue
from snavio.adapters.embedded.store_rows import rows, tables
from snavio.errors import IntegrityError, StateError, Unavailable
from snavio.launch.processes import MeshProcesses
from snavio.launch.stores import KEYS_PLACE, SEALING_KEY_PLACE, STORES
from snavio.native import blake3_digest
from tests.support.mesh import NAME, SOURCE, TARGET, TOPIC, demo_mesh

FULL = os.environ.get("SNAVIO_FULL") == "1"
FLIPS = 200 if FULL else 50
PLACES = [store.place for store in STORES]


@dataclass(frozen=True)
class Killed:
    """The state folder of a mesh after kill -9, and the files in it that may be hit, by kind."""

    state: Path
    kinds: dict[str, list[str]]

    def copy(self, to: Path) -> Path:
        shutil.rmtree(to, ignore_errors=True)
        shutil.copytree(self.state, to, symlinks=True)
        return to


@pytest.fixture(scope="module")
def killed(tmp_path_factory: pytest.TempPathFactory) -> Killed:
    folder = tmp_path_factory.mktemp("killed")
    asyncio.run(_run_and_kill(folder / "state"))
    state = folder / "kept"
    left_out = shutil.ignore_patterns("*-shm", "*.lock", "logs", "archive", "snapshots", "certs")
    shutil.copytree(folder / "state", state, symlinks=True, ignore=left_out)

    def found(pattern: str) -> list[str]:
        return sorted(str(path.relative_to(state)) for path in state.rglob(pattern) if path.stat().st_size)

    kinds = {
        "log": found("*.db-wal"),
        "database": found("*.db"),
        "payload log": found("*.seg"),
        "sealed file": [KEYS_PLACE],
        "journal": found("*.journal*"),
    }
    assert all(kinds.values()), kinds
    assert len(kinds["log"]) >= 5
    return Killed(state, kinds)


async def _run_and_kill(state: Path) -> None:
    async with demo_mesh(state) as mesh:
        async with mesh.operator() as operator:
            for number in range(8):
                await operator.put_route(TARGET, f"route-{number}")
                await operator.grant(SOURCE, TARGET, f"route-{number}")
            await operator.revoke(SOURCE, TARGET, "route-1")
            await operator.rotate_key(SOURCE)
        async with mesh.producer() as producer:
            for number in range(40):
                payload = f"{number}.".encode() * (4 if number % 3 else 4000)
                assert (await producer.send(TARGET, NAME, payload)).delivered
        async with mesh.consumer() as consumer:
            for number in range(6):
                command = await anext(consumer)
                await (command.nack(dead=True, reason="x") if number % 2 else command.ack(durable=True))
            await consumer.flush()
        mesh.processes.kill_all()


def kind_of(path: Path) -> tuple[int, int]:
    """Service and schema of a store. Only for a whole store: SQLite replays the log and removes it."""
    plain = connect(path)
    known = plain.pragma("application_id"), plain.pragma("user_version")
    plain.close()
    return known


def contents(path: Path, kind: tuple[int, int]) -> dict[str, object]:
    """All rows of a store, opened as its service opens it."""
    connection = open_store(path, application_id=kind[0], schema_version=kind[1], create=())
    try:
        with store_errors(path):
            found = connection.execute("PRAGMA integrity_check").fetchall()
            if found != [("ok",)]:
                raise IntegrityError(str(found[0]))
            return {table: list(rows(connection, table)) for table in tables(connection)}
    finally:
        connection.close()


def mailbox(path: Path) -> dict[int, object]:
    """Every batch of the topic, with its bytes or a mark that they are damaged."""
    store = SqliteMailboxStore(path, digest=blake3_digest)
    try:
        found: dict[int, object] = {}
        for record in store.records(TOPIC, after=0, limit=1000):
            try:
                found[record.batch_id] = (record, store.read(TOPIC, record.batch_id))
            except IntegrityError:
                found[record.batch_id] = "damaged"
        return found
    finally:
        store.close()


def look(state: Path, place: str, whole: Path) -> str:
    """The effect of a flipped bit in the file at `place`: refused, reported or harmless."""
    if place == KEYS_PLACE:
        check_key_store(state / place, sealing_key=state / SEALING_KEY_PLACE)
        return "harmless" if (state / place).read_bytes() == (whole / place).read_bytes() else "silent"
    if ".journal" in place:
        return _journals(state, place, whole)
    store = state / place.removesuffix("-wal") if not place.endswith(".seg") else state / PLACES[0]
    reference = whole / store.relative_to(state)
    if store.name == "mailbox.db":
        expected, found = mailbox(reference), mailbox(store)
        if set(found) != set(expected):
            return "silent"
        wrong = [one for number, one in found.items() if one != expected[number]]
        if any(one != "damaged" for one in wrong):
            return "silent"
        if wrong:
            return "told"
    kind = kind_of(reference)
    return "harmless" if contents(store, kind) == contents(reference, kind) else "silent"


def _journals(state: Path, place: str, whole: Path) -> str:
    instance = Path(place).name.partition(".journal")[0]
    folder = Path(place).parent

    def ended(of: Path) -> object:
        mark = FileJournalMark(of / folder, instance=instance, epoch=1)
        try:
            return mark.ended()
        finally:
            mark.close()

    expected = ended(whole)
    with capture_logs() as logs:
        found = ended(state)
    if any(one["event"] == "journal file is damaged" for one in logs):
        return "told"
    if found == expected:
        return "harmless"
    # A longer way than it was: Relay reports more as lost than there was, and never less.
    longer = [one.last_seq for one in found] >= [one.last_seq for one in expected]  # type: ignore[attr-defined]
    return "told" if longer else "silent"


def test_flipped_bit_in_any_file_of_a_killed_mesh_is_refused_or_told_or_harmless(
    killed: Killed, tmp_path: Path, figure: Callable[[str], None]
) -> None:
    structlog.reset_defaults()
    dice = random.Random("every file")
    became: Counter[tuple[str, str]] = Counter()
    for number in range(FLIPS):
        kind = list(killed.kinds)[number % len(killed.kinds)]
        place = dice.choice(killed.kinds[kind])
        whole, hit = killed.copy(tmp_path / "whole"), killed.copy(tmp_path / "hit")
        if kind == "database" and number % 4:
            # After one more start and end its rows are in it, and not in the log.
            kind_of(hit / place)
        flipped = bytearray((hit / place).read_bytes())
        at, bit = dice.randrange(len(flipped)), dice.randrange(8)
        flipped[at] ^= 1 << bit
        (hit / place).write_bytes(flipped)
        try:
            outcome = look(hit, place, whole)
        except (IntegrityError, StateError):
            outcome = "refused"
        assert outcome != "silent", f"bit {bit} of byte {at} of {place}: lost or changed without a word"
        became[kind, outcome] += 1
    told = "; ".join(f"{kind} {outcome} {count}" for (kind, outcome), count in sorted(became.items()))
    figure(f"{FLIPS} flipped bits after kill -9: {told}")
    assert became["log", "refused"] and became["sealed file", "refused"]


def test_service_whose_log_was_hit_does_not_start_and_says_which_file_and_what_to_do(
    killed: Killed, tmp_path: Path
) -> None:
    state = killed.copy(tmp_path / "state")
    processes = MeshProcesses.temporary(state)
    processes.prepare()
    log = state / "registry" / "directory.db-wal"
    flipped = bytearray(log.read_bytes())
    flipped[len(flipped) // 2] ^= 8
    log.write_bytes(flipped)
    try:
        for name in ("signer", "relay", "registry"):
            processes.logs.mkdir(exist_ok=True)
            processes.spawn(name)
        with pytest.raises(Unavailable) as refused:
            processes.wait_ready("registry")
        assert "directory.db-wal is damaged" in str(refused.value)
        assert "snavio restore" in str(refused.value)
    finally:
        processes.kill_all()


@pytest.mark.parametrize("bit", range(8))
def test_flipped_bit_in_the_byte_that_promises_checksums_does_not_switch_them_off(
    tmp_path: Path, bit: int
) -> None:
    path = tmp_path / "store.db"
    connection = open_store(path, application_id=1, schema_version=1, create=("CREATE TABLE kept (one)",))
    connection.execute("INSERT INTO kept VALUES (zeroblob(9000))")
    connection.close()
    flipped = bytearray(path.read_bytes())
    flipped[20] ^= 1 << bit
    path.write_bytes(flipped)
    with pytest.raises(IntegrityError):
        open_store(path, application_id=1, schema_version=1, create=())
    done = rescue(path, tmp_path / "aside")
    assert not done.lost and contents(path, (1, 1))["kept"]
