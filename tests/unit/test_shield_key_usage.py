"""Shield's key usage reports to Signer: kept while Signer is away, sent once it is back, bounded."""

from __future__ import annotations

from typing import Any, cast

import pytest

from services.shield import key_usage
from services.shield.key_usage import KeyUsage
from snavio.errors import Unavailable
from snavio.native import Admission
from snavio.rpc.channel import MeshChannel
from snavio.v1.signer_pb2 import ReportKeyUsageRequest, ReportKeyUsageResponse


class Counted:
    """Admission's counters, as a test sets them."""

    def __init__(self) -> None:
        self.rows: list[tuple[str, str, int]] = []

    def key_usage(self) -> list[tuple[str, str, int]]:
        rows, self.rows = self.rows, []
        return rows


class Listener:
    """Signer's end of the connection."""

    def __init__(self) -> None:
        self.away = False
        self.reports: list[list[tuple[str, str, int]]] = []
        self.meanwhile: Any = None

    async def call(
        self, _method: str, request: ReportKeyUsageRequest, _answer: type[Any], *, timeout_s: float
    ) -> ReportKeyUsageResponse:
        assert timeout_s > 0
        if self.meanwhile is not None:
            self.meanwhile()
        if self.away:
            raise Unavailable("away")
        self.reports.append([(use.source, use.key_version, use.commands) for use in request.use])
        return ReportKeyUsageResponse()


@pytest.fixture
def counted() -> Counted:
    return Counted()


@pytest.fixture
def listener() -> Listener:
    return Listener()


@pytest.fixture
def usage(counted: Counted, listener: Listener) -> KeyUsage:
    return KeyUsage(admission=cast(Admission, counted), signer=cast(MeshChannel, listener))


async def test_silence_is_not_reported(usage: KeyUsage, listener: Listener) -> None:
    await usage.report()
    assert listener.reports == []


async def test_what_could_not_be_told_is_told_later_with_what_came_since(
    usage: KeyUsage, counted: Counted, listener: Listener
) -> None:
    listener.away = True
    counted.rows = [("acme/a", "hmac-v1", 2)]
    with pytest.raises(Unavailable):
        await usage.report()
    listener.away = False
    counted.rows = [("acme/a", "hmac-v1", 3), ("acme/b", "hmac-v1", 1)]
    await usage.report()
    await usage.report()
    assert listener.reports == [[("acme/a", "hmac-v1", 5), ("acme/b", "hmac-v1", 1)]]


async def test_use_that_is_collected_while_a_report_is_on_its_way_is_told_next(
    usage: KeyUsage, counted: Counted, listener: Listener
) -> None:
    def more() -> None:
        listener.meanwhile = None
        counted.rows = [("acme/a", "hmac-v1", 7)]
        usage.collect()

    counted.rows = [("acme/a", "hmac-v1", 2)]
    listener.meanwhile = more
    await usage.report()
    assert listener.reports == [[("acme/a", "hmac-v1", 2)], [("acme/a", "hmac-v1", 7)]]


async def test_long_absence_is_bounded_and_what_is_dropped_is_counted(
    usage: KeyUsage, counted: Counted, listener: Listener, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(key_usage, "MAX_WAITING", 2)
    monkeypatch.setattr(key_usage, "MAX_ROWS", 1)
    counted.rows = [("acme/a", "hmac-v1", 1), ("acme/b", "hmac-v1", 1), ("acme/c", "hmac-v1", 9)]
    usage.collect()
    counted.rows = [("acme/a", "hmac-v1", 4)]
    await usage.report()
    assert usage.dropped == 9
    assert listener.reports == [[("acme/a", "hmac-v1", 5)], [("acme/b", "hmac-v1", 1)]]
