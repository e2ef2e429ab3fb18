"""Reaches the mailbox for a command, under the operator's certificate or under one that `--as` names.

Never asks for the right to change anything when the command only looks.
"""

from __future__ import annotations

import difflib
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any, TypeVar

import typer

from snavio.cli.caller import Caller
from snavio.cli.times import Period
from snavio.cli.words import one_of, one_of_each

if TYPE_CHECKING:
    from pathlib import Path

    from snavio.admin.queue import QueueClient, TopicStats
    from snavio.config import MeshSettings
    from snavio.domain.identity import Identity
    from snavio.domain.message import MessageState

T = TypeVar("T")
MOST_NAMED = 8

Topic = Annotated[
    str,
    typer.Argument(
        help="The topic, `<tenant>/<target>`; a tenant's own certificate may leave the tenant out."
    ),
]
FromSource = Annotated[str, typer.Option("--source", help="Only those of this source, `<tenant>/<service>`.")]
Named = Annotated[str, typer.Option("--name", help="Only commands of this name.")]
CommandId = Annotated[str, typer.Option("--command-id", help="Only this command.")]
Because = Annotated[
    str,
    typer.Option(
        "--because", help="Only dead ones with this reason: max-attempts, nack-dead, expired, integrity."
    ),
]
States = Annotated[
    list[str] | None,
    typer.Option(
        "--state", help="Only ready, inflight, delivered, dead or canceled ones; may be said several times."
    ),
]
MAX_ATTEMPTS = 2**32 - 1
MinAttempts = Annotated[
    int, typer.Option(min=0, max=MAX_ATTEMPTS, help="Only those delivered so often at least.")
]


@dataclass(frozen=True, slots=True, kw_only=True)
class Stored:
    """Which messages, by what every one of them has."""

    source: FromSource = ""
    name: Named = ""
    command_id: CommandId = ""
    stored: Period

    def narrowed(self) -> dict[str, Any]:
        """The filter of a command; only what was said."""
        from snavio.clock import SystemClock

        since, until = self.stored.read(now_unix_ns=SystemClock().unix_ns())
        said: dict[str, Any] = {
            "source": self.source,
            "name": self.name,
            "command_id": self.command_id,
            "stored_from_unix_ns": since,
            "stored_before_unix_ns": until,
            **self._further(),
        }
        return {key: value for key, value in said.items() if value}

    def _further(self) -> dict[str, Any]:
        return {}


@dataclass(frozen=True, slots=True, kw_only=True)
class Dead(Stored):
    """The same, and why they are dead."""

    because: Because = ""

    def _further(self) -> dict[str, Any]:
        return {"dead_reason": _reason(self.because)}


@dataclass(frozen=True, slots=True, kw_only=True)
class Tried(Dead):
    """The same, and how often they were delivered."""

    min_attempts: MinAttempts = 0

    def _further(self) -> dict[str, Any]:
        return {"dead_reason": _reason(self.because), "min_attempts": self.min_attempts}


@dataclass(frozen=True, slots=True)
class MailboxCaller(Caller):
    """A caller of the mailbox."""

    def ask_queue(
        self, question: Callable[[QueueClient, Callable[[str], str]], Awaitable[T]], *needs: str
    ) -> T:
        """The answer of the running mesh's mailbox. The question also gets a reader of topic names.

        `needs` are the operations beside stats; a service gets no capability that allows more than it may do.
        """
        from snavio.admin.queue import QueueClient
        from snavio.cli.actor import read_actor, require_serving

        async def answer(mesh: MeshSettings, certificates: Path) -> T:
            who = read_actor(certificates, trust_domain=mesh.trust_domain)
            # A call to a server that does not run would wait for its whole deadline.
            await require_serving("mailbox", mesh, who)
            async with QueueClient(
                mesh.mailbox,
                certificates=who.certificates,
                realm=f"{who.identity.tenant}/*" if who.identity.tenant else "*",
                operations=("stats", *needs),
                signer=mesh.signer,
                trust_domain=mesh.trust_domain,
            ) as queue:
                return await question(queue, lambda words: full_name(words, who.identity))

        return self.answer(answer)


def full_name(words: str, identity: Identity) -> str:
    """The full name of a topic: a bare target belongs to the caller's tenant."""
    return f"{identity.tenant}/{words}" if identity.tenant and "/" not in words else words


async def known(queue: QueueClient, topic: str) -> TopicStats:
    """The topic in numbers; NotFound with what was probably meant."""
    from snavio.errors import NotFound

    found = await queue.stats(topic)
    if found:
        return found[0]
    names = sorted(one.topic for one in await queue.stats())
    near = difflib.get_close_matches(topic, names, 1, 0.5)
    if not near:
        near = [name for name in names if name.partition("/")[2] == topic][:1]
    if near:
        hint = f" Did you mean {near[0]}?"
    elif names:
        more = f" and {len(names) - MOST_NAMED} more" if len(names) > MOST_NAMED else ""
        hint = f" There are {', '.join(names[:MOST_NAMED])}{more}."
    else:
        hint = " There is none yet: a topic begins with its first message."
    raise NotFound(f"No topic {topic[:128]!r}.{hint}", reason="unknown-topic")


def states(words: list[str] | None) -> tuple[MessageState, ...]:
    """The states of `--state`, given several times or with commas."""
    from snavio.domain.message import MessageState

    known_words = {state.name.lower(): state for state in MessageState if state is not MessageState.PURGED}
    return tuple(known_words[word] for word in one_of_each(words or (), known_words, "--state"))


def _reason(words: str) -> str:
    from snavio.domain.message import DeadReason

    reasons = [word for key, word in vars(DeadReason).items() if key.isupper()]
    return one_of(words, reasons, "--because") if words else ""
