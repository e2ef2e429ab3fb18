"""The Python SDK behind the protocol of the conformance run: a JSON request per line on stdin, an answer on stdout.

Never does by itself what the SDK is there for: it signs, sends, receives and settles with the SDK's own parts.
"""

from __future__ import annotations

import asyncio
import json
import sys
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import structlog

from snavio.clock import SystemClock
from snavio.domain.identity import DEFAULT_TRUST_DOMAIN
from snavio.errors import BadRequest, SnavioError
from snavio.native import Received, read_leased_batches, sign_command
from snavio.rpc.capability import CapabilityScope
from snavio.rpc.channel import MeshChannel
from snavio.rpc.credentials import CertificateFiles
from snavio.rpc.renewal import Leaf, replace_certificate
from snavio.sdk import Command, Consumer, EventStream, Outcome, Producer, StreamReset, event_stream
from snavio.sdk.ack_buffer import read_codes
from snavio.sdk.bookmark import MemoryBookmark, StreamPlace
from snavio.sdk.certificate import ServiceCertificate
from snavio.sdk.consumer import OPERATIONS
from snavio.sdk.enrolment import enroll
from snavio.sdk.envelope import envelope_of
from snavio.sdk.mailbox_channel import mailbox_channel
from snavio.signed.stream_chain import ChainEnd, EnvelopeRefused, StreamChain
from snavio.signed.verification import VerifyingKey
from snavio.v1.batch_pb2 import Verdicts
from snavio.v1.mailbox_pb2 import AckRequest, ExtendRequest, NackRequest, Receipts, ReceiveRequest
from snavio.v1.shield_pb2 import SubmitRequest
from tests.support.twin import signed_text

CALL_S = 30.0
Told = dict[str, Any]


