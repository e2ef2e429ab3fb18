"""Caveats of a capability: each one narrows it, and together they answer a request.

Pure. Never takes a caveat that it does not know for one that holds: what is not understood is refused.

    topic=acme/billing,acme/audit-*     one of these topics; a `*` at the end stands for any rest
    op=recv,ack,nack,extend             one of these operations
    holder=spiffe://…  or  tenant:acme  in the hands of this identity, or of anybody of this tenant
    expires=1790000000000               before this time, milliseconds since the epoch
    quota=10000/60000                   at most so many messages in so many milliseconds
    source=acme/billing,acme/web        of the tenant's event stream, envelopes of these sources alone
    type=command,secret                 of the tenant's event stream, envelopes of these families alone
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from enum import Enum, StrEnum
from typing import Final

from snavio.domain.identity import Identity, valid_name
from snavio.domain.stream import FAMILIES
from snavio.errors import BadRequest

MAX_CAVEAT_BYTES: Final = 512
MAX_TOPICS: Final = 16
MAX_QUOTA_MESSAGES: Final = 10**12
MIN_QUOTA_INTERVAL_MS: Final = 1000
MAX_QUOTA_INTERVAL_MS: Final = 7 * 86_400_000
MAX_TIME_MS: Final = 1 << 53

_PATTERN = re.compile(r"\*|[a-z0-9][A-Za-z0-9._:$@+/-]{0,254}\*?")
# One spelling per number: "+5", "05" and Arabic digits would be other bytes for the same caveat.
_NUMBER = re.compile(r"0|[1-9][0-9]{0,15}")
_SPIFFE = re.compile(r"spiffe://[a-z0-9./-]{1,400}")


class Operation(StrEnum):
    """The operations on a topic."""

    SEND = "send"
    RECV = "recv"
    ACK = "ack"
    NACK = "nack"
    EXTEND = "extend"
    STATS = "stats"
    PEEK = "peek"
    LIST = "list"
    MANAGE = "manage"
    STREAM = "stream"


# They settle an existing lease, and give no new access.
SETTLING: Final = frozenset({Operation.ACK, Operation.NACK})
CONSUMING: Final = frozenset({Operation.RECV, Operation.EXTEND, Operation.STATS, *SETTLING})


class Denial(Enum):
    """Reason why a capability does not permit a request: stable reason, error code, one sentence."""

    REQUIRED = ("cap-required", "E_CAP_AUTH", "This needs a capability.")
    MALFORMED = ("cap-malformed", "E_CAP_AUTH", "The capability cannot be read.")
    UNKNOWN_CAVEAT = (
        "cap-unknown-caveat",
        "E_CAP_AUTH",
        "The capability has a caveat that is not known here.",
    )
    UNKNOWN_ROOT = (
        "cap-unknown-root",
        "E_CAP_AUTH",
        "The capability was made under a root key that is not known here.",
    )
    FORGED = ("cap-forged", "E_CAP_AUTH", "The capability was not made by this mesh, or was changed.")
    EXPIRED = ("cap-expired", "E_CAP_AUTH", "The capability has expired.")
    REVOKED = ("cap-revoked", "E_CAP_AUTH", "The capability was revoked.")
    HOLDER = ("cap-holder", "E_CAP_AUTH", "The capability was made for somebody else.")
    TOPIC = ("cap-topic", "E_CAP_SCOPE", "The capability is not for this topic.")
    OPERATION = ("cap-operation", "E_CAP_SCOPE", "The capability is not for this operation.")

    def __init__(self, reason: str, code: str, sentence: str) -> None:
        self.reason = reason
        self.code = code
        self.sentence = sentence


class UnknownCaveat(BadRequest):
    """A caveat of a kind that this program does not know."""

    reason = "cap-unknown-caveat"


@dataclass(frozen=True, slots=True)
class Quota:
    """A number of messages per interval."""

    messages: int
    interval_ms: int


@dataclass(frozen=True, slots=True)
class Caveat:
    """One caveat, valid once built. Exactly one of the fields is set."""

    topics: tuple[str, ...] = ()
    operations: frozenset[Operation] = frozenset()
    holder: str = ""
    expires_ms: int = 0
    quota: Quota | None = None
    sources: tuple[str, ...] = ()
    families: frozenset[str] = frozenset()

    def __post_init__(self) -> None:
        given = (
            self.topics,
            self.operations,
            self.holder,
            self.expires_ms,
            self.quota,
            self.sources,
            self.families,
        )
        _require(sum(map(bool, given)) == 1, "a caveat says exactly one thing")
        if self.topics:
            _require(len(self.topics) <= MAX_TOPICS, f"at most {MAX_TOPICS} topics in one caveat")
            for topic in self.topics:
                require_pattern(topic)
        _require(len(self.sources) <= MAX_TOPICS, f"at most {MAX_TOPICS} sources in one caveat")
        _require(all(map(_is_source, self.sources)), "a source is `<tenant>/<service>`")
        _require(self.families <= set(FAMILIES), f"the types are {', '.join(FAMILIES)}")
        if self.holder:
            _require(_is_holder(self.holder), "the holder is `spiffe://…` or `tenant:<name>`")
        _require(self.expires_ms < MAX_TIME_MS, "the time is too late")
        if self.quota is not None:
            _require(
                0 < self.quota.messages <= MAX_QUOTA_MESSAGES
                and MIN_QUOTA_INTERVAL_MS <= self.quota.interval_ms <= MAX_QUOTA_INTERVAL_MS,
                f"a quota has at least 1 message and {MIN_QUOTA_INTERVAL_MS} to {MAX_QUOTA_INTERVAL_MS} ms",
            )
        _require(len(self.text()) <= MAX_CAVEAT_BYTES, f"a caveat has at most {MAX_CAVEAT_BYTES} bytes")

    def text(self) -> str:
        """The caveat as it is authenticated; the only spelling that `parse` accepts."""
        if self.topics:
            return f"topic={','.join(self.topics)}"
        if self.operations:
            return f"op={','.join(each for each in Operation if each in self.operations)}"
        if self.holder:
            return f"holder={self.holder}"
        if self.quota is not None:
            return f"quota={self.quota.messages}/{self.quota.interval_ms}"
        if self.sources:
            return f"source={','.join(self.sources)}"
        if self.families:
            return f"type={','.join(each for each in FAMILIES if each in self.families)}"
        return f"expires={self.expires_ms}"


def parse(text: str) -> Caveat:
    """The caveat of its text; UnknownCaveat or BadRequest for any spelling but that of `Caveat.text`."""
    name, equals, value = text.partition("=")
    match name:
        case "topic":
            caveat = Caveat(topics=tuple(value.split(",")))
        case "op":
            words = value.split(",")
            _require(set(words) <= set(Operation), "no such operation")
            caveat = Caveat(operations=frozenset(map(Operation, words)))
        case "holder":
            caveat = Caveat(holder=value)
        case "expires":
            caveat = Caveat(expires_ms=_number(value))
        case "quota":
            messages, _, interval = value.partition("/")
            caveat = Caveat(quota=Quota(_number(messages), _number(interval)))
        case "source":
            caveat = Caveat(sources=tuple(value.split(",")))
        case "type":
            caveat = Caveat(families=frozenset(value.split(",")))
        case _:
            raise UnknownCaveat("The capability has a caveat that is not known here.")
    _require(bool(equals) and caveat.text() == text, "a caveat has one spelling only")
    return caveat


@dataclass(frozen=True, slots=True)
class CaveatBounds:
    """The bounds that the realm and all caveats leave together."""

    topics: tuple[tuple[str, ...], ...]
    operations: frozenset[Operation]
    holders: tuple[str, ...]
    expires_ms: int
    """0 without an expiry; such a capability is refused."""
    sources: frozenset[str] | None = None
    """Of an event stream, those whose envelopes may be read; None for all."""
    families: frozenset[str] | None = None

    @classmethod
    def of(cls, realm: str, caveats: Iterable[Caveat]) -> CaveatBounds:
        """The intersection of the realm and all caveats."""
        topics: list[tuple[str, ...]] = [(realm,)]
        holders, ends = [], []
        sources: frozenset[str] | None = None
        families: frozenset[str] | None = None
        operations = frozenset(Operation)
        for caveat in caveats:
            if caveat.topics:
                topics.append(caveat.topics)
            elif caveat.operations:
                operations &= caveat.operations
            elif caveat.holder:
                holders.append(caveat.holder)
            elif caveat.expires_ms:
                ends.append(caveat.expires_ms)
            elif caveat.sources:
                named = frozenset(caveat.sources)
                sources = named if sources is None else sources & named
            elif caveat.families:
                families = caveat.families if families is None else families & caveat.families
        return cls(tuple(topics), operations, tuple(holders), min(ends, default=0), sources, families)

    def held_by(self, identity: Identity) -> bool:
        """True if every holder caveat names `identity`; false without a holder caveat."""
        return bool(self.holders) and all(holds(holder, identity) for holder in self.holders)

    def denial(self, operation: Operation, topic: str) -> Denial | None:
        """The reason why this operation on this topic is not permitted; None if it is."""
        if operation not in self.operations:
            return Denial.OPERATION
        # Topics know nothing of the sources of an event stream: what was narrowed to some of them reaches no topic.
        if operation is not Operation.STREAM and (self.sources is not None or self.families is not None):
            return Denial.OPERATION
        if not all(any(covers(pattern, topic) for pattern in some) for some in self.topics):
            return Denial.TOPIC
        return None


def covers(pattern: str, topic: str) -> bool:
    """True if `topic` equals the pattern, or begins with the part before its `*`; a wider pattern covers a narrower
    one.
    """
    return topic.startswith(pattern[:-1]) if pattern.endswith("*") else topic == pattern


def holds(holder: str, identity: Identity) -> bool:
    """True if `identity` is the holder, or belongs to the tenant that the holder names."""
    kind, _, tenant = holder.partition(":")
    if kind == "tenant":
        return identity.tenant != "" and identity.tenant == tenant
    return identity.spiffe_id == holder


def require_pattern(pattern: str) -> None:
    """BadRequest unless the text is a topic, or the beginning of one followed by `*`."""
    _require(
        _PATTERN.fullmatch(pattern) is not None, "a topic is `<tenant>/<target>`, with `*` at its end at most"
    )


def _is_holder(holder: str) -> bool:
    kind, _, rest = holder.partition(":")
    return valid_name(rest) if kind == "tenant" else _SPIFFE.fullmatch(holder) is not None


def _is_source(source: str) -> bool:
    tenant, slash, service = source.partition("/")
    return bool(slash) and valid_name(tenant) and valid_name(service)


def _number(text: str) -> int:
    _require(_NUMBER.fullmatch(text) is not None, "a number has one spelling only")
    return int(text)


def _require(holds: bool, rule: str) -> None:
    if not holds:
        raise BadRequest(f"Capability: {rule}.", reason=Denial.MALFORMED.reason)
