"""One trace of a command's way, put together from what Shield, Fast, Slow and the mailbox still know of it.

Never guesses: a service that could not be asked is named, and so is a step that was not looked at.
"""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from snavio.admin.documents import message_document
from snavio.admin.queue import QueueClient, TopicMessage
from snavio.domain.identity import DEFAULT_TRUST_DOMAIN
from snavio.errors import BadRequest, SnavioError
from snavio.rpc.channel import MeshChannel
from snavio.rpc.credentials import CertificateFiles
from snavio.v1 import explain_pb2 as wire

SERVICES: Final = ("shield", "fast", "slow")
CALL_SECONDS: Final = 5.0
MAX_PAGES: Final = 20


@dataclass(frozen=True, slots=True)
class Explanation:
    """Everything that the mesh knows of a command."""

    command_id: str
    traces: tuple[wire.Trace, ...]
    """Oldest first; the last is what became of it in the end."""
    oldest_unix_ns: Mapping[str, int]
    """Of each service that answered, when the oldest command that it keeps was settled; 0 when it keeps none."""
    away: tuple[str, ...]
    """Services that could not be asked."""
    refused_certificates: tuple[tuple[str, wire.CertificateRefusal], ...] = ()
    """Each with the service that refused it. A refused call is not read: it may have had any command."""

    @property
    def trace(self) -> wire.Trace | None:
        """The newest; None for an unknown command."""
        return self.traces[-1] if self.traces else None

    def document(self) -> dict[str, Any]:
        """As JSON; traces have the names of the wire's fields, and numbers are numbers."""
        traces = [message_document(trace, always_print_fields_with_no_presence=True) for trace in self.traces]
        return {
            "command_id": self.command_id,
            "found": bool(traces),
            "trace": traces[-1] if traces else None,
            "earlier": traces[:-1],
            "kept_since_unix_ns": dict(self.oldest_unix_ns),
            "away": list(self.away),
            "refused_certificates": [
                {"service": service} | message_document(one) for service, one in self.refused_certificates
            ],
        }


async def explain(
    command_id: str,
    *,
    addresses: Mapping[str, str],
    certificates: Path,
    trust_domain: str = DEFAULT_TRUST_DOMAIN,
) -> Explanation:
    """Ask everybody at once; `addresses` are those of shield, fast, slow, mailbox and signer."""
    command_id = read_command_id(command_id)
    files = CertificateFiles.in_folder(certificates)
    channels = {
        name: MeshChannel(addresses[name], files=files, service=name, trust_domain=trust_domain)
        for name in SERVICES
    }
    try:
        answers = await asyncio.gather(*(_ask(channels[name], command_id) for name in SERVICES))
        told = dict(zip(SERVICES, answers, strict=True))
        traces = sorted(
            (trace for answer in answers if answer is not None for trace in answer.trace),
            key=lambda trace: trace.settled_unix_ns,
        )
        if traces:
            await _attempts(
                command_id,
                traces[-1],
                addresses=addresses,
                certificates=certificates,
                trust_domain=trust_domain,
            )
    finally:
        for channel in channels.values():
            await channel.close()
    return Explanation(
        command_id=command_id,
        traces=tuple(traces),
        oldest_unix_ns={name: answer.oldest_unix_ns for name, answer in told.items() if answer is not None},
        away=tuple(name for name, answer in told.items() if answer is None),
        refused_certificates=tuple(
            (name, one)
            for name, answer in told.items()
            if answer is not None
            for one in answer.refused_certificate
        ),
    )


def read_command_id(text: str) -> str:
    """A command's id as the mesh spells it; BadRequest when it is none."""
    try:
        return str(uuid.UUID(text))
    except ValueError:
        raise BadRequest(
            f"{text!r} is not the id of a command, which is a UUID.", reason="bad-field"
        ) from None


async def _ask(channel: MeshChannel, command_id: str) -> wire.ExplainResponse | None:
    try:
        return await channel.call(
            "/snavio.v1.Explain/Explain",
            wire.ExplainRequest(command_id=command_id),
            wire.ExplainResponse,
            timeout_s=CALL_SECONDS,
        )
    except BadRequest:
        raise
    except SnavioError:
        return None


async def _attempts(
    command_id: str,
    trace: wire.Trace,
    *,
    addresses: Mapping[str, str],
    certificates: Path,
    trust_domain: str,
) -> None:
    """Fill in what the mailbox knows, if the caller may ask it: its owner and operators may."""
    (step,) = (step for step in trace.step if step.step == "attempts")
    topic = next((step.fact["topic"] for step in trace.step if "topic" in step.fact), "")
    if not topic or step.state == wire.STEP_STATE_NOT_REACHED:
        return
    after = 0
    found: list[TopicMessage] = []
    try:
        async with QueueClient(
            addresses["mailbox"],
            certificates=certificates,
            realm=topic,
            signer=addresses["signer"],
            trust_domain=trust_domain,
        ) as queue:
            for _ in range(MAX_PAGES):
                found, after = await queue.page(topic, command_id=command_id, after=after, limit=1)
                if found or not after:
                    break
    except SnavioError as error:
        step.detail = f"Not looked up: the mailbox answered {error.reason}."
        return
    if not found:
        gone = "The mailbox has it no more: it was acknowledged, or its queue is another."
        step.detail = "Not found among the first messages of the queue." if after else gone
        return
    message = found[0]
    state = message.state.name.lower()
    step.state = wire.STEP_STATE_PASSED
    step.detail = f"Message {message.msg_id} is {state}, attempt {message.attempt}."
    step.fact.update(
        {"msg_id": str(message.msg_id), "state": state, "attempt": str(message.attempt)}
        | ({"reason": message.reason} if message.reason else {})
    )
