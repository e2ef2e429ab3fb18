"""The topics of routes, and the ids of the messages in them.

Never a topic that a request chooses: it follows from the tenant and from the file's route and target alone.
"""

from __future__ import annotations

import base64
import re
from dataclasses import dataclass
from functools import lru_cache
from hashlib import blake2b
from typing import Final

from snavio.edge.plan import DeliveryTarget, EdgeRoute

PULL_TARGET: Final = "pull"
"""The target of a route whose messages workers fetch."""
TOPIC_PREFIX: Final = "edge."
EVENT_PREFIX: Final = "evt_"
HTTP_CONTENT_TYPE: Final = "application/vnd.snavio.http"
MOST_BODY_BYTES: Final = 32 << 20
"""Of a body that is stored deflated: a message of 1 MiB could name a gigabyte."""
HASH_BYTES: Final = 5
_MSG_BYTES: Final = 8
_EVENT_CHARACTERS: Final = 21
_MOST_SLUG: Final = 64


@dataclass(frozen=True, slots=True)
class RouteTopic:
    """One target of one route, and the topic in which its messages wait."""

    route: str
    target: str
    topic: str
    topic_hash: bytes


def target_name(target: DeliveryTarget) -> str:
    """The name of a delivery target: its URL, or its program."""
    return target.url if target.url is not None else f"exec:{target.program}"


@lru_cache(maxsize=16_384)
def route_topic(tenant: str, route: str, target: str = PULL_TARGET) -> RouteTopic:
    """The topic `<tenant>/own/edge.<slug>.<hash>` of a route and one of its targets."""
    digest = blake2b(f"{route}\0{target}".encode(), digest_size=HASH_BYTES, person=b"snavio-edge").digest()
    slug = re.sub(r"[^a-z0-9]+", "-", route.lower()).strip("-")[:_MOST_SLUG].strip("-") or "root"
    name = f"{TOPIC_PREFIX}{slug}.{base64.b32encode(digest).decode().lower()}"
    return RouteTopic(route, target, f"{tenant}/own/{name}", digest)


def topics_of(tenant: str, route: EdgeRoute) -> tuple[RouteTopic, ...]:
    """The topics of a route: one per delivery target, or that of its workers; none when it makes commands."""
    if route.command is not None:
        return ()
    names = [target_name(each) for each in route.targets] or [PULL_TARGET]
    return tuple(route_topic(tenant, route.path, name) for name in names)


def event_id(topic_hash: bytes, msg_id: int) -> str:
    """`evt_` and 21 characters: topic and message, so that one is found by the id alone."""
    raw = topic_hash + msg_id.to_bytes(_MSG_BYTES, "big")
    return EVENT_PREFIX + base64.b32encode(raw).decode().rstrip("=").lower()


def parse_event_id(text: str) -> tuple[bytes, int] | None:
    """The topic's hash and the message's id; None when it is no id of an event, also one in another spelling."""
    rest = text.removeprefix(EVENT_PREFIX)
    if len(rest) != _EVENT_CHARACTERS or rest == text or not re.fullmatch(r"[a-z2-7]+", rest):
        return None
    raw = base64.b32decode(rest.upper() + "===")
    found = raw[:HASH_BYTES], int.from_bytes(raw[HASH_BYTES:], "big")
    # The last character has bits to spare: another spelling of the same id would be a second name for it.
    return found if event_id(*found) == text else None
