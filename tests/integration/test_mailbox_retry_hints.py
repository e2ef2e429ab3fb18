"""Every UNAVAILABLE and RESOURCE_EXHAUSTED of the mailbox says when to come again."""

from __future__ import annotations

import ast
import asyncio
from collections.abc import AsyncIterator, Callable, Iterator
from pathlib import Path
from typing import Any

import grpc
import pytest
from google.rpc.error_details_pb2 import RetryInfo
from grpc_status import rpc_status

from services.mailbox.settings import MailboxSettings
from services.mailbox.settle import settlements as settling
from snavio.domain.verdict import Verdict
from snavio.errors import AWAY_RETRY_MS, Saturated, SnavioError, Unavailable, Unreadable
from snavio.rpc.status import RETRY_AFTER_KEY, error_of
from snavio.v1 import mailbox_pb2 as mail
from tests.support.mailbox import (
    SECONDS,
    SERVICE,
    TOPIC,
    MailboxFixture,
    commands,
    running_mailbox,
    send_batch,
)
from tests.support.servers import refused

ROOT = Path(__file__).resolve().parents[2]
SOURCES = (
    *sorted((ROOT / "services/mailbox").rglob("*.py")),
    *(
        ROOT / f"snavio/adapters/embedded/{name}.py"
        for name in (
            *("sqlite_mailbox_store", "mailbox_database", "mailbox_rows", "payload_log", "batch_bodies"),
            *("payload_compaction", "replay_keys", "sqlite", "checksums", "disk"),
        )
    ),
    *sorted((ROOT / "snavio/adapters/memory").glob("*.py")),
    *sorted((ROOT / "snavio/hop").glob("*.py")),
    *sorted((ROOT / "snavio/rpc").glob("*.py")),
    *sorted((ROOT / "snavio/host").glob("*.py")),
)
"""All that answers a call of the mailbox."""
HINTED = ("Saturated", "Unavailable", "Unreadable")


def hint_of(told: Any) -> tuple[int, int]:
    """In milliseconds: in the metadata, and in the details where clients of any language look."""
    status = rpc_status.from_call(told)
    assert status is not None and status.code == told.code().value[0]
    info = RetryInfo()
    assert status.details[0].Unpack(info)
    return int(dict(told.trailing_metadata())[RETRY_AFTER_KEY]), info.retry_delay.ToMilliseconds()


@pytest.mark.parametrize(
    ("error", "hint"),
    [
        (Unavailable("away"), AWAY_RETRY_MS),
        (Unavailable("away", retry_after_ms=40), 40),
        (Unreadable("bad sector"), AWAY_RETRY_MS),
        (Saturated("full", retry_after_ms=250), 250),
        (Saturated("full", retry_after_ms=0), 1),
        (Unavailable("away", retry_after_ms=1 << 60), 86_400_000),
    ],
)
async def test_I_5_C_5_hint_travels_with_every_status_that_may_be_tried_again(
    tmp_path: Path, error: SnavioError, hint: int
) -> None:
    told = await refused(error, tmp_path)
    assert told.code() in (grpc.StatusCode.UNAVAILABLE, grpc.StatusCode.RESOURCE_EXHAUSTED)
    assert hint_of(told) == (hint, hint)
    again = error_of(told)
    assert isinstance(again, Saturated | Unavailable) and again.retry_after_ms == hint


def calls(path: Path) -> Iterator[tuple[str, ast.Call]]:
    for node in ast.walk(ast.parse(path.read_text("utf-8"))):
        if isinstance(node, ast.Call):
            name = node.func.attr if isinstance(node.func, ast.Attribute) else getattr(node.func, "id", "")
            yield name, node


def test_I_5_every_raise_site_of_the_mailbox_has_a_hint() -> None:
    sites: dict[str, int] = {}
    for path in SOURCES:
        for name, call in calls(path):
            where = f"{path.relative_to(ROOT)}:{call.lineno}"
            if name in HINTED:
                sites[where] = call.lineno
                hints = [one.value for one in call.keywords if one.arg == "retry_after_ms"]
                assert hints or name != "Saturated", where
                assert not any(isinstance(one, ast.Constant) and not one.value for one in hints), where
            for position, given in enumerate(call.args):
                # Verdicts within a frame: the hint is the argument behind the code.
                if ast.unparse(given) == "Verdict.SATURATED" and name in ("close", "close_part", "refuse"):
                    behind = call.args[position + 1 : position + 2]
                    assert behind and not (isinstance(behind[0], ast.Constant) and not behind[0].value), where
    assert len(sites) > 30, "the walk finds them"


def test_I_5_statuses_are_made_in_one_place() -> None:
    """Where the hint is put in: no handler ends a call with a status of its own making."""
    made = {
        f"{path.relative_to(ROOT)}: {ast.unparse(call.args[0])}"
        for path in SOURCES
        for name, call in calls(path)
        if name in ("abort", "set_code") and call.args and "StatusCode" in ast.unparse(call.args[0])
    }
    assert not {one for one in made if "UNAVAILABLE" in one or "RESOURCE_EXHAUSTED" in one}, made


# -- on the wire --------------------------------------------------------------------------------------------

OWN = "acme/own/mail"


@pytest.fixture
async def office(tmp_path: Path) -> AsyncIterator[MailboxFixture]:
    async with running_mailbox(tmp_path) as one:
        yield one


async def refusal(office: MailboxFixture, method: str, request: Any) -> Any:
    """The gRPC error of a refused call, as a client of any language gets it."""
    files = office.authority.service("acme", "worker")
    channel = office.channel(files)
    with pytest.raises(SnavioError) as told:
        await channel.call_raw(SERVICE + method, request.SerializeToString(), timeout_s=SECONDS)
    cause: BaseException | None = told.value
    while cause is not None and not isinstance(cause, grpc.aio.AioRpcError):
        cause = cause.__cause__ or cause.__context__
    assert cause is not None, "the status as it came"
    return cause


