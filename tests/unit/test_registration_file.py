"""A registration file is accepted as a whole or not at all, with the place of each mistake."""

from __future__ import annotations

from pathlib import Path

import pytest

from snavio.cli.registration import Registration, read_registration
from snavio.cli.times import read_time
from snavio.domain.directory import (
    AclEntry,
    AlertChannel,
    ChannelKind,
    Fairness,
    Limit,
    Principal,
    Profile,
    Route,
    Service,
    SourceQuota,
    Target,
    Tenant,
    TopicRule,
    WhenFull,
)
from snavio.errors import BadRequest

WHOLE = """\
tenant = "acme"
principals = ["ci"]

[[service]]
name = "billing"
principals = ["ci"]

[[target]]
name = "bot"

[[route]]
target = "bot"
command = "Ping"

[[route]]
target = "bot"
command = "Pong"
profile = "critical"
ttl_seconds = 60
limit = { max = 10, interval_seconds = 60, shadow = true }
[route.fairness]
dominant_share = 0.9

[[acl]]
source = "billing"
target = "bot"
command = "Ping"

[[acl]]
source = "rival/shop"
target = "bot"
command = "Pong"

[[quota]]
source = "rival/shop"
target = "bot"
command = "Pong"
max = 5
interval_seconds = 60

[[alert]]
name = "oncall"
kind = "webhook"
address = "https://acme.example/hook"

[[topic]]
name = "own/mail"
capacity = 1000
when_full = "bury-oldest"
delivered_s = 0
"""


def read(tmp_path: Path, text: str | bytes) -> Registration:
    file = tmp_path / "service.toml"
    file.write_bytes(text if isinstance(text, bytes) else text.encode())
    return read_registration(file)


def mistakes(tmp_path: Path, text: str | bytes) -> str:
    with pytest.raises(BadRequest) as refusal:
        read(tmp_path, text)
    assert refusal.value.reason == "bad-registration"
    return str(refusal.value).replace(f"{tmp_path}/", "")


def test_whole_file_is_read_in_an_order_that_can_be_written(tmp_path: Path) -> None:
    found = read(tmp_path, WHOLE)
    assert found.tenant == "acme"
    assert found.values == (
        Tenant("acme"),
        Principal("acme", "ci"),
        Service("acme", "billing", ("ci",)),
        Target("bot", "acme"),
        Route("bot", "Ping"),
        Route(
            "bot",
            "Pong",
            profile=Profile.CRITICAL,
            ttl_seconds=60,
            limit=Limit(10, 60, shadow=True),
            fairness=Fairness(dominant_share=0.9),
        ),
        AclEntry("acme/billing", "bot", "Ping"),
        AclEntry("rival/shop", "bot", "Pong"),
        SourceQuota("rival/shop", "bot", "Pong", 5, 60),
        AlertChannel("acme", "oncall", ChannelKind.WEBHOOK, "https://acme.example/hook"),
        TopicRule("acme", "acme/own/mail", 1000, WhenFull.BURY_OLDEST, delivered_s=0),
    )
    assert found.triples == [("acme/billing", "bot", "Ping"), ("rival/shop", "bot", "Pong")]


def test_file_in_the_documentation_is_one(tmp_path: Path) -> None:
    page = (Path(__file__).parents[2] / "docs" / "directory.md").read_text("utf-8")
    found = read(tmp_path, page.partition("```toml\n")[2].partition("```")[0])
    assert {value.kind for value in found.values} == {
        "tenant", "principal", "service", "target", "route", "acl", "source_quota", "profile_limit", "alert_channel",
        "topic_rule",
    }  # fmt: skip
    (route,) = [value for value in found.values if isinstance(value, Route)]
    assert route.fairness == Fairness()


@pytest.mark.parametrize(
    ("right", "wrong", "line", "words"),
    [
        ('profile = "critical"', 'profil = "critical"', 18, "'profil' in [[route]]: did you mean 'profile'?"),
        ('profile = "critical"', 'profile = "critcal"', 18, "did you mean 'critical'?"),
        ("max = 10", "maxx = 10", 20, "'limit.maxx' in [[route]]: did you mean 'max'?"),
        ("dominant_share = 0.9", "dominant = 0.9", 22, "did you mean 'dominant_share'?"),
        ("dominant_share = 0.9", "dominant_share = nan", 22, "route.fairness.dominant_share: must be"),
        ('tenant = "acme"', 'tennant = "acme"', 1, "unknown key 'tennant': did you mean 'tenant'?"),
        ('"bury-oldest"', '"bury"', 49, "topic.when_full: must be one of refuse, bury-oldest"),
        ("capacity = 1000", "capacity = 0", 48, "topic_rule.capacity: must be from 1 to 1000000000000"),
        ("[[alert]]", "[[alrt]]", 41, "unknown key 'alrt': did you mean 'alert'?"),
        ('command = "Pong"\nprofile', 'command = "P ong"\nprofile', 17, "route.name: must be letters"),
        ("ttl_seconds = 60", 'ttl_seconds = "60"', 19, "route.ttl_seconds: must be a whole number."),
        ("ttl_seconds = 60", "ttl_seconds = true", 19, "route.ttl_seconds: must be a whole number."),
        ("shadow = true", "shadow = 1", 20, "route.limit.shadow: must be true or false."),
        (
            'source = "rival/shop"\ntarget = "bot"\ncommand = "Pong"\n\n',
            "",
            29,
            "the key 'source' is missing",
        ),
        ('address = "https', 'address = "http', 44, "alert_channel.address: must be an https URL"),
        ('principals = ["ci"]\n\n[[service]]', "principals = 5\n\n[[service]]", 2, "a list of text"),
        ('name = "billing"', 'name = "Billing!"', 5, "service.service: must be"),
        ("[[target]]\n", "[target]\nnaem = 1\n", 9, "did you mean 'name'?"),
    ],
)
def test_mistake_is_named_with_its_line_and_what_was_meant(
    tmp_path: Path, right: str, wrong: str, line: int, words: str
) -> None:
    assert right in WHOLE
    told = mistakes(tmp_path, WHOLE.replace(right, wrong, 1))
    assert f"service.toml:{line}: " in told
    assert words in told


