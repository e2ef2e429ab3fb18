"""A tenant with a valid certificate sends nonsense to everything that it may call, and is told so in a stable word."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Any

import pytest
import pytest_asyncio
from google.protobuf.descriptor import Descriptor, FieldDescriptor
from google.protobuf.message import Message
from google.protobuf.message_factory import GetMessageClass

from snavio.domain.directory import KINDS
from snavio.errors import SnavioError
from snavio.v1 import registry_pb2, signer_pb2
from tests.support.acme import settle, version
from tests.support.control import Control, control_plane

TEXTS = (
    "\x00", "a\nb", "\x1b[2J", "\u202eemca", "аcme", "é", "/", "acme/", "acme/billing/x", "*", "acme/*", "..", "-1",
    "x" * 10_000, "💥" * 10_000, "%s{}$(id)", "snvcap1.", "1.2.3", "\ufeff", "own/\n", "~\n~\n~",
)  # fmt: skip
NUMBERS = (0, 1, -1, 2**31 - 1, -(2**31), 2**32 - 1, 2**63 - 1, -(2**63), 2**64 - 1)
REALS = (0.0, -1.0, float("nan"), float("inf"), 1e308)
MANY = 5000
DEEP = 4
ENOUGH = 20
"""After so many refusals of the caller, and nothing else, a method is not a tenant's to call."""


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def control(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Control]:
    async with control_plane(tmp_path_factory.mktemp("hostile") / "state", registry=True) as control:
        await settle(control)
        yield control


def calls(service: str) -> list[tuple[str, str]]:
    pool = registry_pb2 if service == "Registry" else signer_pb2
    described = pool.DESCRIPTOR.services_by_name[service]
    return [
        (service, method.name)
        for method in described.methods
        if not (method.server_streaming or method.client_streaming)
    ]


def hostile(described: Descriptor, honest: Message, depth: int = 0) -> Iterator[Message]:
    """`honest` with one field of it, at any depth, made hostile."""
    for each in described.fields:
        if each.is_repeated:
            yield from _lists(each, honest)
        elif each.type == FieldDescriptor.TYPE_MESSAGE:
            if depth < DEEP:
                for inner in hostile(each.message_type, getattr(honest, each.name), depth + 1):
                    changed = type(honest)()
                    changed.CopyFrom(honest)
                    getattr(changed, each.name).CopyFrom(inner)
                    yield changed
        else:
            for value in _values(each):
                changed = type(honest)()
                changed.CopyFrom(honest)
                try:
                    setattr(changed, each.name, value)
                except (ValueError, TypeError):
                    continue  # No program could put that on the wire.
                yield changed


def _lists(field: FieldDescriptor, honest: Message) -> Iterator[Message]:
    for many in (1, MANY):
        changed = type(honest)()
        changed.CopyFrom(honest)
        into = getattr(changed, field.name)
        if field.type == FieldDescriptor.TYPE_MESSAGE:
            if field.message_type.GetOptions().map_entry:
                return
            for _ in range(many):
                into.add()
        else:
            into.extend([_values(field)[0]] * many)
        yield changed


def _values(field: FieldDescriptor) -> tuple[Any, ...]:
    match field.cpp_type:
        case FieldDescriptor.CPPTYPE_STRING:
            return TEXTS if field.type == FieldDescriptor.TYPE_STRING else tuple(t.encode() for t in TEXTS)
        case FieldDescriptor.CPPTYPE_DOUBLE | FieldDescriptor.CPPTYPE_FLOAT:
            return REALS
        case FieldDescriptor.CPPTYPE_BOOL:
            return (True, False)
        case _:
            return NUMBERS


def honest(described: Descriptor, depth: int = 0) -> Message:
    """A request whose fields have the names that acme's own entries have."""
    names = {
        "tenant": "acme", "source": "acme/billing", "target": "bot", "name": "Ping", "principal": "ci",
        "topic": "acme/bot", "kind": "route", "service": "billing", "limit": 1, "max": 1, "interval_seconds": 1,
        "realm": "acme/bot",
    }  # fmt: skip
    made = GetMessageClass(described)()
    for each in described.fields:
        if each.is_repeated:
            if each.name == "key" and each.type == FieldDescriptor.TYPE_STRING:
                made.key.extend(["bot", "Ping"])
        elif each.type == FieldDescriptor.TYPE_MESSAGE:
            # Of several kinds of an entry the first that stands alone is taken.
            if depth < DEEP and each.containing_oneof is None:
                getattr(made, each.name).CopyFrom(honest(each.message_type, depth + 1))
        elif each.name in names:
            try:
                setattr(made, each.name, names[each.name])
            except TypeError:
                continue
    return made


