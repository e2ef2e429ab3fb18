"""Relay on the wire: one stream of journal pages per service."""

from __future__ import annotations

import re
from typing import Final

from services.relay.gaps import Arrival
from services.relay.page_intake import PageIntake
from snavio.domain.chunks import JOURNAL_PAGE, Reassembly
from snavio.errors import BadRequest, IntegrityError
from snavio.native import read_journal_page
from snavio.rpc.server import Call, Methods
from snavio.v1.relay_pb2 import JournalReceipt

_INSTANCE: Final = re.compile(r"[a-z0-9][a-z0-9-]{0,62}", re.ASCII)
# What the numbers of an archive and of a store can hold.
_MAX_NUMBER: Final = 1 << 62
_MAX_ENDED: Final = 1000
MAX_PAGE_BYTES: Final = 4 << 20
"""Of a page in pieces: one block is one batch, with the names of all its routes."""


class RelayServicer:
    """The handlers of `snavio.v1.Relay`."""

    def __init__(self, *, intake: PageIntake) -> None:
        self._intake = intake

    def methods(self) -> Methods:
        """Methods for the server."""
        methods = Methods()
        methods.stream_raw("/snavio.v1.Relay/Append", self.append)
        return methods

    async def append(self, call: Call) -> None:
        """Pages of one journal, each answered when it is durable."""
        service = call.peer.identity.name
        present: tuple[str, int] | None = None
        pieces = Reassembly(max_bytes=MAX_PAGE_BYTES, tags=JOURNAL_PAGE)
        while (frame := await call.read()) is not None:
            try:
                page = pieces.take(frame)
            except IntegrityError as error:
                raise BadRequest(str(error), reason="malformed") from None
            if page is None:
                continue
            instance, epoch, first_seq, blocks, ended = _read(page)
            if present is None:
                self._intake.require_owner(instance, service)
                present = (instance, epoch)
            if instance != present[0] or epoch > present[1]:
                raise BadRequest("A stream carries one journal.", reason="another-journal")
            arrival = Arrival(
                service=service,
                instance=instance,
                present_epoch=present[1],
                epoch=epoch,
                first_seq=first_seq,
                blocks=blocks,
                ended=ended,
            )
            durable = await self._intake.take(arrival)
            await call.write(JournalReceipt(durable_seq=durable, epoch=epoch).SerializeToString())


def _read(page: bytes) -> tuple[str, int, int, list[tuple[int, bytes]], list[tuple[int, int]]]:
    try:
        instance, epoch, first_seq, blocks, ended = read_journal_page(page)
    except ValueError:
        raise BadRequest("This is not a page of a journal.", reason="malformed") from None
    if _INSTANCE.fullmatch(instance) is None:
        raise BadRequest("instance: not the name of a process.", reason="bad-field")
    numbers = [epoch, first_seq, *(number for life in ended for number in life)]
    if epoch < 1 or max(numbers) > _MAX_NUMBER or (blocks and first_seq == 0) or len(ended) > _MAX_ENDED:
        raise BadRequest("epoch, first_seq: not numbers of a journal.", reason="bad-field")
    return instance, epoch, first_seq, blocks, ended
