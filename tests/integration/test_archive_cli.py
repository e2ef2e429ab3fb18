"""`snavio archive` on good and damaged archives; every mistake is one sentence."""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import json
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console
from typer.testing import CliRunner

from snavio.cli.app import app
from snavio.cli.archive import result_table
from snavio.cli.exits import ExitCode, report
from snavio.cli.installation import MeshOptions
from snavio.cli.render import show_blocks
from snavio.errors import BadRequest, SnavioError
from snavio.launch.processes import MeshProcesses
from snavio.signed.archive_manifest import ArchiveManifest, EventRange, FileEntry, folder_of
from snavio.telemetry import archive_query
from snavio.telemetry.archive_inspection import SETTLING_NS, ArchiveFinding, check_file, hours, lasting
from snavio.telemetry.archive_query import QueryResult, ask
from tests.support.telemetry import NOW, Inside, arrival, block, inside, verifying_keys

TEN = block([1] * 8 + [64, 38])


async def archived(relay: Inside) -> Path:
    for number in range(3):
        await relay.intake.take(arrival(TEN, first_seq=1 + 10 * number))
        await relay.exporter.export_once()
    return relay.archive_folder / folder_of(NOW)


def run(*arguments: str, folder: Path) -> str:
    # No mesh runs here, so there is nobody to ask for keys.
    offline = ["--unverified"] if arguments[0] == "query" else []
    done = CliRunner().invoke(
        app, ["archive", *arguments, *offline, "--dir", str(folder)], catch_exceptions=False
    )
    assert done.exit_code == 0, done.output
    return done.stdout


async def test_ls_tells_what_is_there(tmp_path: Path) -> None:
    async with inside(tmp_path) as relay:
        await archived(relay)
        told = json.loads(run("ls", "--json", folder=relay.archive_folder))
        (hour,) = told["hours"]
        assert (told["events"], hour["files"], hour["events"], hour["instances"]) == (30, 3, 30, ["fast-0"])
        assert hour["hour"] == "2026-11-16 02:00"
        assert "30 events" in run("ls", folder=relay.archive_folder)


def test_an_empty_archive_is_nothing_bad(tmp_path: Path) -> None:
    assert "empty" in run("ls", folder=tmp_path)
    told = json.loads(run("query", "SELECT count(*) AS n FROM events", "--json", folder=tmp_path))
    assert told["rows"] == [{"n": 0}]


