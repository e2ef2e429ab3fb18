"""`snavio up` with real processes: start, restart of a dead service, stop, and plain messages about obstacles."""

from __future__ import annotations

import os
import signal
import socket
from collections.abc import Iterator
from pathlib import Path

import orjson
import pytest

from snavio.launch.processes import SERVICES
from snavio.launch.state import FORMAT, StateFolder
from tests.support.terminal import Terminal, Up, alive, all_end, children, configured, running, snavio, told


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The installation that the tests of this module share, with a space in its path."""
    made = tmp_path_factory.mktemp("an installation")
    configured(made)
    return made


@pytest.fixture(scope="module")
def up(folder: Path) -> Iterator[Up]:
    with running(folder) as started:
        yield started


def test_every_service_serves_and_json_says_so(up: Up) -> None:
    reading = told("status", folder=up.folder)
    assert reading["healthy"] is True
    assert [service["name"] for service in reading["services"]] == list(SERVICES)
    assert all(service["pid"] and service["resident_bytes"] for service in reading["services"])


def test_the_demo_tenant_sends_and_receives(up: Up) -> None:
    sent = told("send", "discord-bot", "notify-user", "--payload", "héllo", folder=up.folder)
    assert sent["outcomes"] == {"delivered": 1}
    received = told("recv", "discord-bot", "--max", "1", folder=up.folder)
    assert received["command_id"] == sent["commands"][0]["command_id"]
    assert (received["source"], received["payload"]) == ("demo/billing", "héllo")


def test_what_is_only_looked_at_comes_again(up: Up) -> None:
    sent = snavio("send", "discord-bot", "notify-user", "--stdin", folder=up.folder, given=b"look")
    assert sent.stdout.startswith("delivered")
    looked = told("recv", "discord-bot", "--max", "1", "--no-ack", folder=up.folder)
    taken = told("recv", "discord-bot", "--max", "1", folder=up.folder)
    assert (looked["attempt"], taken["attempt"]) == (1, 2)
    assert looked["command_id"] == taken["command_id"]


def test_a_refusal_is_told_with_its_reason_and_exit_code_1(up: Up) -> None:
    refused = told("send", "discord-bot", "notify-user", "--as", "bot", folder=up.folder, code=1)
    assert refused["outcomes"] == {"acl-deny": 1}


def test_many_commands_go_as_batches(up: Up) -> None:
    sent = told("send", "discord-bot", "notify-user", "-p", "x", "--count", "1500", folder=up.folder)
    assert sent["outcomes"] == {"delivered": 1500}
    received = snavio("recv", "discord-bot", "--max", "1500", "--json", folder=up.folder)
    assert len(received.stdout.splitlines()) == 1500


def test_a_second_up_on_the_same_folder_says_that_one_runs(up: Up) -> None:
    second = snavio("up", folder=up.folder)
    assert second.returncode == 4
    assert f"A mesh runs on {up.folder / '.snavio'} already (process {up.process.pid})" in second.stderr
    assert len(second.stderr.splitlines()) == 1


def test_another_mesh_on_the_same_ports_says_which_is_taken(up: Up) -> None:
    second = snavio("up", "--state-dir", "elsewhere", folder=up.folder)
    assert second.returncode == 2
    assert "is taken by another program, and signer needs it" in second.stderr


def test_a_killed_service_is_restarted_and_said_so(up: Up) -> None:
    before = up.services()["mailbox"]
    os.kill(before, signal.SIGKILL)
    assert "mailbox ended unexpectedly (SIGKILL)" in up.until("note", "ended")["message"]
    assert "mailbox serves again" in up.until("note", "again")["message"]
    assert up.services()["mailbox"] != before
    assert told("send", "discord-bot", "notify-user", folder=up.folder)["outcomes"] == {"delivered": 1}
    told("recv", "discord-bot", "--max", "1", folder=up.folder)


def test_status_is_a_table_in_a_wide_terminal_and_lines_in_a_narrow_one(up: Up) -> None:
    for columns, table in ((100, True), (60, False)):
        terminal = Terminal("status", folder=up.folder, columns=columns)
        try:
            shown = terminal.until("disk commit")
        finally:
            terminal.close()
        assert ("───" in shown) is table
        # An error is one line, however narrow the terminal: on a busy machine a service may not answer in time.
        rows = [row for row in shown.splitlines() if not row.startswith("snavio: ")]
        assert [row for row in rows if len(row) > columns] == []


def test_the_doctor_looks_at_everything_and_finds_a_running_mesh_well(up: Up) -> None:
    found = told("doctor", folder=up.folder)
    assert found["good"] is True, [finding for finding in found["findings"] if not finding["good"]]
    looked_at = " ".join(finding["name"] for finding in found["findings"]).lower()
    assert all(word in looked_at for word in ("native", "disk", "certificate", "clock"))


def test_bench_measures_the_running_mesh(up: Up) -> None:
    figures = told("bench", folder=up.folder)
    assert figures["refused"] == 0
    assert figures["single_sends_per_s"] > 0
    assert figures["batch_commands_per_s"] > 0
    assert figures["received_per_s"] > 0
    assert 0 < figures["alone_p50_us"] <= figures["alone_p99_us"]


def test_follow_shows_what_comes_after_it_began_and_ctrl_c_ends_it(up: Up) -> None:
    terminal = Terminal("recv", "discord-bot", "--follow", folder=up.folder, columns=100)
    try:
        told("send", "discord-bot", "notify-user", "-p", "sent while somebody follows", folder=up.folder)
        terminal.until("sent while somebody follows")
        terminal.press_ctrl_c()
        assert terminal.process.wait(20) in (0, 130)
    finally:
        terminal.close()


def test_watch_shows_the_mesh_again_and_again_until_ctrl_c(up: Up) -> None:
    terminal = Terminal("status", "--watch", "--json", "--interval", "0.2", folder=up.folder, columns=100)
    try:
        terminal.until("healthy")
        told("send", "discord-bot", "notify-user", "-p", "seen by the watcher", folder=up.folder)
        terminal.until('"ready":1')
        terminal.press_ctrl_c()
        assert terminal.process.wait(20) in (0, 130)
    finally:
        terminal.close()
    told("recv", "discord-bot", "--max", "1", folder=up.folder)


def test_the_mesh_ends_and_comes_back_with_what_it_stored(up: Up) -> None:
    # Ends the mesh of this module: whatever needs it stands above.
    told("send", "discord-bot", "notify-user", "-p", "keep me", folder=up.folder)
    services = up.services()
    assert told("down", folder=up.folder)["stopped"] is True
    assert up.process.wait(10) == 0
    assert not any(alive(pid) for pid in services.values())
    assert told("down", folder=up.folder) == {"stopped": False, "running": False}
    with running(up.folder) as again:
        assert told("recv", "discord-bot", "--max", "1", folder=up.folder)["payload"] == "keep me"
        services = again.services()
        again.end(signal.SIGKILL)
        assert all_end(services), "kill -9 of the parent left a process behind"


def test_the_live_screen_shows_the_mesh_and_ctrl_c_ends_it(folder: Path, up: Up) -> None:
    assert up.process.poll() is not None
    terminal = Terminal("up", folder=folder, columns=100)
    try:
        shown = terminal.until("Ctrl-C stops everything")
        assert all(word in shown for word in ("Snavio is up", "mailbox", "commands/s", "send discord-bot"))
        services = children(terminal.process.pid)
        assert len(services) == len(SERVICES)
        terminal.press_ctrl_c()
        terminal.until("stopped")
        assert terminal.process.wait(20) == 0
        assert not any(alive(pid) for pid in services)
        assert StateFolder(folder / ".snavio").running() is None
    finally:
        terminal.close()


def test_an_unwritable_folder_is_one_sentence(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("not a folder")
    ran = snavio("up", "--state-dir", "file/state", folder=tmp_path)
    assert ran.returncode == 4
    assert "cannot be written (Not a directory)" in ran.stderr
    assert len(ran.stderr.splitlines()) == 1


def test_a_state_folder_of_a_newer_version_is_one_sentence(tmp_path: Path) -> None:
    state = tmp_path / ".snavio"
    state.mkdir()
    (state / "state.json").write_bytes(orjson.dumps({"format": FORMAT + 1}))
    ran = snavio("up", folder=tmp_path)
    assert ran.returncode == 4
    assert "was made by a newer Snavio" in ran.stderr
    (state / "state.json").write_bytes(b"{")
    assert "cannot be read (it is damaged)" in snavio("up", folder=tmp_path).stderr


def test_a_taken_port_is_one_sentence(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as holder:
        port = holder.getsockname()[1]
        ran = snavio("up", folder=tmp_path, SNAVIO_MESH__SIGNER=f"127.0.0.1:{port}")
    assert ran.returncode == 2
    assert f"Port {port} is taken by another program, and signer needs it" in ran.stderr
    assert len(ran.stderr.splitlines()) == 1
