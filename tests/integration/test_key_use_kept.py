"""Key usage counts and the warnings about them, after Signer was restarted, killed or away."""

from __future__ import annotations

import pytest

from services.signer.keys.composition import UPKEEP_SECONDS
from services.signer.keys.traffic_ledger import LONGEST_ABSENCE_NS
from snavio.clock import ManualClock
from snavio.v1 import signer_pb2 as wire
from tests.support.control import ADMIN, Control

SOURCE = "acme/billing"
DAY_S = 24 * 3600


async def furnish(control: Control) -> None:
    await control.sign(ADMIN, "CreateKeyset", wire.CreateKeysetRequest(source=SOURCE), wire.KeysetStatus)
    await control.sign(ADMIN, "RotateKeyset", wire.RotateKeysetRequest(source=SOURCE), wire.KeysetStatus)
    # The new version signs, the old one is a legacy.
    await control.spread_keys()


async def report(control: Control, version: str, commands: int) -> None:
    use = [wire.KeyUse(source=SOURCE, key_version=version, commands=commands)]
    await control.sign(
        "shield", "ReportKeyUsage", wire.ReportKeyUsageRequest(use=use), wire.ReportKeyUsageResponse
    )


async def status(control: Control) -> wire.KeysetStatus:
    request = wire.DescribeKeysetsRequest(source=SOURCE)
    answer = await control.sign(ADMIN, "DescribeKeysets", request, wire.DescribeKeysetsResponse)
    found: wire.KeysetStatus = answer.keyset[0]
    return found


async def said(control: Control) -> list[str]:
    answer = await control.sign(ADMIN, "Events", wire.EventsRequest(), wire.EventsResponse)
    return [event.name for event in answer.event if event.name.startswith("snavio.secret.")]


async def restart(control: Control) -> None:
    await control.stop_signer()
    await control.start_signer()


async def test_shares_of_traffic_and_the_watch_survive_a_restart(control: Control) -> None:
    await report(control, "hmac-v1", 30)
    await report(control, "hmac-v2", 70)
    before = await status(control)
    await restart(control)
    control.clock.advance(seconds=60)
    after = await status(control)
    assert [use.last_hour for use in after.use] == [30, 70]
    assert [use.last_used_unix_ns for use in after.use] == [use.last_used_unix_ns for use in before.use]
    assert after.observed_since_unix_ns == before.observed_since_unix_ns
    await report(control, "hmac-v2", 5)
    assert [use.last_day for use in (await status(control)).use] == [30, 75]


async def test_an_event_of_this_hour_is_not_repeated_by_the_next_life(control: Control) -> None:
    await report(control, "hmac-v1", 1)
    assert await said(control) == ["snavio.secret.legacy_key_used"]
    await restart(control)
    await report(control, "hmac-v1", 1)
    assert await said(control) == []
    control.clock.advance(seconds=3601)
    await report(control, "hmac-v1", 1)
    assert await said(control) == ["snavio.secret.legacy_key_used"]


async def test_after_a_long_absence_the_watch_begins_anew_and_counts_are_still_told(control: Control) -> None:
    await report(control, "hmac-v1", 7)
    await control.stop_signer()
    control.clock.advance(seconds=LONGEST_ABSENCE_NS / 1e9 + 1)
    await control.start_signer()
    after = await status(control)
    assert after.use[0].last_hour == 7
    assert after.observed_since_unix_ns == control.clock.unix_ns()
    assert not after.use[0].safe_to_retire


async def test_a_crash_loses_no_more_than_the_last_minute(control: Control) -> None:
    await report(control, "hmac-v1", 7)
    ledger = control.signer.keys.traffic_ledger  # type: ignore[union-attr]
    assert ledger is not None
    control.clock.advance(seconds=60)
    await ledger.write()
    path = control.signer_settings.usage_path(control.mesh)
    kept = path.read_bytes()
    await report(control, "hmac-v1", 1000)
    await ledger.write()
    # Not for every report: within the minute nothing is written.
    assert path.read_bytes() == kept
    await control.stop_signer()
    path.write_bytes(kept)
    await control.start_signer()
    assert (await status(control)).use[0].last_hour == 7
    assert UPKEEP_SECONDS < 60


@pytest.mark.parametrize("damage", ["cut", "changed", "nonsense", "missing"])
async def test_a_damaged_file_costs_the_counts_and_nothing_else(control: Control, damage: str) -> None:
    await report(control, "hmac-v1", 7)
    await control.stop_signer()
    path = control.signer_settings.usage_path(control.mesh)
    good = path.read_bytes()
    if damage == "missing":
        path.unlink()
    else:
        changed = good.replace(b"billing", b"shipping")
        path.write_bytes({"cut": good[:-5], "changed": changed, "nonsense": b"\xff"}[damage])
    control.clock.advance(seconds=1)
    await control.start_signer()
    after = await status(control)
    assert after.use[0].last_hour == 0
    assert after.observed_since_unix_ns == control.clock.unix_ns()


async def test_counts_of_a_clock_that_was_set_back_are_not_believed(control: Control) -> None:
    await report(control, "hmac-v1", 7)
    control.clock.advance(seconds=3600)
    await control.stop_signer()
    control.clock = ManualClock(control.clock.unix_ns() - 3600 * 10**9)
    await control.start_signer()
    after = await status(control)
    assert after.use[0].last_hour == 0
    assert after.observed_since_unix_ns == control.clock.unix_ns()


async def test_a_folder_that_takes_no_file_does_not_keep_signer_from_working(control: Control) -> None:
    path = control.signer_settings.usage_path(control.mesh)
    await control.stop_signer()
    path.unlink()
    path.mkdir()
    (path / "in the way").touch()
    await control.start_signer()
    await report(control, "hmac-v1", 7)
    assert (await status(control)).use[0].last_hour == 7
