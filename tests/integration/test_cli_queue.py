"""`snavio queue` against a real mesh: its output, previews, changes and refusals."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import orjson
import pytest
from typer.testing import CliRunner

from snavio.admin.queue import QueueClient, TopicStats
from snavio.cli.queue import queue
from snavio.cli.queue_top import rates
from snavio.domain.message import MessageState
from snavio.errors import BadRequest, Conflict, NotAllowed, NotFound, SnavioError
from snavio.launch.installation import attach
from snavio.sdk import Consumer, Producer
from tests.support.terminal import Terminal, Up, configured, running, snavio

TOPIC = "demo/discord-bot"
BAD = "no such [user]\x1b[31m"


class CommandLine:
    """A terminal beside a mesh. Most of it runs in this process: starting Python costs more than the command."""

    def __init__(self, up: Up) -> None:
        self.folder = up.folder
        self._where = [
            "--config",
            str(self.folder / "snavio.toml"),
            "--state-dir",
            str(self.folder / ".snavio"),
        ]
        self.mesh = attach(state_dir=self.folder / ".snavio", config=self.folder / "snavio.toml").mesh

    def run(self, *words: str) -> str:
        """The output; raises what the command raises."""
        ran = CliRunner().invoke(queue, [*words, *self._where])
        if isinstance(ran.exception, SnavioError):
            raise ran.exception
        assert ran.exit_code == 0, (ran.output, ran.exception)
        return ran.stdout

    def told(self, *words: str) -> Any:
        return orjson.loads(self.run(*words, "--json"))

    def found(self, *words: str) -> list[int]:
        return [one["msg_id"] for one in self.told("find", TOPIC, *words)["messages"]]

    def send(self, *payloads: bytes) -> None:
        async def sending() -> None:
            async with Producer(
                shield=self.mesh.shield,
                signer=self.mesh.signer,
                certificates=self.mesh.certificates("demo-billing"),
            ) as producer:
                for payload in payloads:
                    assert (await producer.send("discord-bot", "notify-user", payload)).delivered

        asyncio.run(sending())

    def kill(self, messages: int) -> None:
        """Move the oldest waiting messages to the DLQ."""

        async def killing() -> None:
            async with Consumer(
                mailbox=self.mesh.mailbox,
                topic=TOPIC,
                certificates=self.mesh.certificates("demo-bot"),
                max_unsettled=messages,
            ) as consumer:
                for _ in range(messages):
                    await (await anext(consumer)).nack(dead=True, reason=BAD, durable=True)

        asyncio.run(killing())

    def empty(self) -> None:
        """Remove the leftovers of the test before."""

        async def purging() -> None:
            async with QueueClient(
                self.mesh.mailbox,
                certificates=self.mesh.certificates("operator-admin"),
                signer=self.mesh.signer,
            ) as client:
                for state in (MessageState.READY, MessageState.DEAD, MessageState.CANCELED):
                    await (await client.preview_purge(TOPIC, state)).apply()

        asyncio.run(purging())


@pytest.fixture(scope="module")
def installed(tmp_path_factory: pytest.TempPathFactory) -> Iterator[CommandLine]:
    folder: Path = tmp_path_factory.mktemp("queue")
    configured(folder)
    with running(folder) as up:
        cli = CommandLine(up)
        assert "No topics yet" in cli.run("ls")
        with pytest.raises(NotFound, match="There is none yet"):
            cli.run("stats", TOPIC)
        yield cli


@pytest.fixture
def cli(installed: CommandLine) -> Iterator[CommandLine]:
    installed.send(b"one", b"two", b"three", b"[bold]four")
    yield installed
    installed.empty()


def test_numbers_of_topics_for_people_and_programs(cli: CommandLine) -> None:
    topic = only(cli.told("ls"))
    assert (topic["topic"], topic["ready"], topic["dead"]) == (TOPIC, 4, 0)
    assert cli.told("ls", "nobody/") == {"topics": []}
    assert re.search(rf"{TOPIC} +4 +0 +0", cli.run("ls"))
    before = topic["stored_total"]
    cli.send(b"five")
    assert cli.told("stats", TOPIC)["stored_total"] == before + 1
    shown = cli.run("stats", TOPIC)
    assert "ready      5" in shown and "of 1,000,000" in shown


def test_peek_shows_payloads_and_leases_nothing_also_for_a_service_under_its_own_name(
    cli: CommandLine,
) -> None:
    shown = cli.run("peek", "discord-bot", "-n", "2", "--as", "demo-bot")
    assert "one" in shown and "two" in shown and "three" not in shown
    told = cli.told("peek", TOPIC)
    assert [one["payload"] for one in told["messages"]] == ["one", "two", "three", "[bold]four"]
    assert cli.told("stats", TOPIC)["inflight"] == 0
    with pytest.raises(NotAllowed, match="manage"):
        cli.run("cancel", "discord-bot", "--yes", "--as", "demo-bot")


def test_a_dead_message_is_shown_with_its_reason_and_reprocessed_after_a_preview(cli: CommandLine) -> None:
    cli.kill(2)
    shown = cli.run("dlq", "ls", TOPIC)
    assert shown.count("nack-dead") == 2 and "no such [user]�[31m" in shown and "\x1b" not in shown
    told = cli.told("dlq", "ls", TOPIC)
    assert told["dead"] == 2 and {one["last_error"] for one in told["messages"]} == {BAD}
    assert cli.told("dlq", "ls", TOPIC, "--because", "expired")["messages"] == []

    preview = cli.told("dlq", "reprocess", TOPIC, "--because", "nack-dead")
    assert (preview["matched"], preview["applied"], preview["changed"]) == (2, False, 0)
    assert "--yes --at-most 2" in cli.run("dlq", "reprocess", TOPIC)
    assert cli.told("stats", TOPIC)["dead"] == 2, "a preview changes nothing"
    with pytest.raises(Conflict, match="nothing was changed"):
        cli.run("dlq", "reprocess", TOPIC, "--yes", "--at-most", "1")

    first, second = (one["msg_id"] for one in told["messages"])
    assert cli.told("dlq", "reprocess", TOPIC, str(first))["changed"] == 1
    with pytest.raises(NotFound, match="is not in the DLQ"):
        cli.run("dlq", "delete", TOPIC, str(first))
    assert cli.told("dlq", "reprocess", TOPIC, "--yes", "--at-most", "1")["changed"] == 1
    topic = cli.told("stats", TOPIC)
    assert (topic["ready"], topic["dead"]) == (4, 0)
    assert second in cli.found("--state", "ready")


def test_dead_messages_are_deleted_by_id_and_by_filter_and_nothing_else_is(cli: CommandLine) -> None:
    cli.kill(3)
    first, *_ = (one["msg_id"] for one in cli.told("dlq", "ls", TOPIC)["messages"])
    assert cli.run("dlq", "delete", TOPIC, str(first)) == "1 of 1 purged.\n"
    assert cli.run("dlq", "delete", TOPIC, "--source", "demo/nobody", "--yes") == "Nothing matches.\n"
    assert cli.run("dlq", "delete", TOPIC, "--since", "1h", "--yes") == "2 of 2 messages purged.\n"
    assert "Nothing is dead" in cli.run("dlq", "ls", TOPIC)
    assert cli.told("stats", TOPIC)["ready"] == 1


def test_messages_are_canceled_resumed_requeued_and_purged(cli: CommandLine) -> None:
    ids = cli.found()
    assert cli.run("cancel", TOPIC, str(ids[0]), "--reason", "sent twice") == "1 of 1 canceled.\n"
    assert cli.told("find", TOPIC, "--state", "canceled")["messages"][0]["reason"] == "sent twice"
    assert "1 were not in a state for that" in cli.run("resume", TOPIC, str(ids[0]), str(ids[1]))
    assert cli.told("cancel", TOPIC, "--source", "demo/billing", "--yes")["changed"] == 4
    assert "4 messages would be resumed" in cli.run("resume", TOPIC)
    assert cli.told("requeue", TOPIC, "--state", "canceled", "--yes")["changed"] == 4
    assert cli.found("--state", "ready") == ids
    preview = cli.told("purge", TOPIC, "--state", "ready", "--until", "0s")
    assert preview["matched"] == 4 and len(preview["samples"]) == 4
    assert cli.told("purge", TOPIC, "--state", "ready,dead", "--yes")["changed"] == 4
    assert cli.found() == []


def only(told: dict[str, Any]) -> dict[str, Any]:
    """The target's topic; the tenant's telemetry queue may be there too by now."""
    (topic,) = [each for each in told["topics"] if each["topic"] != "demo/snavio.telemetry"]
    return dict(topic)


@pytest.mark.parametrize(
    ("words", "kind", "hint"),
    [
        (("stats", "demo/dicord-bot"), NotFound, "Did you mean demo/discord-bot?"),
        (("peek", "discord-bot"), NotFound, "Did you mean demo/discord-bot?"),
        (("dlq", "ls", "x/y"), NotFound, "There are demo/discord-bot"),
        (("find", TOPIC, "--state", "cancelled"), BadRequest, "Did you mean canceled?"),
        (("find", TOPIC, "--because", "bored"), BadRequest, "There are max-attempts"),
        (("find", TOPIC, "--since", "soon"), BadRequest, "15m, 2h"),
        (("purge", TOPIC), BadRequest, "Say which to purge"),
        (("purge", TOPIC, "--yes"), BadRequest, "Say which to purge"),
        (("cancel", TOPIC, "1", "--since", "1h"), BadRequest, "not both"),
        (("stats", TOPIC, "--as", "nobody"), BadRequest, "No certificate folder"),
        (("stats", "evil/x", "--as", "demo-bot"), NotAllowed, "another tenant"),
    ],
)
def test_mistakes_are_answered_with_what_was_meant(
    cli: CommandLine, words: tuple[str, ...], kind: type[SnavioError], hint: str
) -> None:
    with pytest.raises(kind, match=re.escape(hint)):
        cli.run(*words)


def test_top_tells_rates_and_lives_on_a_terminal_until_ctrl_c(cli: CommandLine) -> None:
    topic = only(cli.told("top", "--rounds", "1", "--interval", "0.2"))
    assert (topic["topic"], topic["ready"], topic["in_per_s"], topic["out_per_s"]) == (TOPIC, 4, 0, 0)
    terminal = Terminal("queue", "top", "--interval", "0.2", folder=cli.folder, columns=100)
    try:
        shown = terminal.until("Ctrl-C ends")
        assert TOPIC in shown and "in/s" in shown and "oldest" in shown
        terminal.press_ctrl_c()
        assert terminal.process.wait(20) == 130
    finally:
        terminal.close()


def test_rates_are_of_what_moved_and_a_restarted_mailbox_counts_anew() -> None:
    def numbers(name: str, stored: int, acked: int) -> TopicStats:
        return TopicStats(name, 0, 0, 0, 0, 0, 1, 0, "durable", {}, stored, acked)

    before = {one.topic: one for one in (numbers("a/a", 100, 50), numbers("a/b", 100, 50))}
    found = rates(before, [numbers("a/a", 300, 60), numbers("a/b", 10, 0), numbers("a/c", 5, 5)], 2.0)
    assert {one.now.topic: (one.in_per_s, one.out_per_s) for one in found} == {
        "a/a": (100.0, 5.0),
        "a/b": (0.0, 0.0),
        "a/c": (0.0, 0.0),
    }


def test_as_a_process_it_ends_with_one_sentence_and_a_code(cli: CommandLine) -> None:
    ran = snavio("queue", "stats", "demo/dicord-bot", "--json", folder=cli.folder)
    assert ran.returncode == 1 and "Traceback" not in ran.stderr
    assert orjson.loads(ran.stdout)["error"]["reason"] == "unknown-topic"


COMMANDS = ("ls", "stats", "peek", "find", "top", "cancel", "resume", "requeue", "purge")
OF_THE_DLQ = ("dlq ls", "dlq reprocess", "dlq delete")


@pytest.mark.parametrize("command", [*COMMANDS, *OF_THE_DLQ])
def test_every_command_teaches_with_examples(command: str) -> None:
    shown = CliRunner().invoke(queue, [*command.split(), "--help"])
    assert (shown.exit_code, f"snavio queue {command}" in shown.stdout) == (0, True)
