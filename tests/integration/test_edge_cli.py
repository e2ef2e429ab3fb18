"""`snavio edge` as a user runs it: exit codes, output for people and programs, and no traceback for a mistake."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import orjson
import pytest

from snavio.edge.lexer import MOST_BYTES

GOOD = "pull_api { auth token env:T }\n/a { pull { path /p } }\n"


def edge(folder: Path, *words: str, env: dict[str, str] | None = None) -> subprocess.CompletedProcess[str]:
    ran = subprocess.run(
        [sys.executable, "-m", "snavio.cli", "edge", *words],
        cwd=folder,
        env={**os.environ, **(env or {})},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert "Traceback" not in ran.stderr + ran.stdout
    return ran


def written(folder: Path, text: str | bytes, name: str = "Hookaidofile") -> Path:
    path = folder / name
    path.write_bytes(text.encode() if isinstance(text, str) else text)
    return path


@pytest.mark.parametrize("provider", ["github", "stripe", "gitlab", "generic"])
def test_a_file_is_begun_checked_and_formatted(tmp_path: Path, provider: str) -> None:
    assert edge(tmp_path, "init", provider).returncode == 0
    begun = (tmp_path / "Hookaidofile").read_text("utf-8")
    checked = edge(tmp_path, "config", "validate")
    assert (checked.returncode, "can be used: 1 route." in checked.stdout) == (0, True)
    assert edge(tmp_path, "config", "fmt").stdout == begun
    again = edge(tmp_path, "init", provider)
    assert (again.returncode, again.stderr.count("\n")) == (1, 1)
    assert (tmp_path / "Hookaidofile").read_text("utf-8") == begun
    assert edge(tmp_path, "init", provider, "--output", "-").stdout == begun


def test_an_unknown_provider_is_told_which_there_are(tmp_path: Path) -> None:
    ran = edge(tmp_path, "init", "githb")
    assert (ran.returncode, "Did you mean `github`?" in ran.stderr) == (2, True)
    assert list(tmp_path.iterdir()) == []


def test_validate_prints_every_mistake_for_people_and_for_programs(tmp_path: Path) -> None:
    written(tmp_path, "ingress {\n  lisen :1\n}\n/a {\n  max_body 1x\n  deliver https://x.example {}\n}\n")
    people = edge(tmp_path, "config", "validate")
    assert people.returncode == 1
    assert people.stdout.splitlines()[:2] == [
        "Hookaidofile:2:3: There is no directive `lisen` in `ingress`. Did you mean `listen`?",
        "Hookaidofile:5:12: `1x` is no size such as `512kb` or `2mb`.",
    ]
    assert "Hookaidofile has 2 mistakes." in people.stdout
    programs = edge(tmp_path, "config", "validate", "--config", "./Hookaidofile", "--format", "json")
    found = orjson.loads(programs.stdout)
    assert (programs.returncode, found["ok"], found["fingerprint"]) == (1, False, None)
    assert found["errors"][0] == {
        "line": 2,
        "column": 3,
        "reason": "unknown-directive",
        "message": "There is no directive `lisen` in `ingress`.",
        "suggestion": "listen",
    }


def test_validate_tells_programs_what_a_file_holds(tmp_path: Path) -> None:
    written(tmp_path, GOOD + "outbound /o { deliver https://x.example {} }\n")
    ran = edge(tmp_path, "config", "validate", "--format", "json")
    found = orjson.loads(ran.stdout)
    assert (ran.returncode, found["ok"], found["errors"], found["routes"]) == (0, True, [], 2)
    assert [each["part"] for each in found["not_running"]] == ["delivery"]
    assert found["fingerprint"].startswith("sha256:")


def test_placeholders_come_from_the_environment_unless_the_file_is_not_trusted(tmp_path: Path) -> None:
    written(tmp_path, "tenant {env.EDGE_TENANT}\n/a { deliver https://{file.host}/ {} }\n")
    written(tmp_path, "ci.example\n", "host")
    os.mkfifo(tmp_path / "pipe")
    assert edge(tmp_path, "config", "validate", env={"EDGE_TENANT": "acme"}).returncode == 0
    missing = edge(tmp_path, "config", "validate")
    assert (missing.returncode, "`EDGE_TENANT` is not set" in missing.stdout) == (1, True)
    untrusted = edge(tmp_path, "config", "validate", "--untrusted")
    assert (untrusted.returncode, "not expanded" in untrusted.stdout) == (0, True)
    # A pipe would be read for ever.
    written(tmp_path, "tenant {file.pipe}\n")
    assert edge(tmp_path, "config", "validate").returncode == 1
    written(tmp_path, "tenant {file./dev/zero}\n")
    assert edge(tmp_path, "config", "validate").returncode == 1


def test_fmt_prints_and_writes_in_place(tmp_path: Path) -> None:
    path = written(tmp_path, "/a{deliver https://x.example {}}#end")
    path.chmod(0o640)
    form = "/a {\n  deliver https://x.example {}\n} #end\n"
    assert edge(tmp_path, "config", "fmt").stdout == form
    assert path.read_text("utf-8") != form
    assert (edge(tmp_path, "config", "fmt", "--write").returncode, path.read_text("utf-8")) == (0, form)
    assert path.stat().st_mode & 0o777 == 0o640
    assert [each.name for each in tmp_path.iterdir()] == ["Hookaidofile"]


def test_fmt_leaves_a_file_with_mistakes_alone(tmp_path: Path) -> None:
    path = written(tmp_path, "ingres { }\n")
    ran = edge(tmp_path, "config", "fmt", "--write")
    assert (ran.returncode, ran.stdout) == (1, "")
    assert "Hookaidofile:1:1: There is no directive `ingres`" in ran.stderr
    assert path.read_text("utf-8") == "ingres { }\n"


def test_diff_tells_by_its_exit_code_whether_files_differ(tmp_path: Path) -> None:
    written(tmp_path, GOOD, "one")
    written(tmp_path, GOOD.replace("/p", "/q"), "two")
    written(tmp_path, "}", "bad")
    same = edge(tmp_path, "config", "diff", "one", "one")
    assert (same.returncode, same.stdout) == (0, "Nothing differs.\n")
    ran = edge(tmp_path, "config", "diff", "one", "two")
    assert (ran.returncode, ran.stdout) == (1, "~ route /a › pull › path: /p → /q  [live]\n")
    programs = edge(tmp_path, "config", "diff", "one", "two", "--format", "json")
    assert orjson.loads(programs.stdout)["changes"] == [
        {"change": "changed", "path": ["route /a", "pull", "path"], "before": "/p", "after": "/q"}
        | {"reload": "live", "line": 2}
    ]
    for other in ("bad", "none"):
        assert edge(tmp_path, "config", "diff", "one", other).returncode == 2


@pytest.mark.parametrize(
    ("data", "said"),
    [
        (None, "No such file"),
        (b"\xff\xfe", "not UTF-8"),
        (b"#" * (MOST_BYTES + 1), "at most 4,194,304 are read"),
        (b"\x1b[31m { }\n", "invisible character U+001B"),
    ],
    ids=["missing", "binary", "large", "escape"],
)
@pytest.mark.parametrize("command", ["validate", "fmt"])
def test_a_file_that_cannot_be_used_is_one_sentence(
    tmp_path: Path, command: str, data: bytes | None, said: str
) -> None:
    if data is not None:
        written(tmp_path, data)
    ran = edge(tmp_path, "config", command)
    assert (ran.returncode, said in ran.stdout + ran.stderr) == (1, True)
    assert "\x1b" not in ran.stdout + ran.stderr
