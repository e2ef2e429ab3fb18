"""kill -9 of a real mailbox under groups: what was acknowledged is in every topic, the rest in all or in none."""

from __future__ import annotations

import asyncio
import os
import random
import signal
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import pytest

from snavio.admin.queue import QueueClient
from snavio.domain.message import DeadReason
from snavio.errors import SnavioError
from snavio.sdk.group_mailer import GroupMailer, MessageGroup
from snavio.sdk.mailer import NewMessage as Message
from tests.support.killable import Killable, killable

ROUNDS = 50 if os.environ.get("SNAVIO_FULL") == "1" else 3
A, B, SMALL = "acme/own/a", "acme/own/b", "acme/own/small"
CAPACITY = 40


class Hooks:
    """Senders whose keys may be used once."""

    def __init__(self, dice: random.Random) -> None:
        self.dice = dice
        self.number = 0
        self.acknowledged: set[str] = set()
        self.asked: set[str] = set()

    async def live(self, office: Killable) -> None:
        """Send groups until the mailbox is gone, some of them again."""
        mailer = GroupMailer.over(office.consumer(name="edge").channel)

        async def one() -> None:
            while True:
                again = self.acknowledged and self.dice.random() < 0.2
                key = self.dice.choice(sorted(self.acknowledged)) if again else f"k{self.number}"
                self.number += not again
                self.asked.add(key)
                topics = (A, B, SMALL) if key.endswith("7") else (A, B)
                group = MessageGroup.of(topics, Message(key.encode(), key), refuse_duplicates=True)
                outcome = await mailer.send(group)
                assert outcome.stored is not (key in self.acknowledged), (key, outcome.reason)
                if outcome.stored:
                    self.acknowledged.add(key)

        async with asyncio.TaskGroup() as tasks:
            for _ in range(16):
                tasks.create_task(one())


async def stored(office: Killable, topic: str) -> dict[str, str]:
    """Every message by its key, with the reason of its death."""
    queue = QueueClient.over(office.operator().channel)
    return {one.idem_key: one.reason async for one in queue.messages(topic)}


@pytest.mark.timeout(900)
async def test_a_group_is_stored_whole_or_not_at_all_and_a_claim_outlives_every_kill(
    tmp_path: Path, figure: Callable[[str], None]
) -> None:
    dice = random.Random(os.environ.get("SNAVIO_SEED", "groups"))
    hooks = Hooks(dice)
    lines = f'topic_rules = "{SMALL} capacity={CAPACITY} when_full=bury-oldest"\n'
    async with killable(tmp_path, mailbox_lines=lines) as office:
        for _ in range(ROUNDS):
            await office.start()
            living = asyncio.create_task(hooks.live(office))
            await asyncio.wait((living,), timeout=dice.uniform(0.4, 1.2))
            await office.end(signal.SIGKILL)
            living.cancel()
            with suppress(asyncio.CancelledError):
                try:
                    await living
                except* SnavioError:
                    pass  # it was killed under them
        await office.start()
        in_a, in_b, in_small = [await stored(office, topic) for topic in (A, B, SMALL)]
        assert in_a.keys() == in_b.keys(), "in both or in none"
        assert hooks.acknowledged <= in_a.keys() <= hooks.asked
        sevens = {key for key in in_a if key.endswith("7")}
        assert in_small.keys() == sevens, "what was buried is in the DLQ"
        waiting = {key for key, reason in in_small.items() if not reason}
        assert len(waiting) <= CAPACITY
        assert {reason for reason in in_small.values() if reason} <= {DeadReason.OVERFLOW}
        mailer = GroupMailer.over(office.consumer(name="edge").channel)
        for key in dice.sample(sorted(in_a), min(len(in_a), 200)):
            group = MessageGroup.of((A, B), Message(key.encode(), key), refuse_duplicates=True)
            assert (await mailer.send(group)).reason == "duplicate"
    figure(f"{ROUNDS} kills under groups: {len(hooks.acknowledged)} acknowledged, none lost, none in part")
