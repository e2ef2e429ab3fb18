"""Follows the rules that tenants write for topics of their own, from Registry's directory.

Never falls back to the settings while it cannot ask: what was read last is kept beside the store, so that a restart
without Registry expires and buries nothing that its owner wanted kept. Never applies a list that was read in part.
"""

from __future__ import annotations

import asyncio
from dataclasses import asdict
from pathlib import Path
from typing import Any, Final

import orjson
import structlog

from services.mailbox.state.policy import Policies
from snavio.clock import Clock
from snavio.domain.directory import TopicRule, revive
from snavio.durable_files import replace_private_file
from snavio.errors import SnavioError
from snavio.native import blake3_hex
from snavio.replication.directory_feed import DirectoryFeed
from snavio.replication.directory_wire import value_from_wire
from snavio.replication.poller import Poller
from snavio.rpc.channel import MeshChannel
from snavio.v1.registry_pb2 import Change

KIND: Final = TopicRule.kind
FILE: Final = "topic-rules.json"
SCHEMA: Final = 1


class TopicRules(Poller):
    """Keeps `policies` up to date. `folder` is where the copy is, None for a mailbox that forgets."""

    def __init__(
        self,
        registry: MeshChannel,
        policies: Policies,
        *,
        clock: Clock,
        interval_s: float,
        folder: Path | None,
    ) -> None:
        self._policies = policies
        self._path = folder / FILE if folder is not None else None
        self._rules: dict[str, TopicRule] = {}
        self._changed = False
        self._log = structlog.get_logger()
        # Without an instance: nobody who freezes a target waits for the mailbox.
        self._feed = DirectoryFeed(registry, clock=clock, take=self._take, forget=self._forget, kind=KIND)
        super().__init__("topic rules", self._catch_up, clock=clock, interval_s=interval_s)

    def load(self) -> None:
        """Apply what was read last, before the first answer."""
        if self._path is None or not self._path.exists():
            return
        try:
            version, epoch, rules = _read(self._path.read_bytes())
        except (OSError, ValueError, KeyError, TypeError, SnavioError) as error:
            # All of it comes from Registry; what tenants wanted kept is kept until then.
            self._policies.known, self._changed = False, True
            self._log.error("the copy of the topic rules is damaged", message=str(error))
            return
        self._rules = {rule.topic: rule for rule in rules}
        self._feed.go_on_from(version, epoch)
        self._policies.follow(self._rules.values())

    def gauges(self) -> dict[str, float]:
        """For operators."""
        age_ns = self.age_ns()
        return {"rules": float(len(self._rules))} | ({} if age_ns is None else {"age_s": age_ns / 1e9})

    async def _catch_up(self) -> None:
        await self._feed.catch_up()
        if self._changed:
            self._policies.follow(self._rules.values())
            if self._path is not None:
                kept = _written(self._feed.version, self._feed.epoch, list(self._rules.values()))
                await asyncio.to_thread(replace_private_file, self._path, kept)
            self._changed = False

    def _take(self, change: Change) -> None:
        if change.WhichOneof("value") != KIND:
            return
        self._changed = True
        if change.deleted:
            self._rules.pop(change.topic_rule.topic, None)
            return
        try:
            rule = value_from_wire(TopicRule, change.topic_rule)
        except SnavioError as error:
            # Of a later Registry: the other rules hold all the same.
            self._log.error("a topic rule cannot be read", message=str(error))
            return
        self._rules[rule.topic] = rule

    def _forget(self, _asked_mono_ns: int | None) -> None:
        # The policies stay as they are until the other directory was read as a whole.
        self._rules.clear()
        self._changed = True


def _written(version: int, epoch: int, rules: list[TopicRule]) -> bytes:
    told = {"schema": SCHEMA, "version": version, "epoch": epoch, "rules": [asdict(rule) for rule in rules]}
    body = orjson.dumps(told, option=orjson.OPT_SORT_KEYS)
    return blake3_hex(body).encode() + b"\n" + body


def _read(kept: bytes) -> tuple[int, int, list[TopicRule]]:
    seal, _, body = kept.partition(b"\n")
    if seal.decode() != blake3_hex(body):
        raise ValueError("its checksum does not fit")
    told: dict[str, Any] = orjson.loads(body)
    if told["schema"] != SCHEMA:
        raise ValueError(f"it has schema {told['schema']}")
    rules = [revive(KIND, rule) for rule in told["rules"]]
    return told["version"], told["epoch"], [rule for rule in rules if isinstance(rule, TopicRule)]