class PythonAgent:
    """One client process. A handle is a received message: a Command, or a lease that nobody extends."""

    def __init__(self) -> None:
        self._opened: Told = {}
        self._producer: Producer | None = None
        self._consumers: dict[str, Consumer] = {}
        self._certificate: ServiceCertificate | None = None
        self._handles: list[Command | tuple[str, int, Received]] = []

    async def answer(self, request: Told) -> Told:
        """The answer to one request; errors are answers too."""
        operations: dict[str, Callable[[Told], Awaitable[Told]]] = {
            name.removeprefix("do_"): getattr(self, name) for name in dir(self) if name.startswith("do_")
        }
        try:
            return await operations[request["op"]](request)
        except SnavioError as error:
            return {"error": {"reason": error.reason, "message": str(error)}}

    async def do_sign(self, request: Told) -> Told:
        fields = dict(request["fields"])
        fields.pop("type", None)
        payload = bytes.fromhex(request["payload"])
        text = {name: value.encode() for name, value in request["fields"].items()}
        command = sign_command(
            bytes.fromhex(request["secret"]),
            timestamp_unix_ns=request["timestamp_unix_ns"],
            command_id=fields.pop("id"),
            payload=payload,
            **{name: value for name, value in fields.items() if name != "timestamp"},
        )
        return {
            "command": command.hex(),
            "signed_text": signed_text({"content_type": b"", **text, "payload": payload}).hex(),
        }

    async def do_read(self, request: Told) -> Told:
        try:
            _, rows = read_leased_batches(bytes.fromhex(request["response"]), request["topic"])
        except ValueError:
            raise BadRequest("malformed", reason="malformed") from None
        return {"messages": [tell(request["topic"], row, 0) for row in rows]}

    async def do_enrol(self, request: Told) -> Told:
        if request["fingerprint"] != request["token"].split(".")[1]:
            # The SDK takes the fingerprint that is in the token.
            raise BadRequest("another installation", reason="wrong-installation")
        result = await enroll(
            request["token"],
            address=request["address"],
            folder=Path(request["folder"]),
            name=request["name"],
        )
        return {"spiffe_id": result.identity.spiffe_id}

    async def do_open(self, request: Told) -> Told:
        await self.do_close(request)
        self._opened = request
        self._certificate = ServiceCertificate(
            request["folder"],
            signer=request["signer"],
            clock=SystemClock(),
            trust_domain=DEFAULT_TRUST_DOMAIN,
            source=request.get("source", ""),
            principal=request.get("principal") or None,
            ttl_s=request.get("ttl_s", 0),
        )
        await self._certificate.start(within_s=CALL_S)
        return await self.do_certificate(request)

    async def do_certificate(self, _request: Told) -> Told:
        leaf = Leaf.in_folder(Path(self._opened["folder"]))
        return {"spiffe_id": leaf.spiffe_id, "not_after_unix_ns": leaf.not_after_ns}

    async def do_renew(self, _request: Told) -> Told:
        assert self._certificate is not None
        folder = Path(self._opened["folder"])
        await replace_certificate(
            folder, self._certificate._certify, spiffe_id=Leaf.in_folder(folder).spiffe_id
        )
        return {}

    async def _sender(self) -> Producer:
        if self._producer is None:
            producer = Producer(
                shield=self._opened["shield"],
                signer=self._opened["signer"],
                certificates=self._opened["folder"],
                principal_certificates=self._opened.get("principal") or None,
                source=self._opened.get("source", ""),
                certificate_ttl_s=self._opened.get("ttl_s", 0),
                timeout_s=self._opened.get("timeout_s", CALL_S),
            )
            await producer.start()
            self._producer = producer
        return self._producer

    async def do_send(self, request: Told) -> Told:
        producer = await self._sender()
        outcome = await producer.send(
            request["target"],
            request["name"],
            bytes.fromhex(request["payload"]),
            command_id=request.get("id"),
        )
        return outcome_told(outcome)

    async def do_send_many(self, request: Told) -> Told:
        producer = await self._sender()
        messages = [(target, name, bytes.fromhex(payload)) for target, name, payload in request["messages"]]
        return {"outcomes": [outcome_told(each) for each in await producer.send_batch(messages)]}

    async def do_send_twice(self, request: Told) -> Told:
        producer = await self._sender()
        assert producer._mesh is not None
        fields = (
            "01890000-0000-7000-8000-000000000001",
            request["target"],
            request["name"],
            bytes.fromhex(request["payload"]),
            "",
            "",
        )
        command = producer._mesh.signing.sign(fields)
        files = CertificateFiles.in_folder(self._opened["folder"])
        channel = MeshChannel(self._opened["shield"], files=files, service="shield")
        try:
            answers = [
                await channel.call(
                    "/snavio.v1.Shield/Submit", SubmitRequest(command=command), Verdicts, timeout_s=CALL_S
                )
                for _ in range(2)
            ]
        finally:
            await channel.close()
        return {"verdicts": [answer.codes[0] for answer in answers]}

    async def do_verify(self, request: Told) -> Told:
        keys = [
            VerifyingKey(
                each["key_id"],
                bytes.fromhex(each["public_key"]),
                int(each["valid_from_unix_ns"]),
                int(each["valid_until_unix_ns"]),
            )
            for each in request["keys"]
        ]

        async def known() -> list[VerifyingKey]:
            return keys

        after = request["after"]
        end = None if after is None else ChainEnd(int(after["seq"]), after["digest"] or None)
        chain = StreamChain(
            request["tenant"], keys=known, clock=SystemClock(), after=end, gaps=request["gaps"]
        )
        outcomes = []
        for body in request["bodies"]:
            try:
                outcomes.append((await chain.verify(bytes.fromhex(body))).digest)
            except EnvelopeRefused as refused:
                outcomes.append(refused.fault.value)
        return {"outcomes": outcomes}

    async def do_events(self, request: Told) -> Told:
        after = request.get("after")
        bookmark = MemoryBookmark()
        if after is not None:
            bookmark.move(StreamPlace(int(after["seq"]), after["digest"]))
        items: list[Told] = []
        setattr(event_stream, "LONGEST_PAUSE_S", 0.1)  # noqa: B010 it is final for others
        async with EventStream(
            gateway=request["gateway"],
            signer=request["signer"],
            tenant=request["tenant"],
            certificates=request["folder"],
            bookmark=bookmark,
            sources=request.get("sources", ()),
        ) as stream:
            # One more than is told: to ask for it says that the one before is done with.
            async for item in stream:
                if len(items) == request["most"]:
                    break
                if isinstance(item, StreamReset):
                    items.append({"reset": str(item.state.position.high)})
                else:
                    items.append({"seq": str(item.seq), "source": item.source, "events": list(item.events)})
        place = bookmark.read()
        assert place is not None
        return {"items": items, "bookmark": {"seq": str(place.seq), "digest": place.digest}}

    def _consumer_of(self, request: Told, *, stream: bool) -> Consumer:
        return Consumer(
            mailbox=self._opened["mailbox"],
            topic=request["topic"],
            certificates=self._opened["folder"],
            signer=self._opened["signer"],
            principal_certificates=self._opened.get("principal") or None,
            visibility_s=request["visibility_ms"] / 1000,
            stream=stream,
        )

    async def _taken(self, request: Told, *, stream: bool) -> Told:
        key = f"{request['topic']} {stream}"
        consumer = self._consumers.get(key)
        if consumer is None:
            consumer = self._consumers[key] = self._consumer_of(request, stream=stream)
            await consumer.start()
        messages = []
        for _ in range(request["most"]):
            command = await anext(consumer)
            self._handles.append(command)
            messages.append(tell(request["topic"], command._message, len(self._handles) - 1))
        return {"messages": messages, "integrity_failures": consumer.integrity_failures}

    async def do_take(self, request: Told) -> Told:
        return await self._taken(request, stream=False)

    async def do_stream(self, request: Told) -> Told:
        return await self._taken(request, stream=True)

    def _mailbox(self, topic: str) -> MeshChannel:
        return mailbox_channel(
            self._opened["mailbox"],
            CapabilityScope(topic, OPERATIONS),
            certificates=self._opened["folder"],
            signer=self._opened["signer"],
            capability=None,
            trust_domain=DEFAULT_TRUST_DOMAIN,
        )

    async def _call(self, topic: str, method: str, request: Any) -> bytes:
        channel = self._mailbox(topic)
        try:
            return await channel.call_raw(
                f"/snavio.v1.Mailbox/{method}", request.SerializeToString(), timeout_s=CALL_S
            )
        finally:
            await channel.close()

    async def do_receive(self, request: Told) -> Told:
        topic = request["topic"]
        wanted = ReceiveRequest(
            topic=topic,
            visibility_ms=request["visibility_ms"],
            max_messages=request["most"],
            wait_ms=request["wait_ms"],
        )
        epoch, rows = read_leased_batches(await self._call(topic, "Receive", wanted), topic)
        messages = []
        for row in rows:
            self._handles.append((topic, epoch, row))
            messages.append(tell(topic, row, len(self._handles) - 1))
        return {"messages": messages, "integrity_failures": 0}

    async def do_ack(self, request: Told) -> Told:
        return await self._settle(request, lambda command: command.ack(durable=True), AckRequest)

    async def do_nack(self, request: Told) -> Told:
        delay_ms = request.get("delay_ms")
        more = {"reason": request.get("reason", ""), "dead": request.get("dead", False)}
        delay_s = None if delay_ms is None else delay_ms / 1000
        fields = more if delay_ms is None else {**more, "delay_ms": delay_ms}
        return await self._settle(
            request,
            lambda command: command.nack(delay_s=delay_s, durable=True, **more),
            NackRequest,
            **fields,
        )

    async def do_extend(self, request: Told) -> Told:
        return await self._settle(request, None, ExtendRequest, visibility_ms=request["visibility_ms"])

    async def _settle(self, request: Told, settle: Any, kind: Any, **fields: Any) -> Told:
        held = [self._handles[handle] for handle in request["handles"]]
        if settle is not None and isinstance(held[0], Command):
            codes = [int(each) for each in await asyncio.gather(*(settle(command) for command in held))]
            # A consumer that stays open prefetches what the next case sends.
            await self._close_consumers()
            return {"codes": codes}
        leases = [
            (each._acks.topic, each._lease.boot_epoch, each._message) if isinstance(each, Command) else each
            for each in held
        ]
        receipts = Receipts(
            boot_epoch=leases[0][1],
            msg_id=[message.msg_id for _, _, message in leases],
            attempt=[message.attempt for _, _, message in leases],
        )
        topic = leases[0][0]
        method = kind.__name__.removesuffix("Request")
        answer = await self._call(topic, method, kind(topic=topic, receipts=receipts, **fields))
        return {"codes": list(read_codes(answer, len(leases)))}

    async def _close_consumers(self) -> None:
        consumers, self._consumers = self._consumers, {}
        for consumer in consumers.values():
            await consumer.close()

    async def do_close(self, _request: Told) -> Told:
        await self._close_consumers()
        if self._producer is not None:
            await self._producer.close()
            self._producer = None
        if self._certificate is not None:
            await self._certificate.stop()
            self._certificate = None
        return {}


