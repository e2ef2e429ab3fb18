"""Typed arguments: times, sources, targets and certificate names, valid and invalid."""

from __future__ import annotations

from pathlib import Path

import pytest

from snavio.cli.actor import Actor, find_folder, no_certificate
from snavio.cli.caller import Right, read_source
from snavio.cli.freeze import _became
from snavio.cli.times import Period, read_past, read_span, read_time
from snavio.config import MeshSettings
from snavio.domain.identity import parse_identity
from snavio.errors import BadRequest

NOW_NS = 1_790_000_000_000_000_000
BOT = Actor(parse_identity("spiffe://snavio.local/tenant/demo/service/bot"), Path("certs/demo-bot"), 0)


@pytest.mark.parametrize("words", ["99999d", "1969-01-01", "1970-01-01", "1970-01-01T00:00:00Z"])
def test_a_time_before_all_others_is_not_taken_for_none(words: str) -> None:
    # 0 is "not said" on the wire: `queue purge --until 99999d` would delete everything, `acl at` would tell of today.
    assert read_time(words, now_unix_ns=NOW_NS, option="--until") == 1


def test_the_log_is_not_asked_about_times_to_come() -> None:
    assert read_past("now", now_unix_ns=NOW_NS, option="WHEN") == NOW_NS
    with pytest.raises(BadRequest, match=r"WHEN: 2099-01-01 is still to come"):
        read_past("2099-01-01", now_unix_ns=NOW_NS, option="WHEN")


def test_a_period_ends_after_it_begins() -> None:
    assert Period("2h", "1h").read(now_unix_ns=NOW_NS) == (
        NOW_NS - 7_200_000_000_000,
        NOW_NS - 3_600_000_000_000,
    )
    assert Period().read(now_unix_ns=NOW_NS) == (None, None)
    with pytest.raises(BadRequest, match=r"^--until 2h is not after --since 1h\.$"):
        Period("1h", "2h").read(now_unix_ns=NOW_NS)


@pytest.mark.parametrize(
    ("words", "seconds"),
    [("500ms", 0.5), ("90s", 90), ("15m", 900), ("2h", 7200), ("7d", 604_800), ("2.5", 2.5)],
)
def test_durations_are_read_as_people_type_them(words: str, seconds: float) -> None:
    assert read_span(words, option="--wait") == seconds


@pytest.mark.parametrize("words", ["", "soon", "0", "-5s", "5 s", "1w", "٥s"])
def test_what_is_no_duration_is_refused(words: str) -> None:
    with pytest.raises(BadRequest, match=r"^--wait: must be a duration such as 90s, 15m, 2h or 7d\.$"):
        read_span(words, option="--wait")


@pytest.mark.parametrize("words", ["billing", "acme/", "/billing", "Acme/billing", "acme/billing/x", ""])
def test_a_source_without_its_tenant_is_told_how_sources_are_named(words: str) -> None:
    with pytest.raises(BadRequest, match=r"^--source: must be <tenant>/<service>"):
        read_source(words, option="--source")
    with pytest.raises(BadRequest, match=r"^SOURCE: must be"):
        _ = Right(words, "discord-bot", "notify-user").triple
    assert read_source("acme/billing") == "acme/billing"


@pytest.mark.parametrize(
    ("typed", "topic"),
    [
        ("discord-bot", "demo/discord-bot"),
        ("demo/discord-bot", "demo/discord-bot"),
        ("own/jobs", "demo/own/jobs"),
        ("demo/own/jobs", "demo/own/jobs"),
    ],
)
def test_a_target_may_be_typed_as_its_topic(typed: str, topic: str) -> None:
    assert BOT.topic(typed) == topic


def test_another_tenants_topic_is_not_looked_for_in_ones_own() -> None:
    with pytest.raises(BadRequest, match="is no target of demo"):
        BOT.topic("acme/discord-bot")


def test_a_certificate_is_found_by_the_same_names_everywhere(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    mesh = MeshSettings(state_dir=tmp_path / "state")
    monkeypatch.chdir(tmp_path)
    billing, enrolled = mesh.certificates("demo-billing"), Path("certs/acme-ci")
    for folder in (billing, enrolled):
        folder.mkdir(parents=True)
        (folder / "cert.pem").touch()
    assert [
        find_folder(name, mesh) for name in ("billing", "demo/billing", "demo-billing", str(billing))
    ] == ([billing] * 4)
    # Where `snavio enroll` puts it.
    assert [find_folder(name, mesh) for name in ("acme-ci", "acme/ci", "certs/acme-ci")] == [enrolled] * 3
    assert find_folder("nobody", mesh) is None
    assert "there are acme-ci, demo-billing." in str(no_certificate("nobody", mesh))


def test_unfreezing_a_misspelt_target_does_not_sound_as_if_it_had_worked() -> None:
    assert _became("discord-bott", frozen=False, changed=False, version=8) == (
        "discord-bott was not frozen; nothing changed."
    )
    assert _became("discord-bot", frozen=False, changed=True, version=8) == "discord-bot is free (version 8)."
