"""`snavio tail` as a user runs it: live, verified, and readable in a terminal of 80 columns."""

from __future__ import annotations

from collections.abc import Iterator

import orjson
import pytest

from snavio.cli.tail import sentence
from snavio.native import uuid7
from tests.support.terminal import Up, configured, running, snavio


@pytest.fixture(scope="module")
def up(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Up]:
    folder = tmp_path_factory.mktemp("tail")
    configured(folder)
    with running(folder) as mesh:
        yield mesh


def test_what_became_of_a_command_is_told_from_the_past_and_as_json(up: Up) -> None:
    command_id = uuid7()
    sent = snavio("send", "discord-bot", "notify-user", "-p", "hello", "--id", command_id, folder=up.folder)
    assert sent.returncode == 0, sent.stderr
    # Its event is sealed within seconds; the demo tenant has others before it.
    for most in range(1, 60):
        told = snavio("tail", "demo", "--since", "1h", "--max", str(most), "--json", folder=up.folder)
        assert told.returncode == 0, told.stderr
        events = [orjson.loads(each) for each in told.stdout.splitlines()]
        assert len(events) == most
        if command_id in {event.get("command_id") for event in events}:
            break
    (event,) = [event for event in events if event.get("command_id") == command_id]
    assert (event["event"], event["target"], event["command.name"]) == (
        "snavio.command.delivered",
        "discord-bot",
        "notify-user",
    )


def test_only_what_was_asked_for_is_told_in_a_line_of_a_terminal(up: Up) -> None:
    refused = snavio("send", "nobody-home", "notify-user", "-p", "x", folder=up.folder)
    assert refused.returncode == 1
    words = ("tail", "--event", "failed", "--since", "1h", "--max", "1")
    told = snavio(*words, folder=up.folder)
    assert told.returncode == 0, told.stderr
    heading, line = told.stdout.splitlines()
    assert heading == "Following the events of demo; Ctrl-C ends it."
    assert "failed" in line and "nobody-home" in line and "route-missing" in line


def test_a_tenant_that_does_not_exist_is_one_sentence(up: Up) -> None:
    told = snavio("tail", "nosuch", folder=up.folder)
    assert (told.returncode, told.stdout.count("\n")) == (1, 1)
    assert told.stderr == "snavio: There is no tenant 'nosuch'.\n"


def test_an_ordinary_event_fits_into_80_columns() -> None:
    event = {
        "at": "2026-11-18T20:55:19.534394000Z",
        "event": "snavio.command.delivered",
        "source": "acme/billing",
        "target": "discord-bot",
        "command.name": "notify-user",
        "dispatch_latency_ms": 3.744,
    }
    assert sentence(event) == "20:55:19.534  delivered   acme/billing → discord-bot  notify-user  3.7 ms"
    assert len(sentence(event)) <= 80
