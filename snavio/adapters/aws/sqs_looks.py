"""Looks at SQS queues: approximate counts, and the depth of the dead-letter queue.

SQS tells no ages by its attributes: the age of the oldest message is counted from when the queue was last seen empty,
and called an estimate. Never asks faster than a bound, so that looking does not throttle sending.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Mapping, Sequence
from contextlib import AsyncExitStack
from typing import Any, Final

import aioboto3
from botocore.config import Config
from botocore.exceptions import BotoCoreError, ClientError

from snavio.clock import Clock
from snavio.domain.queue_address import queue_name
from snavio.domain.route_health import QueueLook

AT_ONCE: Final = 8
CALL_SECONDS: Final = 5.0
URLS: Final = 10_000
THROTTLED: Final = ("Throttl", "RequestLimit", "TooManyRequests", "SlowDown", "ServiceUnavailable")


class SqsLooks:
    """A `QueueLooks`. A throttled look is no judgement: the last one stays."""

    def __init__(self, *, region: str, clock: Clock, endpoint_url: str | None = None) -> None:
        self._region = region
        self._endpoint_url = endpoint_url
        self._clock = clock
        self._calls = asyncio.Semaphore(AT_ONCE)
        self._opening = asyncio.Lock()
        self._stack = AsyncExitStack()
        self._client: Any = None
        self._urls: dict[str, str] = {}
        self._empty_at: dict[str, int] = {}
        self._leased_at: dict[str, int] = {}
        self._last: dict[str, QueueLook] = {}
        self.throttled = 0

    async def look(self, topics: Sequence[str]) -> Mapping[str, QueueLook]:
        found = await asyncio.gather(*(self._look(topic) for topic in topics))
        looks = dict(zip(topics, found, strict=True))
        # As large as the routes are: what is not asked for any more is forgotten.
        self._last = {topic: look for topic, look in looks.items() if not look.failure}
        for table in (self._empty_at, self._leased_at):
            for topic in [topic for topic in table if topic not in looks]:
                del table[topic]
        return looks

    async def close(self) -> None:
        async with self._opening:
            self._client = None
            await self._stack.aclose()

    async def _look(self, topic: str) -> QueueLook:
        async with self._calls:
            now = self._clock.unix_ns()
            try:
                async with asyncio.timeout(2 * CALL_SECONDS):
                    return await self._ask(topic, now)
            except ClientError as error:
                code = str(error.response.get("Error", {}).get("Code", ""))
                status = error.response.get("ResponseMetadata", {}).get("HTTPStatusCode", 0)
                if any(word in code for word in THROTTLED) or status == 429:
                    self.throttled += 1
                    return self._last.get(topic) or QueueLook(now, failure="SQS throttles; never looked at")
                self._urls.pop(topic, None)
                if "NonExistentQueue" in code or "QueueDoesNotExist" in code:
                    return QueueLook(now, failure=f"there is no queue {queue_name(topic)}", certain=True)
                safe = "".join(letter for letter in code if letter.isalnum() or letter == ".")[:64]
                return QueueLook(now, failure=f"SQS refuses: {safe}")
            except (BotoCoreError, OSError, TimeoutError) as error:
                return QueueLook(now, failure=f"SQS does not answer: {type(error).__name__}")

    async def _ask(self, topic: str, now: int) -> QueueLook:
        client = await self._open()
        url = self._urls.get(topic)
        if url is None:
            url = (await client.get_queue_url(QueueName=queue_name(topic)))["QueueUrl"]
            if len(self._urls) >= URLS:
                self._urls.pop(next(iter(self._urls)))
            self._urls[topic] = url
        told = (await client.get_queue_attributes(QueueUrl=url, AttributeNames=["All"])).get("Attributes", {})
        waiting, leased, delayed = (
            int(told.get(f"ApproximateNumberOfMessages{part}", 0)) for part in ("", "NotVisible", "Delayed")
        )
        depth = waiting + leased + delayed
        if depth == 0:
            self._empty_at[topic] = now
        if leased:
            self._leased_at[topic] = now
        since = self._empty_at.setdefault(topic, now)
        return QueueLook(
            now,
            depth=depth,
            inflight=leased,
            oldest_s=(now - since) / 1e9 if depth else None,
            oldest_estimated=True,
            last_received_unix_ns=self._leased_at.get(topic, 0),
            dead=await self._dead(client, told),
        )

    async def _dead(self, client: Any, attributes: Mapping[str, str]) -> int | None:
        try:
            arn = json.loads(attributes.get("RedrivePolicy") or "{}").get("deadLetterTargetArn", "")
        except ValueError:
            return None
        name = arn.rpartition(":")[2]
        if not name:
            return None
        key = f"dlq:{name}"
        try:
            if key not in self._urls:
                self._urls[key] = (await client.get_queue_url(QueueName=name))["QueueUrl"]
            told = await client.get_queue_attributes(
                QueueUrl=self._urls[key], AttributeNames=["ApproximateNumberOfMessages"]
            )
        except ClientError:
            # Another account's, perhaps: how many are dead is then not known, which is no fault of the queue.
            return None
        return int(told.get("Attributes", {}).get("ApproximateNumberOfMessages", 0))

    async def _open(self) -> Any:
        async with self._opening:
            if self._client is None:
                session = aioboto3.Session(region_name=self._region)
                config = Config(
                    connect_timeout=2,
                    read_timeout=CALL_SECONDS,
                    retries={"max_attempts": 0},
                    max_pool_connections=AT_ONCE + 2,
                )
                self._client = await self._stack.enter_async_context(
                    session.client("sqs", endpoint_url=self._endpoint_url, config=config)
                )
            return self._client
