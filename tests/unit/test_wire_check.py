"""`tools/check_wire.py` notices every change of the wire that a program of the last release would notice."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from google.protobuf.descriptor_pb2 import FileDescriptorSet

from tools import check_wire
from tools.check_wire import Comparison, Wire, main, released

PROTO = """
syntax = "proto3";
package t.v1;
service Box {
  rpc Put(stream Letter) returns (Answer);
  rpc Get(Answer) returns (stream Letter);
}
message Letter {
  reserved 9;
  string id = 1;
  optional uint32 size = 2;
  repeated uint64 times = 3;
  Colour colour = 4;
  Inner inner = 5;
  oneof body {
    bytes small = 6;
    string large = 7;
  }
  string note = 8;
  message Inner { int64 at = 1; }
}
message Answer { map<string, Letter> letters = 1; }
message Stored { bytes row = 1; }
enum Colour {
  COLOUR_UNSPECIFIED = 0;
  COLOUR_RED = 1;
}
"""


def wire(tmp_path: Path, text: str) -> Wire:
    (tmp_path / "t.proto").write_text(text)
    out = tmp_path / "t.binpb"
    words = [
        sys.executable,
        "-m",
        "grpc_tools.protoc",
        f"-I{tmp_path}",
        f"--descriptor_set_out={out}",
        "t.proto",
    ]
    subprocess.run(words, cwd=tmp_path, check=True, timeout=60)
    return Wire.of(FileDescriptorSet.FromString(out.read_bytes()))


@pytest.mark.parametrize(
    ("said", "instead", "told"),
    [
        ("  string id = 1;\n", "", ["t.v1.Letter.id: field 1 removed"]),
        ("string id = 1;", "string id = 10;", ["t.v1.Letter.id: renumbered from 1 to 10"]),
        ("string id = 1;", "bytes id = 1;", ["t.v1.Letter.id: type changed from string to bytes"]),
        ("Inner inner = 5;", "bytes inner = 5;", ["t.v1.Letter.inner: type changed from message to bytes"]),
        (
            "string id = 1;",
            "repeated string id = 1;",
            ["t.v1.Letter.id: label changed from singular to repeated"],
        ),
        ("optional uint32", "uint32", ["t.v1.Letter.size: label changed from optional to singular"]),
        (
            "times = 3;",
            "times = 3 [packed = false];",
            ["t.v1.Letter.times: label changed from repeated to repeated, not packed"],
        ),
        ("int64 at = 1;", "", ["t.v1.Letter.Inner.at: field 1 removed"]),
        ("  COLOUR_RED = 1;\n", "", ["t.v1.Colour.COLOUR_RED: enum value 1 removed"]),
        ("COLOUR_RED = 1", "COLOUR_RED = 2", ["t.v1.Colour.COLOUR_RED: renumbered from 1 to 2"]),
        ("  rpc Get(Answer) returns (stream Letter);\n", "", ["t.v1.Box/Get: method removed"]),
        ("Put(stream Letter)", "Put(Letter)", ["t.v1.Box/Put: client side is now one message"]),
        ("(stream Letter);", "(Letter);", ["t.v1.Box/Get: server side is now one message"]),
        ("returns (Answer)", "returns (stream Answer)", ["t.v1.Box/Put: server side is now a stream"]),
        ("message Stored { bytes row = 1; }\n", "", ["t.v1.Stored: removed"]),
        (
            "map<string, Letter>",
            "map<bool, Letter>",
            ["t.v1.Answer.LettersEntry.key: type changed from string to bool"],
        ),
        ("  reserved 9;\n", "  string late = 9;\n", ["t.v1.Letter: number 9 was reserved"]),
        (
            "  }\n  string note = 8;",
            "    string note = 8;\n  }",
            [
                "t.v1.Letter.large: joined or left a oneof",
                "t.v1.Letter.note: joined or left a oneof",
                "t.v1.Letter.small: joined or left a oneof",
            ],
        ),
    ],
)
def test_an_incompatible_change_is_listed(tmp_path: Path, said: str, instead: str, told: list[str]) -> None:
    assert said in PROTO
    compared = Comparison(wire(tmp_path, PROTO), wire(tmp_path, PROTO.replace(said, instead)))
    assert compared.incompatible == told


@pytest.mark.parametrize(
    ("said", "instead", "told"),
    [
        ("string id = 1;", "string name = 1;", ["t.v1.Letter.id: now named name"]),
        ("COLOUR_RED", "COLOUR_CRIMSON", ["t.v1.Colour.COLOUR_RED: now named COLOUR_CRIMSON"]),
        (
            "Letter",
            "NewMessage",
            ["t.v1.Letter.Inner: now named t.v1.NewMessage.Inner", "t.v1.Letter: now named t.v1.NewMessage"],
        ),
        ("string note = 8;", "string note = 8;\n  bytes added = 10;", []),
        ("string large = 7;", "string large = 7;\n    string huge = 10;", []),
        ("COLOUR_RED = 1;", "COLOUR_RED = 1;\n  COLOUR_BLUE = 2;", []),
        ("service Box {", "service Box {\n  rpc Peek(Answer) returns (Answer);", []),
    ],
)
def test_a_new_name_or_an_addition_passes(tmp_path: Path, said: str, instead: str, told: list[str]) -> None:
    compared = Comparison(wire(tmp_path, PROTO), wire(tmp_path, PROTO.replace(said, instead)))
    assert (compared.incompatible, compared.renamed) == ([], told)


def test_kept_wire_is_the_newest_by_number(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(check_wire, "FIXTURES", tmp_path)
    assert released() is None
    for name in ("wire-0.9.0.binpb", "wire-0.10.0.binpb", "wire-old.binpb"):
        (tmp_path / name).write_bytes(b"")
    assert released() == tmp_path / "wire-0.10.0.binpb"


def test_check_fails_until_the_wire_of_a_release_is_kept_and_whenever_it_is_broken(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(check_wire, "FIXTURES", tmp_path)
    now = FileDescriptorSet()
    file = now.file.add(name="t.proto", package="t")
    file.message_type.add(name="M").field.add(name="id", number=1, type=9, label=1)
    monkeypatch.setattr(check_wire, "described", lambda: now)
    assert main([]) == 1
    assert main(["--write"]) == 0
    assert main([]) == 0
    del file.message_type[0].field[0]
    assert main([]) == 1
    told = capsys.readouterr()
    assert "incompatible: t.M.id: field 1 removed" in told.out
    assert "raise the version" in told.err
    assert main(["--wrong"]) == 2


def test_this_tree_keeps_the_wire_of_its_release() -> None:
    assert main([]) == 0
