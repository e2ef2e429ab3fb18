"""Every kind of entry by name: how to read one back from its fields, and when it ends.

Never guesses: a stored field that a kind does not have is an error, not a default.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import fields, is_dataclass
from enum import IntEnum
from functools import cache
from types import UnionType
from typing import Any, Final, TypeAlias, TypeVar, cast, get_args, get_origin, get_type_hints

from snavio.domain.directory.access import AccessRequest, AclEntry
from snavio.domain.directory.alerts import AlertChannel
from snavio.domain.directory.endpoint import Endpoint
from snavio.domain.directory.lists import Ban, Suspension
from snavio.domain.directory.proposal import BanProposal
from snavio.domain.directory.quota import SourceQuota
from snavio.domain.directory.route import ProfileLimit, Route
from snavio.domain.directory.tenancy import Principal, Service, Target, Tenant
from snavio.domain.directory.topic_rule import TopicRule

Value: TypeAlias = (
    Tenant
    | Principal
    | Service
    | Target
    | Route
    | AclEntry
    | AccessRequest
    | SourceQuota
    | AlertChannel
    | Ban
    | Suspension
    | BanProposal
    | ProfileLimit
    | TopicRule
    | Endpoint
)
V = TypeVar("V", bound=Value)
KINDS: Final[Mapping[str, type[Value]]] = {kind.kind: kind for kind in get_args(Value)}


def expiry_of(value: Value) -> int:
    """The time at which an entry ends by itself; 0 for one that does not."""
    match value:
        case Route() | AclEntry() | AccessRequest() | BanProposal():
            return value.expires_unix_ns
        case Ban() | Suspension():
            return value.until_unix_ns
        case _:
            return 0


def is_over(value: Value, now_unix_ns: int) -> bool:
    """True if the entry has ended, even if it is still in the directory."""
    return 0 < expiry_of(value) <= now_unix_ns


def shape_of(kind: type[Any]) -> Mapping[str, type[Any]]:
    """The type of every field, without `None`."""
    whole: Any = kind
    shape: Mapping[str, type[Any]] = _shape_of(whole)
    return shape


@cache
def _shape_of(kind: Any) -> Mapping[str, type[Any]]:
    hints = get_type_hints(kind)
    return {field.name: _present(hints[field.name]) for field in fields(kind)}


def revive(kind: str, stored: Mapping[str, Any]) -> Value:
    """The value that was stored as these fields, validated as any other."""
    value: Value = _revive(KINDS[kind], stored)
    return value


def _revive(kind: Any, stored: Mapping[str, Any]) -> Any:
    readers = _readers(kind)
    return kind(
        **{
            name: reader(item) if item is not None and (reader := readers[name]) else item
            for name, item in stored.items()
        }
    )


@cache
def _readers(kind: Any) -> Mapping[str, Callable[[Any], Any] | None]:
    """Readers of the fields, None where a value is taken as it is; made once, since a page has thousands of values."""
    return {name: _reader(hint) for name, hint in _shape_of(kind).items()}


def _reader(hint: Any) -> Callable[[Any], Any] | None:
    if is_dataclass(hint):
        return lambda item: _revive(cast("type[Any]", hint), item) if isinstance(item, Mapping) else item
    if isinstance(hint, type) and issubclass(hint, IntEnum):
        return hint
    return None if hint in (str, int, float, bool) else _listed


def _listed(item: Any) -> Any:
    return tuple(item) if isinstance(item, list) else item


def _present(hint: Any) -> Any:
    if get_origin(hint) is UnionType:
        (hint,) = (choice for choice in get_args(hint) if choice is not type(None))
    return hint