def tell(topic: str, message: Received, handle: int) -> Told:
    """A message as the protocol of the run tells it."""
    envelope = envelope_of(topic, message)
    return {
        "handle": handle,
        "attempt": message.attempt,
        "id": message.id,
        "source": message.source,
        "target": message.target,
        "name": message.name,
        "payload": message.payload.hex(),
        "integrity": message.integrity,
        "payload_hash": envelope.payload_hash.removeprefix("b3:"),
        "hash_chain": envelope.hash_chain.removeprefix("b3:"),
    }


def outcome_told(outcome: Outcome) -> Told:
    """An outcome as the protocol of the run tells it."""
    return {
        "verdict": int(outcome.verdict),
        "reason": outcome.reason,
        "id": outcome.command_id,
        "attempts": outcome.attempts,
        "detail": outcome.detail,
        "retry_after_ms": outcome.retry_after_ms,
    }


async def main() -> None:
    """Answer until stdin ends."""
    # A log line on stdout would be taken for an answer.
    structlog.configure(logger_factory=structlog.PrintLoggerFactory(sys.stderr))
    agent = PythonAgent()
    while line := await asyncio.to_thread(sys.stdin.readline):
        sys.stdout.write(json.dumps(await agent.answer(json.loads(line))) + "\n")
        sys.stdout.flush()
    await agent.do_close({})


if __name__ == "__main__":
    asyncio.run(main())