async def test_a_query_of_a_range_hashes_only_what_it_reads(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    hashed: list[str] = []

    def check(path: Path, file: Any) -> Any:
        hashed.append(path.name)
        return check_file(path, file)

    monkeypatch.setattr(archive_query, "check_file", check)
    async with inside(tmp_path) as relay:
        await archived(relay)
        keys = await verifying_keys()
        found = [
            (row[0], row[1])
            for row in ask(
                relay.archive_folder, 'SELECT epoch_us("at") * 1000, seq FROM events ORDER BY 1', keys=keys
            ).rows
        ]
        everything = len(hashed)
        assert everything > 1
        first, last = found[0][0], found[-1][0]

        def counted(since: int | None, until: int | None) -> int:
            hashed.clear()
            question = "SELECT count(*) FROM events"
            found = ask(relay.archive_folder, question, keys=keys, since_unix_ns=since, until_unix_ns=until)
            return int(found.rows[0][0])

        assert counted(None, None) == len(found)
        assert (counted(last + 1000, None), hashed) == (0, [])
        assert (counted(None, first), hashed) == (0, [])
        assert counted(first, last) == sum(first <= at < last for at, _ in found)
        assert counted(last, last + 1) == sum(at == last for at, _ in found)


async def test_query_answers_in_lines_and_in_json(tmp_path: Path) -> None:
    question = "SELECT event, sum(count)::INT AS n FROM events GROUP BY 1 ORDER BY 2 DESC, 1"
    async with inside(tmp_path) as relay:
        await archived(relay)
        told = json.loads(run("query", question, "--json", folder=relay.archive_folder))
        assert [(row["event"], row["n"]) for row in told["rows"]] == [
            ("snavio.command.delivered", 24),
            ("snavio.command.failed", 3),
            ("snavio.command.invalid", 3),
        ]
        assert "snavio.command.delivered\t24" in run("query", question, folder=relay.archive_folder)
        ids = 'SELECT command_id, "at", affected_targets FROM events WHERE seq = 1'
        told = json.loads(run("query", ids, "--json", folder=relay.archive_folder))
        assert told["rows"][0]["command_id"] == "00000000-0000-0000-0000-000000000001"


@pytest.mark.parametrize(
    "question",
    [
        "DROP VIEW events",
        "COPY (SELECT 1) TO '{folder}/out.csv'",
        "SELECT 1; SELECT 2",
        "ATTACH 'x.db'",
        "INSTALL httpfs",
        "SET enable_external_access = true",
        "CREATE TABLE t AS SELECT 1",
        "SELECT * FROM read_csv('/etc/passwd')",
        "SELECT nothing FROM events",
        "SELECT",
        "",
        "what?",
        "SELECT '\udcff'",
        "SELECT strptime('x', '%Y')",
        "SELECT regexp_matches('a', '(')",
        "SELECT json('{{')",
        "SELECT error('boo')",
        "SELECT $1",
    ],
)
async def test_a_question_only_reads_and_a_bad_one_is_one_sentence(
    tmp_path: Path, question: str, capsys: pytest.CaptureFixture[str]
) -> None:
    async with inside(tmp_path) as relay:
        folder = await archived(relay)
        before = sorted(folder.iterdir())
        asked = ["archive", "query", question.format(folder=folder), "--dir", str(relay.archive_folder)]
        asked.append("--unverified")
        with pytest.raises(SnavioError) as refused:
            CliRunner().invoke(app, asked, catch_exceptions=False)
        assert isinstance(refused.value, BadRequest)
        assert report(refused.value, as_json=False) == 2
        assert capsys.readouterr().err.count("\n") == 1
        assert sorted(folder.iterdir()) == before


@pytest.mark.parametrize(
    ("question", "value"),
    [
        ("SELECT 99999999999999999999999::HUGEINT AS a", "99999999999999999999999"),
        ("SELECT [1, 99999999999999999999999::HUGEINT] AS a", [1, "99999999999999999999999"]),
        ("SELECT MAP {1: 'x'} AS a", {"1": "x"}),
        ("SELECT {'b': '\\x01'::BLOB} AS a", {"b": "01"}),
        ("SELECT 'NaN'::DOUBLE AS a", None),
    ],
)
def test_whatever_duckdb_answers_is_json(tmp_path: Path, question: str, value: object) -> None:
    told = json.loads(run("query", question, "--json", folder=tmp_path))
    assert told["rows"] == [{"a": value}]


async def test_only_what_was_signed_counts_where_somebody_knows_the_keys(tmp_path: Path) -> None:
    count = "SELECT count(*) FROM events"
    async with inside(tmp_path) as relay:
        folder, keys = await archived(relay), await verifying_keys()
        assert ask(relay.archive_folder, count, keys=keys).rows == ((30,),)
        stretch = EventRange("fast-0", 7, 31, 40)
        contents = (folder / "fast-0-7-1-10.parquet").read_bytes()
        (folder / stretch.file_name).write_bytes(contents)
        listed = FileEntry(stretch, NOW, NOW, len(contents), hashlib.sha256(contents).hexdigest())
        forged = ArchiveManifest(98, NOW, (listed,), key_id="platform-1", signature=bytes(64))
        (folder / forged.file_name).write_bytes(forged.encoded())
        answer = ask(relay.archive_folder, count, keys=keys)
        assert (answer.rows, [each.problem for each in answer.left_out]) == (((30,),), ["bad-signature"])
        tamper(folder)
        answer = ask(relay.archive_folder, count, keys=keys)
        assert (answer.rows, answer.left_out[-1].problem) == (((20,),), "tampered")
        assert ask(relay.archive_folder, count, keys=[]).rows == ((0,),)


async def test_a_file_that_cannot_be_read_is_left_out_and_named(tmp_path: Path) -> None:
    async with inside(tmp_path) as relay:
        truncate(await archived(relay))
        asked = ["archive", "query", "SELECT count(*) AS n FROM events", "--json"]
        asked += ["--dir", str(relay.archive_folder), "--unverified"]
        done = CliRunner().invoke(app, asked, catch_exceptions=False)
        assert json.loads(done.stdout)["rows"] == [{"n": 20}]
        assert "left out, truncated: telemetry/" in done.stderr
        assert done.stderr.count("\n") == 1


@pytest.mark.parametrize("installed", [True, False], ids=["a mesh that is down", "no mesh"])
async def test_query_without_signer_counts_nothing_and_fails(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], installed: bool
) -> None:
    async with inside(tmp_path / "relay") as relay:
        unsign(await archived(relay))
        state = tmp_path / "installation"
        if installed:
            await asyncio.to_thread(MeshProcesses.temporary(state).prepare)
        asked = ["archive", "query", "SELECT count(*) FROM events", "--dir", str(relay.archive_folder)]
        asked += ["--config", str(state / "snavio.toml")] if installed else ["--state-dir", str(state)]
        with pytest.raises(SnavioError) as refused:
            await asyncio.to_thread(CliRunner().invoke, app, asked, catch_exceptions=False)
        assert report(refused.value, as_json=False) in (ExitCode.UNREACHABLE, ExitCode.STATE)
        told = capsys.readouterr()
        assert told.out == ""
        # Not seen by the runner that was left by an exception; the sentence itself is.
        assert told.err.startswith("snavio: ")