@pytest.mark.asyncio(loop_scope="module")
@pytest.mark.parametrize(("service", "method"), [*calls("Registry"), *calls("Signer")])
async def test_nonsense_is_refused_with_a_reason(control: Control, service: str, method: str) -> None:
    pool = registry_pb2 if service == "Registry" else signer_pb2
    described = pool.DESCRIPTOR.services_by_name[service].methods_by_name[method]
    answer = GetMessageClass(described.output_type)
    ask = control.ask if service == "Registry" else control.sign
    requests = hostile(described.input_type, honest(described.input_type))
    refused = await told(lambda request: ask("acme", method, request, answer), requests)
    if not described.input_type.fields:
        return
    assert refused.asked
    # It is all there still, for the next one.
    assert await version(control) >= 7


@pytest.mark.asyncio(loop_scope="module")
@pytest.mark.parametrize("kind", [each.name for each in registry_pb2.Entry.DESCRIPTOR.fields])
async def test_a_hostile_entry_of_each_kind_is_refused_with_a_reason(control: Control, kind: str) -> None:
    described = registry_pb2.Entry.DESCRIPTOR.fields_by_name[kind].message_type

    def requests() -> Iterator[registry_pb2.ApplyRequest]:
        for value in hostile(described, honest(described)):
            for write in ({"dry_run": True}, {"tell_mistakes": True, "dry_run": True}):
                request = registry_pb2.ApplyRequest(**write)  # type: ignore[arg-type]
                getattr(request.write.add().entry, kind).CopyFrom(value)
                yield request
            request = registry_pb2.ApplyRequest(dry_run=True)
            getattr(request.write.add(delete=True).entry, kind).CopyFrom(value)
            yield request
        many = registry_pb2.ApplyRequest(dry_run=True)
        for _ in range(MANY):
            getattr(many.write.add().entry, kind).CopyFrom(honest(described))
        yield many

    done = await told(
        lambda request: control.ask("acme", "Apply", request, registry_pb2.ApplyResponse), requests()
    )
    assert done.asked > 10


@pytest.mark.asyncio(loop_scope="module")
@pytest.mark.parametrize("kind", ["", *KINDS])
async def test_hostile_keys_of_each_kind_are_refused_with_a_reason(control: Control, kind: str) -> None:
    def requests() -> Iterator[Message]:
        for text in TEXTS:
            for parts in range(4):
                yield registry_pb2.HistoryRequest(kind=kind, key=[text] * parts)
                yield registry_pb2.DeleteEntryRequest(kind=kind, key=[text] * parts, dry_run=True)
            yield registry_pb2.ListEntriesRequest(kind=kind, tenant="acme", page_token=text)
            yield registry_pb2.ListEntriesRequest(kind=kind, page_token=f"bot\n{text}\n{text}")
            yield registry_pb2.ListEntriesRequest(kind=kind, target=text)
            yield registry_pb2.ReadLogRequest(kind=[kind, text])
        yield registry_pb2.HistoryRequest(kind=kind, key=["bot"] * MANY)
        yield registry_pb2.DeleteEntryRequest(kind=kind, key=["bot"] * MANY, dry_run=True)
        yield registry_pb2.ReadLogRequest(kind=[kind] * MANY)

    async def ask(request: Message) -> None:
        method = request.DESCRIPTOR.name.removesuffix("Request")
        answer = getattr(registry_pb2, f"{method}Response")
        await control.ask("acme", method, request, answer)

    done = await told(ask, requests())
    assert done.asked > 10


@dataclass
class Told:
    """The number of requests that were asked, and of those that are not a tenant's at all."""

    asked: int = 0
    forbidden: int = 0


async def told(ask: Callable[[Any], Awaitable[Any]], requests: Iterable[Message]) -> Told:
    """Ask all of them; every refusal must have a reason of its own, and be short."""
    done, wrong = Told(), list[str]()
    for request in requests:
        done.asked += 1
        try:
            await ask(request)
        except SnavioError as error:
            if error.reason in ("internal", "unavailable", "deadline-exceeded") or len(str(error)) > 1000:
                wrong.append(f"{error.reason}: {str(error)[:200]} for {str(request)[:200]}")
            done.forbidden += error.reason == "not-allowed"
            if done.forbidden == done.asked == ENOUGH:
                break
    assert not wrong, "\n".join(wrong[:10])
    return done
