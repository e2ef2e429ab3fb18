"""Puts commands into SQS standard queues, one message each.

Never sends to a queue that has not proved whose it is and that it is fit: encrypted, with a dead-letter queue,
and no FIFO queue. Its name is derived from the topic; its tag names the topic in full.
"""

from __future__ import annotations

import asyncio
import base64
import json
import re
import socket
from collections.abc import Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass
from typing import Any, Final

import aioboto3
from aiohttp import ClientConnectorError
from botocore.config import Config
from botocore.exceptions import (
    BotoCoreError,
    ClientError,
    EndpointConnectionError,
    HTTPClientError,
    IncompleteReadError,
)

from snavio.clock import Clock
from snavio.domain.directory.route import QueueKind
from snavio.domain.queue_address import queue_name
from snavio.domain.queue_traits import TRAITS
from snavio.domain.verdict import Verdict
from snavio.ports.queue_driver import DriverFailed, DriverResult, OutgoingMessage, QueueState

OWNER_TAG: Final = "snavio-topic"
PER_CALL: Final = 10
CALL_BYTES: Final = 262_144
ENVELOPE_BYTES: Final = 256
CALLS_AT_ONCE: Final = 8
PROOF_SECONDS: Final = 300
DOUBT_SECONDS: Final = 10
MAX_PROOFS: Final = 10_000
CONNECT_SECONDS: Final = 2
READ_SECONDS: Final = 5


@dataclass(frozen=True, slots=True)
class _Proof:
    """The result of examining a topic's queue; `flaw` says why it may not be used."""

    url: str
    flaw: str
    until_mono_ns: int
    waiting: int = 0


class SqsDriver:
    """A `QueueDriver`."""

    def __init__(self, *, region: str, clock: Clock, endpoint_url: str | None = None) -> None:
        self._region = region
        self._endpoint_url = endpoint_url
        self._clock = clock
        self._proofs: dict[str, _Proof] = {}
        self._calls = asyncio.Semaphore(CALLS_AT_ONCE)
        self._opening = asyncio.Lock()
        self._stack = AsyncExitStack()
        self._client: Any = None

    async def deliver(
        self, topic: str, messages: Sequence[OutgoingMessage], *, token: str, timeout_s: float
    ) -> DriverResult:
        """Store the messages, ten to a call; calls do not wait for each other."""
        del token  # a standard queue does not recognise what it had before
        try:
            async with asyncio.timeout(timeout_s):
                proof = await self._proof(topic)
                if proof.flaw:
                    return DriverResult((Verdict.DELIVERY_FAILURE,) * len(messages), 0, proof.flaw)
                calls = _calls(messages)
                outcomes = await asyncio.gather(*(self._send(proof.url, messages, call) for call in calls))
        except TimeoutError:
            raise DriverFailed("SQS did not answer in time.", perhaps=True) from None
        verdicts = [Verdict.UNDECIDED] * len(messages)
        detail = ""
        for outcome, said in outcomes:
            for index, verdict in outcome.items():
                verdicts[index] = verdict
            detail = detail or said
        limit = TRAITS[QueueKind.SQS].max_message_bytes
        for index, message in enumerate(messages):
            if len(message.run) > limit:
                verdicts[index] = Verdict.DELIVERY_FAILURE
                detail = f"SQS takes at most {limit} bytes of a command with its envelope."
        return DriverResult(tuple(verdicts), 0, detail)

    async def examine(self, topic: str, *, timeout_s: float) -> QueueState:
        """Anew, whatever was found before: its owner may just have put it right."""
        try:
            async with asyncio.timeout(timeout_s):
                proof = await self._proof(topic, anew=True)
        except TimeoutError:
            raise DriverFailed("SQS did not answer in time.", perhaps=False) from None
        return QueueState(proof.flaw, proof.waiting)

    async def close(self) -> None:
        """Let go of the connections."""
        async with self._opening:
            self._client = None
            await self._stack.aclose()

    # -- owner of the queue -----------------------------------------------------------------------------

    async def _proof(self, topic: str, *, anew: bool = False) -> _Proof:
        now = self._clock.mono_ns()
        known = self._proofs.get(topic)
        if known is not None and now < known.until_mono_ns and not anew:
            return known
        try:
            found = await self._examine(topic)
        except (BotoCoreError, OSError):
            raise DriverFailed("SQS cannot be reached.", perhaps=False) from None
        if topic not in self._proofs and len(self._proofs) >= MAX_PROOFS:
            self._proofs.pop(next(iter(self._proofs)))  # proved again when it is next used
        self._proofs[topic] = found
        return found

    async def _examine(self, topic: str) -> _Proof:
        client = await self._open()
        url, flaw, waiting = "", "", 0
        try:
            url = (await client.get_queue_url(QueueName=queue_name(topic)))["QueueUrl"]
            asked = await client.get_queue_attributes(QueueUrl=url, AttributeNames=["All"])
            tags = (await client.list_queue_tags(QueueUrl=url)).get("Tags", {})
            attributes = asked.get("Attributes", {})
            flaw = unfit(topic, attributes, tags)
            waiting = int(attributes.get("ApproximateNumberOfMessages", 0))
        except ClientError as error:
            code = error.response.get("Error", {}).get("Code", "")
            if "NonExistentQueue" not in code and "QueueDoesNotExist" not in code:
                raise DriverFailed("SQS refused to tell about the queue.", perhaps=False) from None
            flaw = f"There is no queue {queue_name(topic)}."
        seconds = DOUBT_SECONDS if flaw else PROOF_SECONDS
        return _Proof(url, flaw, self._clock.mono_ns() + seconds * 1_000_000_000, waiting)

    # -- sending ---------------------------------------------------------------------------------------

    async def _send(
        self, url: str, messages: Sequence[OutgoingMessage], call: Sequence[int]
    ) -> tuple[dict[int, Verdict], str]:
        """Verdicts by index. Left out: messages that were definitely not stored and may be tried again."""
        entries = [_entry(index, messages[index]) for index in call]
        try:
            async with self._calls:
                client = await self._open()
                answer = await client.send_message_batch(QueueUrl=url, Entries=entries)
        except (BotoCoreError, OSError) as error:
            if _may_have_arrived(error):
                # Each call ends for itself: the others' messages are known to be stored.
                return dict.fromkeys(call, Verdict.OUTCOME_UNKNOWN), "SQS did not answer."
            return {}, "SQS cannot be reached."
        except ClientError as error:
            code = error.response.get("Error", {}).get("Code", "")
            said = f"SQS refused: {re.sub(r'[^A-Za-z0-9.]', '', code)[:64]}."
            if error.response.get("ResponseMetadata", {}).get("HTTPStatusCode", 500) >= 500:
                # It failed, and does not say when: a message may have been stored before.
                return dict.fromkeys(call, Verdict.OUTCOME_UNKNOWN), said
            return {}, said
        told = {int(entry["Id"]): Verdict.DELIVERED for entry in answer.get("Successful", [])}
        detail = ""
        for entry in answer.get("Failed", []):
            detail = "SQS refused a message."
            if entry.get("SenderFault"):
                told[int(entry["Id"])] = Verdict.DELIVERY_FAILURE
        return told, detail

    async def _open(self) -> Any:
        async with self._opening:
            if self._client is None:
                session = aioboto3.Session(region_name=self._region)
                # `RetryingQueue` is the one that tries again, within the command's budget.
                config = Config(
                    connect_timeout=CONNECT_SECONDS,
                    read_timeout=READ_SECONDS,
                    retries={"max_attempts": 0},
                    max_pool_connections=CALLS_AT_ONCE + 2,
                )
                self._client = await self._stack.enter_async_context(
                    session.client("sqs", endpoint_url=self._endpoint_url, config=config)
                )
            return self._client


