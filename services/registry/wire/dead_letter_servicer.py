"""Dead letters of Redis streams on the wire: their owner lists them and sends them again.

Never shows a payload, and never touches another tenant's queue.
"""

from __future__ import annotations

from typing import Final

from services.registry.reads.visibility import sees_all
from snavio.domain.directory import Target
from snavio.domain.directory.rules import require_target
from snavio.errors import BadRequest, NotFound
from snavio.native import read_single
from snavio.ports.dead_letters import DeadLetter, DeadLetters
from snavio.ports.directory import Directory
from snavio.rpc.server import Call, Methods
from snavio.v1 import registry_pb2 as wire

AT: Final = "/snavio.v1.Registry/"
USUAL: Final = 100
MOST: Final = 1000


class DeadLetterServicer:
    """The handlers of dead letters."""

    def __init__(self, directory: Directory, letters: DeadLetters | None) -> None:
        self._directory = directory
        self._letters = letters

    def register(self, methods: Methods) -> None:
        """Add the handlers."""
        methods.unary(AT + "ListDeadLetters", self.list_letters, wire.ListDeadLettersRequest)
        methods.unary(AT + "RedriveDeadLetters", self.redrive, wire.RedriveDeadLettersRequest)

    async def list_letters(
        self, request: wire.ListDeadLettersRequest, call: Call
    ) -> wire.ListDeadLettersResponse:
        letters, topic = self._present(), await self._topic(request.target, call)
        limit = min(request.limit or USUAL, MOST)
        found = await letters.listed(topic, limit=limit, after=request.after)
        return wire.ListDeadLettersResponse(letter=[_told(each) for each in found])

    async def redrive(
        self, request: wire.RedriveDeadLettersRequest, call: Call
    ) -> wire.RedriveDeadLettersResponse:
        if len(request.letter_id) > MOST:
            raise BadRequest(f"letter_id: must be at most {MOST}.", reason="bad-field")
        letters, topic = self._present(), await self._topic(request.target, call)
        return wire.RedriveDeadLettersResponse(moved=await letters.redrive(topic, list(request.letter_id)))

    def _present(self) -> DeadLetters:
        if self._letters is None:
            raise NotFound(
                "This installation has set up no Redis; `snavio queue` looks after the mailbox's dead letters.",
                reason="queue-kind-not-available",
            )
        return self._letters

    async def _topic(self, target: str, call: Call) -> str:
        require_target(target, "target")
        _, found = await self._directory.read(lambda view: view.find(Target, target))
        reader = call.peer.identity
        # One answer for what is not there and what is another's.
        if found is None or not (sees_all(reader) or reader.tenant == found.tenant):
            raise NotFound(f"There is no target {target} of yours.", reason="unknown-target")
        return f"{found.tenant}/{target}"


def _told(letter: DeadLetter) -> wire.DeadLetter:
    told = wire.DeadLetter(
        letter_id=letter.letter_id,
        reason=letter.reason,
        attempts=letter.attempts,
        died_unix_ns=letter.died_unix_ns,
        stored_unix_ns=letter.stored_unix_ns,
    )
    try:
        source, command_id, _, _, name, *_ = read_single(letter.run)
    except ValueError:
        return told
    told.source, told.command_id, told.name = source, command_id, name
    return told
