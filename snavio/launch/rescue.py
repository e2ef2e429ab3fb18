"""Looks every store of an installation through, and rescues those that are damaged.

Never rescues while a mesh runs, and never says less than all that is gone.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Final

import orjson

from snavio.adapters.embedded.commit_mark import mark_path, require_not_emptied
from snavio.adapters.embedded.files import replace_private_file
from snavio.adapters.embedded.keystore_check import check_key_store
from snavio.adapters.embedded.mailbox_copy import damaged_batches
from snavio.adapters.embedded.store_copy import faults_of, lost_commits, unowned
from snavio.adapters.embedded.store_rescue import rescue
from snavio.adapters.embedded.store_rows import LostRow
from snavio.adapters.embedded.write_ahead_log import walk
from snavio.clock import Clock
from snavio.errors import IntegrityError, SnavioError, StateError
from snavio.launch.state import StateFolder
from snavio.launch.stores import KEYS_PLACE, SEALING_KEY_PLACE, STORES, Store

REPORT: Final = "rescue.json"


@dataclass(frozen=True, slots=True)
class Checked:
    """One store after a look at all of it."""

    name: str
    place: str
    faults: tuple[str, ...] = ()
    unknown: str = ""
    """Why a part could not be looked at."""


@dataclass(frozen=True, slots=True)
class RescuedStore:
    """One store that was damaged."""

    name: str
    place: str
    steps: tuple[str, ...]
    lost: tuple[LostRow, ...]


def check(state: Path) -> list[Checked]:
    """Every store in `state`, in the order of a backup; also while its mesh runs."""
    _require_stores(state)
    there = [store for store in STORES if (path := store.path(state)).exists() or mark_path(path).exists()]
    found = [_check(store, state) for store in there]
    if (state / KEYS_PLACE).exists():
        found.append(_check_keys(state))
    return found


def _require_stores(state: Path) -> None:
    if not any((state / place).exists() for place in (*(store.place for store in STORES), KEYS_PLACE)):
        raise StateError(f"{state} is no state folder of a mesh: there is no store in it.", reason="no-state")


def _check(store: Store, state: Path) -> Checked:
    path = store.path(state)
    faults: list[str] = []
    try:
        require_not_emptied(path)
    except IntegrityError as error:
        return Checked(store.name, store.place, (str(error).partition(". Stop")[0],))
    with unowned(path) as stopped:
        if stopped:
            try:
                walk(path).require_whole()
            except IntegrityError as error:
                faults.append(str(error).partition(":")[0])
        try:
            faults += faults_of(path)
            if not faults and (lost := lost_commits(path)):
                faults.append(f"the last {lost} acknowledged transactions of {path} are gone")
            if store.name == "mailbox" and stopped and not faults:
                batches = damaged_batches(path)
                faults += [f"batch {number} of {topic} is damaged" for topic, number in batches]
        except SnavioError as error:
            faults.append(str(error).rstrip("."))
    unknown = "" if stopped else "in use: its log and payloads were checked when it was opened"
    return Checked(store.name, store.place, tuple(faults), unknown)


def _check_keys(state: Path) -> Checked:
    try:
        check_key_store(state / KEYS_PLACE, sealing_key=state / SEALING_KEY_PLACE)
    except IntegrityError as error:
        return Checked("keys", KEYS_PLACE, (str(error).rstrip("."),))
    except StateError as error:
        return Checked("keys", KEYS_PLACE, unknown=str(error).rstrip("."))
    return Checked("keys", KEYS_PLACE)


def rescue_all(state: StateFolder, *, clock: Clock) -> tuple[list[RescuedStore], Path]:
    """Rescue every damaged store; the files as they were, and a report, are in the folder that is returned."""
    _require_stores(state.path)
    state.check_format()
    aside = state.path / f"damaged-{clock.unix_ns() // 1_000_000_000}"
    done: list[RescuedStore] = []
    beyond: list[str] = []
    with state.claimed():
        for store in STORES:
            path = store.path(state.path)
            if not path.exists():
                continue
            try:
                rescued = rescue(path, aside / store.name)
            except IntegrityError as error:
                # The others are rescued all the same, and their losses are reported.
                beyond.append(f"{store.place} cannot be rescued, only a backup brings it back: {error}")
                continue
            if rescued.steps:
                done.append(RescuedStore(store.name, store.place, tuple(rescued.steps), tuple(rescued.lost)))
        keys = _check_keys(state.path) if (state.path / KEYS_PLACE).exists() else None
        if done:
            document = [{"store": one.name, "steps": one.steps, "rows": _told(one)} for one in done]
            replace_private_file(aside / REPORT, orjson.dumps(document, option=orjson.OPT_INDENT_2))
    if keys is not None and keys.faults:
        # Sealed as a whole: with one bit changed nothing of it opens, and a new CA would be another installation.
        raise IntegrityError(
            f"{keys.faults[0]}: the CA and every key are gone with it; only a backup brings them back."
        )
    if beyond:
        told = f" What was done to the others: {aside / REPORT}." if done else ""
        raise IntegrityError(" ".join(beyond) + told)
    return done, aside


def _told(store: RescuedStore) -> list[dict[str, object]]:
    return [row.told() for row in store.lost]