def _may_have_arrived(error: Exception) -> bool:
    """True if SQS may have the request although no answer came. In doubt it may: a strict id would be set free."""
    if isinstance(error, EndpointConnectionError):
        # Also what a connection says that broke while the answer was awaited.
        return not isinstance(error.kwargs.get("error"), ClientConnectorError | socket.gaierror)
    return isinstance(error, HTTPClientError | IncompleteReadError | OSError)


def unfit(topic: str, attributes: dict[str, str], tags: dict[str, str]) -> str:
    """The reason why a queue may not be used for a topic; empty when it may."""
    if tags.get(OWNER_TAG) != topic:
        # Without it anybody who may create queues could catch another tenant's commands.
        return f"The queue does not say whose it is: tag it {OWNER_TAG} with the topic's name."
    if attributes.get("FifoQueue") == "true":
        return "The queue is a FIFO queue: use a standard one."
    try:
        redrive = json.loads(attributes.get("RedrivePolicy") or "{}")
    except ValueError:
        redrive = {}
    if not redrive.get("deadLetterTargetArn"):
        return "The queue has no dead-letter queue: give it a redrive policy."
    if attributes.get("SqsManagedSseEnabled") != "true" and not attributes.get("KmsMasterKeyId"):
        return "The queue is not encrypted: turn on server-side encryption."
    return ""


def _entry(index: int, message: OutgoingMessage) -> dict[str, Any]:
    text = {"DataType": "String"}
    return {
        "Id": str(index),
        "MessageBody": base64.b64encode(message.run).decode(),
        "MessageAttributes": {
            "source": {**text, "StringValue": message.source},
            "command_id": {**text, "StringValue": message.command_id},
        },
    }


def _calls(messages: Sequence[OutgoingMessage]) -> list[list[int]]:
    """Indices of the messages, call by call, within SQS's bounds; one that is too long for any call is left out."""
    calls: list[list[int]] = [[]]
    size = 0
    for index, message in enumerate(messages):
        length = (len(message.run) + 2) // 3 * 4 + ENVELOPE_BYTES + len(message.source)
        if len(message.run) > TRAITS[QueueKind.SQS].max_message_bytes:
            continue
        if len(calls[-1]) == PER_CALL or size + length > CALL_BYTES:
            calls.append([])
            size = 0
        calls[-1].append(index)
        size += length
    return [call for call in calls if call]
