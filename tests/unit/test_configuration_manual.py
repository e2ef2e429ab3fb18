"""The manual matches the code: every key is there, with its default."""

import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

from snavio.config import RULES, SECTIONS, default_file, describe, installed, validate_all
from snavio.config.describe import plain, toml_value

ROOT = Path(__file__).resolve().parents[2]
FILE = ROOT / "deploy" / "snavio.toml"
PAGE = ROOT / "docs" / "configuration.md"


def test_the_files_in_the_repository_are_what_would_be_generated() -> None:
    checked = subprocess.run(
        [sys.executable, str(ROOT / "tools" / "generate_configuration.py"), "--check"],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert (checked.returncode, checked.stderr) == (0, "")


def test_the_default_file_as_it_is_sets_nothing() -> None:
    assert all(section == {} for section in tomllib.loads(FILE.read_text("utf-8")).values())


def test_uncommenting_everything_gives_the_defaults(tmp_path: Path) -> None:
    text = re.sub(r"^# ", "", FILE.read_text("utf-8"), flags=re.MULTILINE)
    config = tmp_path / "snavio.toml"
    config.write_text(text, "utf-8")
    document = tomllib.loads(text)
    assert {name: list(keys) for name, keys in document.items()} == {
        name: list(kind.model_fields) for name, kind in installed().items()
    }
    assert validate_all(config, installed(), environment={}) == {
        name: kind() for name, kind in installed().items()
    }


def test_every_section_is_installed_in_the_order_of_the_manual() -> None:
    assert tuple(installed()) == SECTIONS
    assert tuple(tomllib.loads(FILE.read_text("utf-8"))) == SECTIONS
    assert re.findall(r"^## \[(\w+)\]$", PAGE.read_text("utf-8"), re.MULTILINE) == list(SECTIONS)


@pytest.mark.parametrize("section", describe(installed()), ids=lambda section: section.name)
def test_every_key_is_described_in_a_sentence(section: object) -> None:
    (found,) = (each for each in describe(installed()) if each == section)
    assert found.description.endswith(".")
    for key in found.keys:
        assert re.fullmatch(r"[A-Z].*\.", key.description, re.DOTALL), key.key
        assert f"| `{key.key}` |" in PAGE.read_text("utf-8")


def test_every_number_has_bounds_at_both_ends() -> None:
    # Without an upper one, a slip of the finger reaches the native code as an overflow.
    bare = [
        f"{section.name}.{key.key}"
        for section in describe(installed())
        for key in section.keys
        if key.kind in (int, float) and not re.search(r"to|at most", key.bounds)
    ]
    assert bare == []


def test_numbers_are_explained_in_larger_units() -> None:
    keys = {f"{key.section}.{key.key}": key for section in describe(installed()) for key in section.keys}
    assert keys["mailbox.max_visibility_ms"].in_words(43_200_000) == "12 h"
    assert keys["mailbox.max_store_bytes"].in_words(64 << 30) == "64 GiB"
    assert keys["signer.overlap_s"].in_words(604_800.0) == "7 d"
    assert keys["shield.nonce_capacity"].in_words(60_000) == ""
    assert keys["shield.window_ms"].variable == "SNAVIO_SHIELD__WINDOW_MS"


@pytest.mark.parametrize(
    "value", [True, 0, 9999, 10_000, -12_345, 2.5, 604_800.0, "", 'a "b" \\ \n \x7f é', "x"]
)
def test_a_value_reads_back_as_it_was_written(value: bool | int | float | str) -> None:
    assert tomllib.loads(f"a = {toml_value(value)}") == {"a": value}
    assert plain(value) == value


def test_every_danger_is_in_the_page_and_beside_its_second_word() -> None:
    text = " ".join(default_file(installed()).replace("\n## ", " ").split())
    for rule in RULES:
        assert rule.danger in PAGE.read_text("utf-8")
        assert f"The danger: {rule.danger}." in text
