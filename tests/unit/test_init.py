"""`snavio init`: what it writes is a registration, whoever answers, and it asks only where somebody can answer."""

from __future__ import annotations

from pathlib import Path

from snavio.cli.exits import ExitCode
from snavio.cli.registration import read_registration
from snavio.domain.directory import AclEntry, Principal, Route, Service, Target
from tests.support.terminal import Terminal, snavio

OPTIONS = ("init", "--tenant", "acme", "--principal", "ci", "--service", "billing", "--service", "bot")


def test_options_alone_make_a_file_that_can_be_registered(tmp_path: Path) -> None:
    ran = snavio(*OPTIONS, "--target", "acme-bot", "--command", "ping", "--limit", "100", folder=tmp_path)
    assert ran.returncode == 0, ran.stderr
    written = read_registration(tmp_path / "service.toml")
    assert Principal("acme", "ci") in written.values
    assert Service("acme", "billing", ("ci",)) in written.values
    assert Target("acme-bot", "acme") in written.values
    assert {value.source for value in written.values if isinstance(value, AclEntry)} == {
        "acme/billing",
        "acme/bot",
    }
    (route,) = [value for value in written.values if isinstance(value, Route)]
    assert route.limit is not None
    assert route.limit.max == 100


def test_a_tenant_that_only_sends_needs_no_target(tmp_path: Path) -> None:
    assert snavio(*OPTIONS, folder=tmp_path).returncode == 0
    assert not [
        each for each in read_registration(tmp_path / "service.toml").values if isinstance(each, Target)
    ]


def test_without_a_terminal_a_missing_answer_is_named_and_nothing_waits(tmp_path: Path) -> None:
    ran = snavio("init", "--tenant", "acme", folder=tmp_path)
    assert (ran.returncode, ran.stderr) == (
        ExitCode.USAGE,
        "snavio: Give --principal; on a terminal it would be asked for.\n",
    )
    assert not (tmp_path / "service.toml").exists()


def test_on_a_terminal_it_asks_for_what_no_option_says(tmp_path: Path) -> None:
    terminal = Terminal("init", "--tenant", "acme", folder=tmp_path, columns=80)
    try:
        for question, answer in (
            ("Principal", "ci"),
            ("Services", "billing, bot"),
            ("Target", "acme-bot"),
            ("A command", "ping"),
        ):
            terminal.until(question)
            terminal.type(f"{answer}\n")
        terminal.until("Wrote service.toml")
    finally:
        terminal.close()
    names = [
        each.service
        for each in read_registration(tmp_path / "service.toml").values
        if isinstance(each, Service)
    ]
    assert names == ["billing", "bot"]


def test_a_file_that_is_there_is_not_replaced(tmp_path: Path) -> None:
    (tmp_path / "service.toml").write_text("mine")
    ran = snavio(*OPTIONS, folder=tmp_path)
    assert ran.returncode == ExitCode.STATE
    assert "--force replaces it" in ran.stderr
    assert (tmp_path / "service.toml").read_text() == "mine"


def test_names_that_are_none_are_refused_before_anything_is_written(tmp_path: Path) -> None:
    for name in ("ünï", "x" * 10_000, "a\x1b[2J", 'a"\nb'):
        ran = snavio(*OPTIONS, "--service", name, folder=tmp_path)
        assert ran.returncode == ExitCode.USAGE, name
        assert "\x1b" not in ran.stderr
        assert len(ran.stderr) < 2000
        assert not (tmp_path / "service.toml").exists()
