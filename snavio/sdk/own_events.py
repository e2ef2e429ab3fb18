"""Follows the events about one source, so that its producer can do what they ask for.

Never keeps a producer from sending: where the events cannot be read it says so and tries again, later and later.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

import structlog

from snavio.errors import SnavioError
from snavio.sdk.event_stream import EventStream, ReceivedEvents

FIRST_PAUSE_S: Final = 5.0
LONGEST_PAUSE_S: Final = 300.0


async def follow_own_events(
    opened: Callable[[], EventStream], heard: Callable[[Sequence[Mapping[str, Any]]], None]
) -> None:
    """Hand on the events of every envelope, from now on; runs until cancelled."""
    log = structlog.get_logger()
    pause_s = FIRST_PAUSE_S
    while True:
        try:
            async with opened() as stream:
                async for item in stream:
                    pause_s = FIRST_PAUSE_S
                    if isinstance(item, ReceivedEvents):
                        heard(item.events)
        except SnavioError as error:
            # The gateway, or what it sent, is refused for good; sending does not depend on it.
            log.warning("events about this source cannot be read", reason=error.reason, message=str(error))
        await asyncio.sleep(pause_s)
        pause_s = min(LONGEST_PAUSE_S, 2 * pause_s)
