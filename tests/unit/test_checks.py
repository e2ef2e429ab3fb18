"""The checks of `make check` find the mistakes that they are for."""

import importlib.util
from pathlib import Path
from types import ModuleType

import pytest
from google.protobuf.descriptor_pb2 import FileDescriptorProto

TOOLS = Path(__file__).resolve().parents[2] / "tools"


def tool(name: str, monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    monkeypatch.syspath_prepend(str(TOOLS))
    spec = importlib.util.spec_from_file_location(name, TOOLS / f"{name}.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


STUB = """
LIMIT: int

class Ledger:
    def __init__(self, *, capacity: int = 1) -> None: ...
    @property
    def count(self) -> int: ...
    @staticmethod
    def open(frame: bytes) -> Ledger: ...
    def close(self, code: int) -> bytes: ...

def header(seq: int, budget_ms: int = 0) -> bytes: ...
"""


@pytest.mark.parametrize(
    ("said", "instead", "fault"),
    [
        ("budget_ms: int = 0", "budget: int = 0", "header: "),
        ("budget_ms: int = 0", "budget_ms: int", "header: "),
        ("budget_ms: int = 0", "*, budget_ms: int = 0", "header: "),
        ("def close(", "def shut(", "Ledger.close: in the stub, not in the library"),
        ("*, capacity: int = 1", "capacity: int = 1", "Ledger.__init__: "),
        ("    @property\n", "", "Ledger.count: a property in the stub, a method in the library"),
        ("    @staticmethod\n", "", "Ledger.open: a static method in the stub, a method in the library"),
        ("LIMIT: int\n", "", "LIMIT: in the stub, not in the library"),
    ],
)
def test_stub_check_notices_any_difference(
    said: str, instead: str, fault: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    check = tool("check_stub", monkeypatch)
    ours, theirs = check.declared(STUB), check.declared(STUB.replace(said, instead))
    assert check.differences(ours, ours) == []
    assert any(line.startswith(fault) for line in check.differences(ours, theirs))


def test_stub_check_reads_a_module_as_it_reads_a_stub(monkeypatch: pytest.MonkeyPatch) -> None:
    check = tool("check_stub", monkeypatch)
    module = ModuleType("library")
    source = STUB.replace("LIMIT: int", "LIMIT: int = 1").replace("self, *, capacity", "cls, *, capacity")
    source = "from __future__ import annotations\n" + source.replace("__init__", "__new__")
    exec(compile(source, "library", "exec"), vars(module))
    del vars(module)["annotations"]
    surface = {name: found for name, found in check.built(module).items() if "__" not in name}
    expected = {name: found for name, found in check.declared(STUB).items() if "__" not in name}
    assert surface == expected


def test_comment_check_names_the_line_of_what_has_no_comment(monkeypatch: pytest.MonkeyPatch) -> None:
    check = tool("check_proto_comments", monkeypatch)
    file = FileDescriptorProto(name="snavio/v1/x.proto")
    message = file.message_type.add(name="Batch")
    message.field.add(name="seq")
    file.source_code_info.location.add(path=[4, 0], span=[6, 0, 9, 1], leading_comments=" The unit.\n")
    file.source_code_info.location.add(path=[4, 0, 2, 0], span=[7, 2, 20])
    assert list(check.uncommented(file)) == [
        "proto/snavio/v1/x.proto:8: field Batch.seq has no comment above it"
    ]