def store_of(office: MailboxFixture) -> Any:
    assert office.app is not None
    return office.app.parts.store


def fails(error: SnavioError) -> Callable[..., Any]:
    def fail(*_args: object, **_named: object) -> Any:
        raise error

    return fail


def message() -> mail.SendRequest:
    return mail.SendRequest(topic=OWN, message=[mail.NewMessage(payload=b"x")])


@pytest.mark.parametrize("error", [Unavailable("sync failed"), Saturated("full", retry_after_ms=1000)])
async def test_G_4_send_that_the_disk_refuses_says_when_to_come_again(
    office: MailboxFixture, monkeypatch: pytest.MonkeyPatch, error: SnavioError
) -> None:
    monkeypatch.setattr(store_of(office), "commit", fails(error))
    assert min(hint_of(await refusal(office, "Send", message()))) > 0


async def test_G_4_send_to_a_full_topic_says_when_to_come_again(tmp_path: Path) -> None:
    async with running_mailbox(tmp_path, settings=MailboxSettings(max_topic_messages=1000)) as office:
        full = mail.SendRequest(topic=OWN, message=[mail.NewMessage(payload=b"x")] * 1000)
        channel = office.channel(office.authority.service("acme", "worker"))
        await channel.call_raw(SERVICE + "Send", full.SerializeToString(), timeout_s=SECONDS)
        assert min(hint_of(await refusal(office, "Send", message()))) > 0


@pytest.mark.parametrize("method", ["Ack", "Nack"])
async def test_G_4_receipt_that_the_disk_refuses_or_does_not_answer_says_when_to_come_again(
    office: MailboxFixture, monkeypatch: pytest.MonkeyPatch, method: str
) -> None:
    await (await office.sender()).send(send_batch(1, (TOPIC, commands(2))))
    got = await office.consumer().receive()
    asked = {"Ack": mail.AckRequest, "Nack": mail.NackRequest}[method]
    request = asked(topic=TOPIC, receipts=got.receipts())
    monkeypatch.setattr(store_of(office), "commit", fails(Unavailable("sync failed")))
    assert min(hint_of(await refusal(office, method, request))) > 0
    monkeypatch.setattr(settling, "COMMIT_SECONDS", 0.0)
    assert min(hint_of(await refusal(office, method, request))) > 0


@pytest.mark.parametrize("error", [Unavailable("hangs"), Saturated("too many reads", retry_after_ms=250)])
@pytest.mark.parametrize("method", ["Receive", "List", "Peek"])
async def test_G_4_read_that_the_disk_refuses_says_when_to_come_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, method: str, error: SnavioError
) -> None:
    async with running_mailbox(tmp_path, settings=MailboxSettings(cached_bytes=0)) as office:
        await (await office.sender()).send(send_batch(1, (TOPIC, commands(2))))
        for read in ("read", "records", "pending"):
            monkeypatch.setattr(store_of(office), read, fails(error))
        asked: dict[str, Any] = {
            "Receive": mail.ReceiveRequest(topic=TOPIC, visibility_ms=1000),
            "List": mail.ListRequest(topic=TOPIC),
            "Peek": mail.PeekRequest(topic=TOPIC),
        }
        assert min(hint_of(await refusal(office, method, asked[method]))) > 0


async def test_G_4_receive_that_a_bound_keeps_out_says_when_to_come_again(tmp_path: Path) -> None:
    async with running_mailbox(tmp_path, settings=MailboxSettings(max_inflight=2)) as office:
        await (await office.sender()).send(send_batch(1, (TOPIC, commands(4))))
        assert len((await office.consumer().receive()).messages) == 2
        ceiling = mail.ReceiveRequest(topic=TOPIC, visibility_ms=1000)
        assert min(hint_of(await refusal(office, "Receive", ceiling))) > 0


async def test_G_4_stopping_mailbox_says_when_to_come_again(office: MailboxFixture) -> None:
    assert office.app is not None
    await office.app.parts.commits.close()
    assert min(hint_of(await refusal(office, "Send", message()))) > 0


async def test_G_4_saturated_commands_of_a_stream_have_a_hint(tmp_path: Path) -> None:
    async with running_mailbox(tmp_path, settings=MailboxSettings(max_topic_messages=1000)) as office:
        sender = await office.sender()
        assert set(await sender.send(send_batch(1, (TOPIC, commands(1000))))) == {Verdict.DELIVERED}
        await sender.write(send_batch(2, (TOPIC, commands(2))))
        told = await sender.read()
        assert set(told.codes) == {Verdict.SATURATED}
        assert [one.retry_after_ms > 0 for one in told.refusal] == [True]


async def test_G_4_stream_of_messages_that_ends_for_the_disk_says_when_to_come_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with running_mailbox(tmp_path, settings=MailboxSettings(cached_bytes=0)) as office:
        await (await office.sender()).send(send_batch(1, (TOPIC, commands(2))))
        monkeypatch.setattr(store_of(office), "read", fails(Unavailable("hangs")))
        call = office.consumer().channel.stream(SERVICE + "RecvStream")
        opened = mail.ReceiveRequest(topic=TOPIC, visibility_ms=1000)
        await call.write(mail.RecvStreamRequest(open=opened, credit=5).SerializeToString())
        with pytest.raises(grpc.aio.AioRpcError) as told:
            async with asyncio.timeout(SECONDS):
                await call.read()
        assert told.value.code() is grpc.StatusCode.UNAVAILABLE
        assert min(hint_of(told.value)) > 0