async def test_a_question_of_a_running_mesh_is_answered_with_what_its_keys_vouch_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def known(*_: object) -> object:
        return await verifying_keys()

    monkeypatch.setattr(MeshOptions, "attach", lambda _: None)
    monkeypatch.setattr("snavio.cli.archive._keys", known)
    async with inside(tmp_path) as relay:
        unsign(await archived(relay))
        asked = ["archive", "query", "SELECT count(*) FROM events", "--dir", str(relay.archive_folder)]
        done = await asyncio.to_thread(CliRunner().invoke, app, asked, catch_exceptions=False)
        assert done.stdout.splitlines() == ["count_star()", "20"]
        assert "left out, bad-signature" in done.stderr
        assert "not verified" not in done.stderr


@pytest.mark.parametrize("wide", [True, False], ids=["terminal", "pipe"])
def test_a_cell_is_shown_as_it_is_and_moves_no_cursor(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], wide: bool
) -> None:
    monkeypatch.setattr("snavio.cli.render.console", lambda: Console(force_terminal=True, width=120))
    monkeypatch.setattr("snavio.cli.render.fancy", lambda _: wide)
    answer = QueryResult(("[b]x",), (("[/foo] [red]gone[/red]",), ("a\x1b[31mb\rc\u202ed",)), more=False)
    show_blocks([result_table(answer)])
    told = capsys.readouterr().out
    assert all(text in told for text in ("[b]x", "[/foo] [red]gone[/red]", "a�[31mb�c�d"))
    assert "\x1b[31m" not in told


