"""Retries without end a call that fails because a service is away, with pauses that grow to a second.

Never bounds the time: the caller sets a deadline around it, or waits for as long as it is open.
"""

from __future__ import annotations

from collections.abc import AsyncIterable

import stamina

from snavio.errors import SnavioError


def persist(*on: type[SnavioError], first_pause_s: float) -> AsyncIterable[stamina.Attempt]:
    """Attempts, to be used as `async for attempt in ...: with attempt: ...`; what is not in `on` is raised at once."""
    return stamina.retry_context(
        on=on, attempts=None, timeout=None, wait_initial=first_pause_s, wait_max=1.0, wait_jitter=0.1
    )