def test_every_mistake_is_told_at_once(tmp_path: Path) -> None:
    told = mistakes(tmp_path, WHOLE.replace("profile", "profil").replace("kind =", "knd ="))
    assert "nothing was registered" in told
    assert "'profile'?" in told
    assert "'kind'?" in told


@pytest.mark.parametrize("text", [b"tenant = ", b"\xff\xfe", b"a = [" * 5000, b"", b"x" * (1 << 21)])
def test_what_is_no_registration_is_a_sentence(tmp_path: Path, text: bytes) -> None:
    assert mistakes(tmp_path, text)


def test_file_that_is_not_there_is_a_sentence(tmp_path: Path) -> None:
    with pytest.raises(BadRequest, match="cannot be read"):
        read_registration(tmp_path / "nothing.toml")


NOW = 1_800_000_000_000_000_000


@pytest.mark.parametrize(
    ("words", "at_ns"),
    [
        ("now", NOW),
        ("90s", NOW - 90_000_000_000),
        ("2h", NOW - 7_200_000_000_000),
        ("2h ago", NOW - 7_200_000_000_000),
        ("-2h", NOW - 7_200_000_000_000),
        ("1.5h", NOW - 5_400_000_000_000),
        ("1970-01-01T00:00:01Z", 1_000_000_000),
        ("1970-01-01T01:00:01+01:00", 1_000_000_000),
        ("1970-01-02", 86_400_000_000_000),
    ],
)
def test_times_are_read_as_people_type_them(words: str, at_ns: int) -> None:
    assert read_time(words, now_unix_ns=NOW, option="--from") == at_ns


@pytest.mark.parametrize(
    "words", ["", "yesterday", "--5m", "٥m", "5 m", "5", "in 5m", "2026-13-01", "9" * 40 + "s"]
)
def test_what_is_no_time_is_refused(words: str) -> None:
    with pytest.raises(BadRequest, match=r"^--from: must be"):
        read_time(words, now_unix_ns=NOW, option="--from")


def test_every_mistake_among_5000_routes_is_told_with_its_line(tmp_path: Path) -> None:
    wrong = {
        17: 'profile = "quick"',
        1200: "ttl_second = 60",
        2500: 'ttl_seconds = "60"',
        3999: "limit = { max = 10 }",
        4999: 'queue = "carrier-pigeon"',
    }
    lines, places = ['tenant = "acme"'], []
    for number in range(5000):
        lines += ["[[route]]", 'target = "bot"', f'command = "command-{number}"', wrong.get(number, "")]
        if number in wrong:
            places.append(len(lines))
    file = tmp_path / "many.toml"
    file.write_text("\n".join(lines))
    with pytest.raises(BadRequest) as refused:
        read_registration(file)
    head, *told = str(refused.value).splitlines()
    assert head == f"{file} has 5 mistakes; nothing was registered:"
    assert [each.split(":")[1] for each in told] == [str(place) for place in places]


def test_every_mistake_of_one_route_is_told(tmp_path: Path) -> None:
    file = tmp_path / "one.toml"
    file.write_text(
        'tenant = "acme"\n[[route]]\ntarget = "Bot"\ncommand = "no spaces"\nprofile = "quick"\n'
        'dedupe_mode = "twice"\nttl_second = 1\n'
    )
    with pytest.raises(BadRequest) as refused:
        read_registration(file)
    lines = sorted(int(each.split(":")[1]) for each in str(refused.value).splitlines()[1:])
    assert lines == [3, 4, 5, 6, 7]


@pytest.mark.parametrize("name", ["ünï", "x" * 10_000, "a\\u001b[2J"])
def test_a_name_that_is_none_is_told_harmlessly(tmp_path: Path, name: str) -> None:
    file = tmp_path / "names.toml"
    file.write_text(f'tenant = "acme"\n[[service]]\nname = "{name}"\n')
    with pytest.raises(BadRequest) as refused:
        read_registration(file)
    assert str(refused.value).isprintable()
    assert len(str(refused.value)) < 1000
