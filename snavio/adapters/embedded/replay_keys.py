"""The keys of messages that are stored once only, on disk: in the transaction of their batch, and longer than it.

Never lets a damaged row pass for no row: while keys may be missing, nothing new is let in under a key.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import structlog

from snavio.adapters.embedded.mailbox_database import MailboxDatabase
from snavio.adapters.memory.idempotency import MILLISECOND, IdempotencyKeys
from snavio.ports.mailbox_store import Send

FORGOTTEN_AT_ONCE = 256
"""Rows; they are deleted in a transaction of their own, which keeps commits waiting."""
_STEP_NS = 1000 * MILLISECOND
_LONG_NS = 3_600_000 * MILLISECOND


class ReplayKeys:
    """`store` is called in the committing transaction, `forget_ended` by the housekeeping thread."""

    def __init__(self, database: MailboxDatabase, *, digest: Callable[[bytes], bytes], capacity: int) -> None:
        self._database = database
        self._digest = digest
        ((secret,),) = database.rows("SELECT secret FROM replay")
        self.known = IdempotencyKeys(secret=secret, capacity=capacity)
        self._now_ns = self._load()
        self._forgotten_ns = 0

    def _load(self) -> int:
        """Every key there is; the time at which the last of them was stored, where the window goes on."""
        damaged = after = began_ns = longest_ns = 0
        # In pages: a list of all of them would be as large as the window itself.
        while rows := self._database.rows(
            "SELECT batch_id, at_ns, until_ns, keys, digest FROM replay_keys WHERE batch_id > ? "
            "ORDER BY batch_id LIMIT 4096",
            (after,),
        ):
            for batch_id, at_ns, until_ns, keys, digest in rows:
                # Whatever the schema says, a page that was hit can read as NULL, or lead back to earlier rows.
                torn = not isinstance(keys, bytes) or batch_id <= after
                if torn or digest != self._seal(batch_id, at_ns, until_ns, keys):
                    damaged += 1
                    continue
                # By rows that check alone: a time that was hit would end the windows of all the others.
                began_ns = max(began_ns, at_ns)
                longest_ns = max(longest_ns, until_ns - at_ns)
                self.known.load(keys, batch_id, at_ns=at_ns, until_ns=until_ns)
            if rows[-1][0] <= after:
                break
            after = rows[-1][0]
        self.known.began(began_ns)
        if damaged:
            self.known.blind_until(began_ns + (longest_ns or _LONG_NS))
            structlog.get_logger().error("replay keys are damaged", rows=damaged, reason="integrity")
        return began_ns

    def store(
        self, writer: Any, sends: Sequence[Send], ids: Sequence[tuple[int, ...]], *, now_unix_ns: int
    ) -> None:
        """The keys of what this transaction stores."""
        at_ns = self._now_ns = self.known.time(now_unix_ns)
        for send, batch_ids in zip(sends, ids, strict=True):
            for batch, batch_id in zip(send.batches, batch_ids, strict=True):
                if batch.keys is None:
                    continue
                until_ns = at_ns + batch.keys.window_ms * MILLISECOND
                columns = batch.keys.columns
                writer.execute(
                    "INSERT INTO replay_keys VALUES (?, ?, ?, ?, ?)",
                    (batch_id, at_ns, until_ns, columns, self._seal(batch_id, at_ns, until_ns, columns)),
                )

    def forget_ended(self) -> bool:
        """Delete some of the rows whose window is over; whether there may be more."""
        now_ns = self._now_ns
        if now_ns - self._forgotten_ns < _STEP_NS:
            return False
        found = self._database.survey(
            "SELECT batch_id FROM replay_keys WHERE until_ns < ? LIMIT ?", (now_ns, FORGOTTEN_AT_ONCE)
        )
        if found:
            with self._database.transaction(undone=lambda: None) as writer:
                writer.executemany("DELETE FROM replay_keys WHERE batch_id = ?", found)
        if len(found) == FORGOTTEN_AT_ONCE:
            return True
        self._forgotten_ns = now_ns
        return False

    def _seal(self, batch_id: int, at_ns: int, until_ns: int, keys: bytes) -> bytes:
        return self._digest(f"{batch_id}\n{at_ns}\n{until_ns}\n".encode() + keys)
