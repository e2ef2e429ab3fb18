"""Shield's HMAC keys: from Signer's sealed snapshot if there is one, then by pulling what changed.

Never counts keys younger than they are: those of a snapshot are as old as the snapshot, and Shield refuses commands
that it has no young enough keys for.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Iterable
from typing import Protocol

from services.shield.key_usage import KeyUsage
from services.shield.snapshot_key_cache import SnapshotKeyCache
from snavio.clock import Clock
from snavio.errors import SnavioError
from snavio.native import Admission
from snavio.replication.denylist import Denylist, entries_of
from snavio.replication.poller import Poller
from snavio.rpc.channel import MeshChannel
from snavio.signed.sealed_part import unseal
from snavio.signed.snapshot_manifest import HMAC, Manifest
from snavio.signed.snapshot_reader import Refused, SnapshotReader
from snavio.signed.snapshot_refusal import RefusalReason, SnapshotRefused
from snavio.signed.verification import KEYSETS, VerifiedSnapshot
from snavio.v1.signer_pb2 import Keyset, KeysetChangesRequest, KeysetChangesResponse
from snavio.v1.snapshot_pb2 import SealedKeys

CALL_SECONDS = 2.0
GOODBYE_SECONDS = 0.5
# However slowly routes are pulled: a revoked key has to be out within five seconds, a failed call included.
LONGEST_KEY_PAUSE_S = 1.0
# With a snapshot in hand Signer is asked all the same before the first command: a key that was revoked since would
# open the door. A Signer that is away is waited for no longer than this.
SIGNER_PATIENCE_S = 3.0


class Refreshed(Protocol):
    """A listener for pulls."""

    def __call__(self, *, took_ns: int, age_ns: int | None, another: str = "") -> None: ...


def _no_listener(*, took_ns: int, age_ns: int | None, another: str = "") -> None:
    """The listener before one is set."""


class KeyCache:
    """Keeps `admission`'s key sets, and starts the denylist, which comes from Signer too."""

    def __init__(
        self,
        *,
        admission: Admission,
        signer: MeshChannel,
        clock: Clock,
        interval_s: float,
        stale_ms: int,
        holder: str,
        denylist: Denylist | None = None,
        snapshots: SnapshotReader | None = None,
        opening: SnapshotKeyCache | None = None,
    ) -> None:
        self._admission = admission
        self._signer = signer
        self._clock = clock
        self._stale_ms = stale_ms
        self._holder = holder
        self._denylist = denylist
        self._snapshots = snapshots
        self._opening = opening
        self._version = 0
        self._epoch = 0
        self._sources: set[str] = set()
        self.refreshed: Refreshed = _no_listener
        """Called after every pull with its duration and the age that the keys had reached."""
        self._pull = Poller(
            "keysets", self._refresh, clock=clock, interval_s=min(interval_s, LONGEST_KEY_PAUSE_S)
        )
        self._usage = KeyUsage(admission=admission, signer=signer)
        # A pull of its own: a report that hangs must not hold up the news of a revocation.
        self._reports = Poller("key usage", self._usage.report, clock=clock, interval_s=interval_s)

    async def start(self, *, within_s: float) -> None:
        """Read keys and denylist; from a snapshot when Signer is away, or else raise Unavailable in time."""
        loaded = await self._load_snapshot()
        if loaded is None:
            if self._denylist is not None:
                await self._denylist.start(within_s=within_s)
            await self._pull.start(within_s=within_s)
            if self._opening is not None:
                await self._opening.learn()
        else:
            manifest, keys = loaded
            # From when Signer read its store, not from now: what was revoked since must not look fresh.
            read = self._clock.mono_ns() - (self._clock.unix_ns() - manifest.generated_unix_ns)
            self._take(keys.keyset)
            self._version, self._epoch = manifest.version, manifest.epoch
            await self._go_on(keys, manifest, read_mono_ns=read, within_s=min(within_s, SIGNER_PATIENCE_S))
        self._reports.begin()

    async def stop(self) -> None:
        """End the pulls; no command may be admitted any more."""
        for pull in (self._pull, self._reports):
            await pull.stop()
        # So that no rotation waits for this one. Not worth waiting for: if it is lost, one waits a little longer.
        with contextlib.suppress(SnavioError):
            await self._ask(good_for_ms=0, timeout_s=GOODBYE_SECONDS)
        if self._opening is not None:
            await self._opening.stop()

    def age_ns(self) -> int | None:
        """Age of the keys; None before the first."""
        return self._pull.age_ns()

    def nudge(self) -> None:
        """Pull again soon."""
        self._pull.nudge()

    def counters(self) -> dict[str, int]:
        """Counts that were dropped because Signer was away for too long."""
        return {"key_use_dropped": self._usage.dropped}

    # -- beginning -----------------------------------------------------------------------------------

    async def _load_snapshot(self) -> tuple[Manifest, SealedKeys] | None:
        if self._snapshots is None or self._opening is None:
            return None
        await self._opening.start()
        loaded = await self._snapshots.load((KEYSETS,), self._open, kind=HMAC)
        return None if isinstance(loaded, Refused) else loaded

    def _open(self, snapshot: VerifiedSnapshot) -> tuple[Manifest, SealedKeys]:
        """On another thread; ValueError when the part cannot be read."""
        assert self._opening is not None
        age_ns = self._clock.unix_ns() - snapshot.manifest.generated_unix_ns
        if age_ns >= self._stale_ms * 1_000_000:
            raise SnapshotRefused(
                RefusalReason.TOO_OLD, f"The key sets are {age_ns / 1e9:.0f} s old, more than keys_stale_ms."
            )
        try:
            key = self._opening.key()
        except SnavioError as error:
            raise SnapshotRefused(RefusalReason.CANNOT_OPEN, str(error)) from error
        return snapshot.manifest, _parsed(unseal(snapshot.parts[KEYSETS], key=key))

    async def _go_on(
        self, keys: SealedKeys, manifest: Manifest, *, read_mono_ns: int, within_s: float
    ) -> None:
        async with asyncio.TaskGroup() as asking:
            asking.create_task(self._pull.start_or_go_on(within_s=within_s, read_mono_ns=read_mono_ns))
            if self._denylist is not None:
                asking.create_task(
                    self._denylist.start_with(
                        entries_of(keys.revoked, keys.revoked_serial),
                        version=manifest.version,
                        read_mono_ns=read_mono_ns,
                        within_s=within_s,
                    )
                )

    # -- keeping up ----------------------------------------------------------------------------------

    async def _refresh(self) -> None:
        # Before key sets are dropped, whose counts go with them.
        self._usage.collect()
        age_ns, asked = self._pull.age_ns(), self._clock.mono_ns()
        more, another = True, ""
        while more:
            answer = await self._ask(good_for_ms=self._stale_ms, timeout_s=CALL_SECONDS)
            if answer.store_epoch != self._epoch:
                restarted = self._version != 0
                self._forget()
                self._epoch = answer.store_epoch
                if restarted:
                    another = f"key store {answer.store_epoch}"
                    continue
            self._take(answer.keyset)
            self._version = answer.version
            more = answer.more
        self.refreshed(took_ns=self._clock.mono_ns() - asked, age_ns=age_ns, another=another)

    async def _ask(self, *, good_for_ms: int, timeout_s: float) -> KeysetChangesResponse:
        """Ask for changes, and thereby say what is applied: Signer makes a key primary when all have it."""
        return await self._signer.call(
            "/snavio.v1.Signer/KeysetChanges",
            KeysetChangesRequest(
                since_version=self._version,
                store_epoch=self._epoch,
                holder=self._holder,
                good_for_ms=good_for_ms,
            ),
            KeysetChangesResponse,
            timeout_s=timeout_s,
        )

    def _take(self, keysets: Iterable[Keyset]) -> None:
        for keyset in keysets:
            if keyset.deleted:
                self._admission.remove_keyset(keyset.source)
                self._sources.discard(keyset.source)
                continue
            self._sources.add(keyset.source)
            self._admission.set_keyset(
                keyset.source,
                [
                    (key.version, key.secret, key.not_before_unix_ns, key.not_after_unix_ns, key.revoked)
                    for key in keyset.version
                ],
            )

    def _forget(self) -> None:
        for source in self._sources:
            self._admission.remove_keyset(source)
        self._sources.clear()
        self._version = 0


def _parsed(plain: bytes) -> SealedKeys:
    try:
        keys: SealedKeys = SealedKeys.FromString(plain)
    # `from None`: the parser's own message could quote the bytes, and the bytes are secrets.
    except Exception:
        raise ValueError("the sealed key sets cannot be read") from None
    return keys