def test_a_question_writes_nothing_where_it_is_asked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """DuckDB would spill to the working folder, and let a query read there."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "archive").mkdir()
    monkeypatch.setattr(archive_query, "MEMORY", "8MB")
    sort = "SELECT max(r) FROM (SELECT r, row_number() OVER (ORDER BY hash(r)) FROM range(400000) t(r))"
    with contextlib.suppress(BadRequest):  # out of memory is an answer, too
        ask(tmp_path / "archive", sort)
    (allowed,) = ask(tmp_path / "archive", "SELECT current_setting('allowed_directories')").rows[0]
    assert not any(str(tmp_path) in folder and "archive" not in folder for folder in allowed)
    assert [path.name for path in tmp_path.iterdir()] == ["archive"]


def test_two_columns_of_one_name_are_not_told_as_one(tmp_path: Path) -> None:
    with pytest.raises(SnavioError, match="same name"):
        run("query", "SELECT 1 AS a, 2 AS a", "--json", folder=tmp_path)
    assert "a\ta" in run("query", "SELECT 1 AS a, 2 AS a", folder=tmp_path)


@pytest.mark.parametrize("command", [["ls"], ["query", "SELECT 1"]])
def test_a_folder_that_is_no_archive_is_named(tmp_path: Path, command: list[str]) -> None:
    (tmp_path / "notes.txt").write_text("x")
    for place in (tmp_path / "nowhere", tmp_path / "notes.txt", tmp_path):
        with pytest.raises(SnavioError, match="is not an archive"):
            run(*command, folder=place)


def truncate(folder: Path) -> None:
    path = folder / "fast-0-7-1-10.parquet"
    path.write_bytes(path.read_bytes()[:-7])


def tamper(folder: Path) -> None:
    path = folder / "fast-0-7-1-10.parquet"
    body = bytearray(path.read_bytes())
    body[100] ^= 1
    path.write_bytes(body)


def unsign(folder: Path) -> None:
    path = next(iter(sorted(folder.glob("_manifest-*"))))
    path.write_bytes(path.read_bytes().replace(b'"size":', b'"size":1'))


def garble(folder: Path) -> None:
    next(iter(sorted(folder.glob("_manifest-*")))).write_bytes(b'{"type":')


def take_away(folder: Path) -> None:
    """Remove a file in the middle, and the manifest that would miss it."""
    (folder / "fast-0-7-11-20.parquet").unlink()
    next(path for path in folder.glob("_manifest-*") if b"fast-0-7-11-20" in path.read_bytes()).unlink()


@pytest.mark.parametrize(
    ("damage", "problems"),
    [
        (truncate, ["truncated"]),
        (tamper, ["tampered"]),
        (lambda folder: (folder / "fast-0-7-1-10.parquet").unlink(), ["missing"]),
        (take_away, ["hole"]),
        (unsign, ["bad-signature", "unsigned"]),
        (garble, ["bad-manifest", "unsigned"]),
        (lambda folder: (folder / "fast-0-9-1-1.parquet").write_bytes(b"PAR1"), ["unsigned"]),
        (
            lambda folder: (folder / ".fast-0-7-31-40.parquet.0123456789abcdef.new").write_bytes(b"P"),
            ["half-written"],
        ),
        (lambda folder: (folder / "notes.txt").write_text("x"), []),
    ],
    ids=[
        "truncated",
        "tampered",
        "missing",
        "taken away",
        "bad signature",
        "garbled manifest",
        "unsigned",
        "half-written",
        "notes",
    ],
)
async def test_damage_is_reported_and_nothing_crashes(
    tmp_path: Path, damage: Callable[[Path], object], problems: list[str]
) -> None:
    async with inside(tmp_path) as relay:
        folder = await archived(relay)
        damage(folder)
        assert sorted(finding.problem for finding in await relay.findings()) == sorted(problems)
        # The others still answer.
        assert len(relay.rows("seq > 20")) == 10
        assert len(list(hours(relay.archive_folder))) == 1


async def test_what_relay_is_about_to_finish_is_no_damage_until_it_has_had_a_minute(tmp_path: Path) -> None:
    async with inside(tmp_path) as relay:
        folder = await archived(relay)
        (folder / "fast-0-9-1-1.parquet").write_bytes(b"PAR1")
        (folder / ".fast-0-7-31-40.parquet.0123456789abcdef.new").write_bytes(b"P")
        found = await relay.findings()
        now = time.time_ns()
        assert lasting(relay.archive_folder, found, now_unix_ns=now) == []
        assert lasting(relay.archive_folder, found, now_unix_ns=now + SETTLING_NS) == found
        # Replaced by a compaction between the look at the manifests and the look at the files.
        path = f"{found[0].path.rpartition('/')[0]}/fast-0-7-1-10.parquet"
        gone = [
            ArchiveFinding(path, "missing", ""),
            ArchiveFinding(path.replace("-1-10", "-0-10"), "missing", ""),
        ]
        assert lasting(relay.archive_folder, gone, now_unix_ns=now) == gone[:1]


async def test_an_overlap_is_found(tmp_path: Path) -> None:
    async with inside(tmp_path) as relay:
        folder = await archived(relay)
        other = folder.with_name("hour=03")
        other.mkdir()
        for path in list(folder.iterdir()):
            (other / path.name).write_bytes(path.read_bytes())
        assert {finding.problem for finding in await relay.findings()} == {"overlap"}
