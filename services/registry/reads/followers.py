"""Knows which processes act on the directory and which version each has applied, for the kill switch to wait for.

Never takes one process's word for another's: the service is that of its certificate. Kept in memory and bounded; how
long that memory reaches back is told with every answer, for it says nothing of a process that has not called since.
"""

from __future__ import annotations

import re
from collections import OrderedDict
from dataclasses import dataclass
from typing import Final

from snavio.clock import Clock
from snavio.domain.identity import Identity, IdentityKind
from snavio.rpc.server import Call
from snavio.v1.registry_pb2 import Follower, FollowersRequest, FollowersResponse

MAX_FOLLOWERS: Final = 10_000
FORGOTTEN_MS: Final = 600_000
_MILLISECOND: Final = 1_000_000
_INSTANCE: Final = re.compile(r"[a-z0-9][a-z0-9-]{0,62}")


@dataclass(frozen=True, slots=True)
class _Heard:
    version: int
    at_mono_ns: int
    bound_ms: int


class Followers:
    """A bounded table; when full, the process that called longest ago is dropped."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._began_mono_ns = clock.mono_ns()
        self._heard: OrderedDict[tuple[str, str], _Heard] = OrderedDict()

    def heard(self, who: Identity, instance: str, *, version: int, bound_ms: int) -> None:
        """A process has called, and has applied `version`."""
        if who.kind is not IdentityKind.MESH or not _INSTANCE.fullmatch(instance):
            return
        key = (who.name, instance)
        self._heard[key] = _Heard(version, self._clock.mono_ns(), bound_ms)
        self._heard.move_to_end(key)
        if len(self._heard) > MAX_FOLLOWERS:
            self._heard.popitem(last=False)

    async def list(self, _request: FollowersRequest, _call: Call) -> FollowersResponse:
        """Processes that may still act on what they have read."""
        now = self._clock.mono_ns()
        answer = FollowersResponse(listening_ms=(now - self._began_mono_ns) // _MILLISECOND)
        for (service, instance), heard in list(self._heard.items()):
            silent_ms = (now - heard.at_mono_ns) // _MILLISECOND
            if silent_ms > max(FORGOTTEN_MS, heard.bound_ms):
                del self._heard[service, instance]
                continue
            answer.follower.append(
                Follower(
                    service=service,
                    instance=instance,
                    version=heard.version,
                    silent_ms=silent_ms,
                    bound_ms=heard.bound_ms,
                )
            )
        return answer
