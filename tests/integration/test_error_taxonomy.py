"""C-10: every error that leaves the mesh carries its place in the taxonomy, and saturation says when to come again."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import grpc
import pytest
from google.rpc.error_details_pb2 import RetryInfo
from grpc_status import rpc_status

from services.mailbox.settings import MailboxSettings
from snavio import errors
from snavio.errors import Code, FrameTooLarge, Saturated, SnavioError
from snavio.rpc.status import CODE_KEY, error_of, taxonomy_of
from tests.support.mailbox import TOPIC, commands, running_mailbox, send_batch
from tests.support.servers import refused

TAXONOMY = {
    "E_SCHEMA": 400,
    "E_CAP_AUTH": 401,
    "E_CAP_SCOPE": 403,
    "E_DUPLICATE": 409,
    "E_FRAME_TOO_LARGE": 413,
    "E_SATURATED": 429,
    "E_UNAVAILABLE": 503,
    "E_INTEGRITY": 422,
}
RAISED = [
    (errors.BadRequest("no"), "E_SCHEMA", grpc.StatusCode.INVALID_ARGUMENT),
    (errors.Unauthenticated("no"), "E_CAP_AUTH", grpc.StatusCode.UNAUTHENTICATED),
    (errors.NotAllowed("no"), "E_CAP_SCOPE", grpc.StatusCode.PERMISSION_DENIED),
    (errors.Conflict("no"), "E_DUPLICATE", grpc.StatusCode.ALREADY_EXISTS),
    (errors.FrameTooLarge("no"), "E_FRAME_TOO_LARGE", grpc.StatusCode.INVALID_ARGUMENT),
    (errors.Saturated("no", retry_after_ms=1750), "E_SATURATED", grpc.StatusCode.RESOURCE_EXHAUSTED),
    (errors.Unavailable("no"), "E_UNAVAILABLE", grpc.StatusCode.UNAVAILABLE),
    (errors.IntegrityError("no"), "E_INTEGRITY", grpc.StatusCode.DATA_LOSS),
]


def test_C_10_taxonomy_has_the_codes_of_the_document_with_their_http_statuses() -> None:
    assert {code.name: code.http_status for code in Code if code.name in TAXONOMY} == TAXONOMY


@pytest.mark.parametrize(("error", "code", "status"), RAISED, ids=[code for _, code, _ in RAISED])
async def test_C_10_code_travels_in_the_trailing_metadata(
    tmp_path: Path, error: SnavioError, code: str, status: Any
) -> None:
    told = await refused(error, tmp_path)
    assert told.code() is status
    assert dict(told.trailing_metadata() or ())[CODE_KEY] == code
    again = error_of(told)
    assert (type(again), again.reason, taxonomy_of(again).name) == (type(error), error.reason, code)


async def test_I_5_G_4_saturation_carries_a_retry_delay_in_the_error_details(tmp_path: Path) -> None:
    told = await refused(Saturated("full", retry_after_ms=1750), tmp_path)
    status = rpc_status.from_call(told)
    assert status is not None
    hint = RetryInfo()
    assert status.details[0].Unpack(hint)
    assert hint.retry_delay.ToMilliseconds() == 1750
    again = error_of(told)
    assert isinstance(again, Saturated) and again.retry_after_ms == 1750


async def test_I_5_receive_over_the_ceiling_says_when_to_come_again(tmp_path: Path) -> None:
    async with running_mailbox(tmp_path, settings=MailboxSettings(max_inflight=3)) as office:
        await (await office.sender()).send(send_batch(1, (TOPIC, commands(5))))
        consumer = office.consumer()
        got = await consumer.receive()
        assert len(got.messages) == 3
        with pytest.raises(Saturated) as told:
            await consumer.receive()
        assert told.value.reason == "inflight-ceiling" and told.value.retry_after_ms > 0
        await consumer.ack(got.receipts())
        assert len((await consumer.receive()).messages) == 2


async def test_I_5_tenant_that_acknowledges_nothing_leaves_room_for_others(tmp_path: Path) -> None:
    settings = MailboxSettings(max_inflight=10, max_tenant_inflight=4)
    async with running_mailbox(tmp_path, settings=settings) as office:
        await (await office.sender()).send(
            send_batch(1, (TOPIC, commands(9)), ("acme/mail", commands(9)), ("beta/mail", commands(3)))
        )
        hog = office.consumer()
        assert len((await hog.receive()).messages) == 4
        with pytest.raises(Saturated) as told:
            await hog.receive("acme/mail")
        assert told.value.reason == "tenant-inflight-ceiling"
        assert len((await office.consumer("beta").receive("beta/mail")).messages) == 3


async def test_G_4_message_over_the_frame_limit_is_too_large_and_not_to_be_tried_again(
    tmp_path: Path,
) -> None:
    async with running_mailbox(tmp_path) as office:
        with pytest.raises(FrameTooLarge) as told:
            await office.consumer().channel.call_raw(
                "/snavio.v1.Mailbox/Receive", bytes(5 << 20), timeout_s=10
            )
        assert taxonomy_of(told.value) is Code.E_FRAME_TOO_LARGE
