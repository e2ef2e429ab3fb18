"""Random mutations of valid Hookaidofiles: no crash, no hang, and a position inside the file in every mistake."""

from __future__ import annotations

import os
import random
import re
import time

import pytest

from snavio.edge.compiling import compile_text
from snavio.edge.findings import MOST_FINDINGS, FindingLog
from snavio.edge.formatting import formatted
from snavio.edge.lexer import MOST_BYTES, MOST_DEPTH
from snavio.edge.parsing import parse
from snavio.edge.placeholders import TextTrust
from tests.support.hookaidofiles import ENVIRONMENT, EXAMPLES, compiled

MUTATIONS = 10_000 if os.environ.get("SNAVIO_FULL") else 500
CHUNKS = 10
PIECES = [
    *(
        b"{",
        b"}",
        b";",
        b"#",
        b'"',
        b"\\",
        b"\n",
        b"\r\n",
        b"\t",
        b" ",
        b"\x00",
        b"\xff",
        b"\xc2\xa0",
        b"@",
        b"/",
    ),
    *(
        b"{vars.A}",
        b"{$X:",
        b"{env.",
        b"{file./etc/passwd}",
        b"{vars.BASE_URL}",
        b"off",
        b"0",
        b"-1",
        b"99999999999999999999",
    ),
    *(
        b"route",
        b"deliver",
        b"exec",
        b"secret_ref",
        b"outbound",
        b"internal /x {",
        b"match @",
        b"auth",
        b"sign hmac",
    ),
]
SECONDS_CPU = 20
"""A hang, and not a slow machine: a mutation takes a few milliseconds."""


def mutated(data: bytes, chance: random.Random) -> bytes:
    found = bytearray(data)
    for _ in range(chance.randint(1, 4)):
        at, other = chance.randrange(len(found) + 1), chance.randrange(len(found) + 1)
        low, high = min(at, other), min(max(at, other), min(at, other) + 80)
        match chance.randrange(6):
            case 0:
                del found[low:high]
            case 1:
                found[at:at] = found[low:high]
            case 2:
                found[at:at] = chance.choice(PIECES)
            case 3 if at < len(found):
                found[at] = chance.randrange(256)
            case 4:
                found[low:high] = chance.choice(PIECES)
            case 5:
                words = bytes(found).split(b" ")
                chance.shuffle(words[: len(words) // 2])
                place = chance.randrange(len(words))
                words[place], words[-1] = words[-1], words[place]
                found = bytearray(b" ".join(words))
    return bytes(found)


@pytest.mark.parametrize("chunk", range(CHUNKS))
def test_a_mutated_file_is_judged(chunk: int) -> None:
    chance = random.Random(chunk)
    names = sorted(EXAMPLES)
    judged = 0
    for number in range(MUTATIONS // CHUNKS):
        data = mutated(EXAMPLES[chance.choice(names)], chance)
        started = time.process_time()
        found = compiled(data, environment=ENVIRONMENT, trust=chance.choice(list(TextTrust)))
        assert time.process_time() - started < SECONDS_CPU, (chunk, number)
        text = data.removeprefix(b"\xef\xbb\xbf").decode("utf-8", "replace")
        lines = text.split("\n")
        for each in (*found.mistakes, *found.warnings):
            assert 1 <= each.at.line <= len(lines), (chunk, number, each)
            assert 1 <= each.at.column <= len(lines[each.at.line - 1]) + 1, (chunk, number, each)
            assert each.sentence
        assert len(found.mistakes) <= MOST_FINDINGS
        assert (found.plan is None) or not found.mistakes
        judged += not found.mistakes
        findings = FindingLog()
        tree = parse(data, findings)
        if tree is not None and not findings.mistakes:
            again = parse(formatted(tree).encode(), findings)
            assert (again, findings.mistakes) == (tree, ()), (chunk, number)
    # Some mutations must stay valid and some must not, or nothing is tested.
    assert 0 < judged < MUTATIONS // CHUNKS


def test_no_byte_of_a_file_can_be_left_out_with_a_crash() -> None:
    data = EXAMPLES["channels"]
    for end in range(len(data)):
        for text in (data[:end], data[end:]):
            found = compiled(text)
            assert all(each.at.line >= 1 and each.at.column >= 1 for each in found.mistakes)


@pytest.mark.parametrize(
    "data",
    [
        b"{" * (MOST_DEPTH + 1),
        b"a { " * 100_000,
        b"}" * 100_000,
        b"{ }" * 100_000,
        b'"' * 200_001,
        b"\\" * 200_000,
        b"#" * 200_000,
        b";" * 200_000,
        b"{$" * 100_000,
        b"{env.a}" * 50_000,
        b"a" * 1_000_000,
        b"auth " * 50_000,
        b"match @a " * 50_000,
        b"/a { match " + b"@a " * 50_000 + b"}",
        b"vars { "
        + b"".join(b"V%d {vars.V%d}{vars.V%d}; " % (n + 1, n, n) for n in range(2000))
        + b"V0 xx }",
        b"vars { " + b"".join(b"V%d {vars.V%d}; " % (n, n + 1) for n in range(5000)) + b"V5000 x }",
        b"/a { deliver https://" + b"a." * 8000 + b" {} }",
        b"/" + b"a/" * 8000 + b" { pull { path /p } }",
        b"vars { A {env.X" + b"}" * 10_000,
    ],
    ids=lambda data: data[:12].decode(),
)
def test_a_hostile_text_takes_time_in_proportion_to_its_length(data: bytes) -> None:
    started = time.process_time()
    found = compile_text(data)
    assert time.process_time() - started < SECONDS_CPU
    assert len(found.mistakes) <= MOST_FINDINGS


@pytest.mark.parametrize("depth", [MOST_DEPTH, MOST_DEPTH + 1])
def test_nesting_has_an_end(depth: int) -> None:
    found = compiled("x { " * depth + "}" * depth)
    assert [each.reason for each in found.mistakes] == [
        "unknown-directive" if depth == MOST_DEPTH else "too-deep"
    ]


def test_a_file_has_a_largest_size() -> None:
    assert compiled(b"#" * MOST_BYTES).ok
    (found,) = compiled(b"#" * (MOST_BYTES + 1)).mistakes
    assert found.reason == "too-large"


@pytest.mark.parametrize(
    ("data", "at"),
    [(b"\xff", "1:1"), ("# ä\ningress {\n # ".encode() + b"\x80", "3:4"), (b"\xef\xbb\xbfab\xff", "1:3")],
)
def test_bytes_that_are_no_utf8_have_a_position(data: bytes, at: str) -> None:
    (found,) = compiled(data).mistakes
    assert (found.reason, str(found.at)) == ("not-utf8", at)


@pytest.mark.parametrize("name", sorted(EXAMPLES))
def test_a_directive_without_its_values_is_judged(name: str) -> None:
    lines = EXAMPLES[name].decode().split("\n")
    for number, line in enumerate(lines):
        # `max_age off`, and `retry max 3` inside of `{ … }`: each loses all behind its first word.
        for cut in (re.sub(r"^(\s*\S+)[^{}#]*$", r"\1", line), re.sub(r"([{;]\s*\w+)[^{};]*", r"\1 ", line)):
            if cut != line:
                found = compiled(
                    "\n".join([*lines[:number], cut, *lines[number + 1 :]]), environment=ENVIRONMENT
                )
                assert found.plan is None or not found.mistakes
