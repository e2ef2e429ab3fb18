"""Fails when the wire differs from that of the last release in a way that a program of that release would notice.

    python tools/check_wire.py            compare; exit 1 with every incompatible change
    python tools/check_wire.py --write    keep the wire of this tree as that of its version

Messages are followed from method to field by number, as the binary wire does: a message, field or enum value that
changed its name alone is listed and passes. Never writes unless it is asked to.
"""

from __future__ import annotations

import re
import sys
import tempfile
import tomllib
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from google.protobuf.descriptor_pb2 import (
    DescriptorProto,
    EnumDescriptorProto,
    FieldDescriptorProto,
    FileDescriptorSet,
    MethodDescriptorProto,
)

if __package__ in (None, ""):  # Run as a file: the repository is not on the path yet.
    sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from tools.generate_proto import ROOT, run_protoc

FIXTURES: Final = ROOT / "tests" / "fixtures"
_FIXTURE: Final = re.compile(r"wire-(\d+)\.(\d+)\.(\d+)\.binpb")
_Type = FieldDescriptorProto.Type
_REPEATED: Final = FieldDescriptorProto.LABEL_REPEATED


@dataclass(slots=True)
class Wire:
    """Everything that a descriptor set defines, by full name."""

    methods: dict[str, MethodDescriptorProto] = field(default_factory=dict)
    messages: dict[str, DescriptorProto] = field(default_factory=dict)
    enums: dict[str, EnumDescriptorProto] = field(default_factory=dict)

    @classmethod
    def of(cls, described: FileDescriptorSet) -> Wire:
        """Index a descriptor set."""
        wire = cls()
        for file in described.file:
            scope = f".{file.package}"
            for service in file.service:
                for method in service.method:
                    wire.methods[f"{scope[1:]}.{service.name}/{method.name}"] = method
            for message in file.message_type:
                wire._add(scope, message)
            for enum in file.enum_type:
                wire.enums[f"{scope}.{enum.name}"] = enum
        return wire

    def _add(self, scope: str, message: DescriptorProto) -> None:
        name = f"{scope}.{message.name}"
        self.messages[name] = message
        for nested in message.nested_type:
            self._add(name, nested)
        for enum in message.enum_type:
            self.enums[f"{name}.{enum.name}"] = enum


class Comparison:
    """Differences between the wire of a release and that of this tree."""

    def __init__(self, old: Wire, new: Wire) -> None:
        self.incompatible: list[str] = []
        self.renamed: list[str] = []
        self._old = old
        self._new = new
        self._seen: set[tuple[str, str]] = set()
        self._methods()
        # Messages that no method names travel inside of bytes, or lie in a store.
        for name in old.messages.keys() & new.messages.keys():
            self._message(name, name)
        for name in old.enums.keys() & new.enums.keys():
            self._enum(name, name)
        followed = {name for name, _ in self._seen}
        for name in (old.messages.keys() | old.enums.keys()) - followed:
            self.incompatible.append(f"{name[1:]}: removed")
        self.incompatible.sort()
        self.renamed.sort()

    def _methods(self) -> None:
        for name, old in self._old.methods.items():
            new = self._new.methods.get(name)
            if new is None:
                self.incompatible.append(f"{name}: method removed")
                continue
            for side in ("client_streaming", "server_streaming"):
                if getattr(old, side) != getattr(new, side):
                    how = "a stream" if getattr(new, side) else "one message"
                    self.incompatible.append(f"{name}: {side.partition('_')[0]} side is now {how}")
            self._message(old.input_type, new.input_type)
            self._message(old.output_type, new.output_type)

    def _first_look(self, old: str, new: str) -> bool:
        if (old, new) in self._seen:
            return False
        self._seen.add((old, new))
        if old != new:
            self.renamed.append(f"{old[1:]}: now named {new[1:]}")
        return True

    def _message(self, old_name: str, new_name: str) -> None:
        if not self._first_look(old_name, new_name):
            return
        old, new = self._old.messages[old_name], self._new.messages[new_name]
        by_number = {each.number: each for each in new.field}
        by_name = {each.name: each for each in new.field}
        for before in old.field:
            where = f"{new_name[1:]}.{before.name}"
            after = by_number.get(before.number)
            same_name = by_name.get(before.name)
            if same_name is not None and same_name.number != before.number:
                self.incompatible.append(f"{where}: renumbered from {before.number} to {same_name.number}")
            elif after is None:
                self.incompatible.append(f"{where}: field {before.number} removed")
            else:
                self.incompatible += [f"{where}: {fault}" for fault in self._field(before, after)]
                if before.name != after.name:
                    self.renamed.append(f"{where}: now named {after.name}")
                # A new alternative is compatible; a known field that joins or leaves is not.
                if _alternatives(old, before) != _alternatives(new, after) & {
                    0,
                    *(one.number for one in old.field),
                }:
                    self.incompatible.append(f"{where}: joined or left a oneof")
        taken = [n for n in by_number if any(span.start <= n < span.end for span in old.reserved_range)]
        self.incompatible += [f"{new_name[1:]}: number {number} was reserved" for number in taken]

    def _field(self, old: FieldDescriptorProto, new: FieldDescriptorProto) -> Iterator[str]:
        if _label(old) != _label(new):
            yield f"label changed from {_label(old)} to {_label(new)}"
        if old.type != new.type:
            yield f"type changed from {_type(old)} to {_type(new)}"
        elif old.type == FieldDescriptorProto.TYPE_MESSAGE:
            self._message(old.type_name, new.type_name)
        elif old.type == FieldDescriptorProto.TYPE_ENUM:
            self._enum(old.type_name, new.type_name)

    def _enum(self, old_name: str, new_name: str) -> None:
        if not self._first_look(old_name, new_name):
            return
        new_values = self._new.enums[new_name].value
        names: dict[int, set[str]] = {}
        for each in new_values:
            names.setdefault(each.number, set()).add(each.name)
        numbers = {each.name: each.number for each in new_values}
        for before in self._old.enums[old_name].value:
            where = f"{new_name[1:]}.{before.name}"
            if numbers.get(before.name, before.number) != before.number:
                self.incompatible.append(
                    f"{where}: renumbered from {before.number} to {numbers[before.name]}"
                )
            elif before.number not in names:
                self.incompatible.append(f"{where}: enum value {before.number} removed")
            elif before.name not in numbers:
                self.renamed.append(f"{where}: now named {min(names[before.number])}")


def _label(one: FieldDescriptorProto) -> str:
    if one.label == _REPEATED:
        # The extension reads some lists by itself, and only in the form that they have.
        packed = one.options.packed if one.options.HasField("packed") else True
        return "repeated" if packed else "repeated, not packed"
    return "optional" if one.proto3_optional else "singular"


def _type(one: FieldDescriptorProto) -> str:
    return str(_Type.Name(one.type)).removeprefix("TYPE_").lower()


def _alternatives(message: DescriptorProto, one: FieldDescriptorProto) -> set[int]:
    """Numbers of the fields in the same oneof, and 0 for the oneof itself; nothing for a field outside of any."""
    if not one.HasField("oneof_index") or one.proto3_optional:
        return set()
    same = (each for each in message.field if each.HasField("oneof_index"))
    return {0, *(each.number for each in same if each.oneof_index == one.oneof_index)}


def described() -> FileDescriptorSet:
    """The wire of this tree."""
    with tempfile.TemporaryDirectory() as scratch:
        path = Path(scratch) / "wire.binpb"
        run_protoc("--include_imports", f"--descriptor_set_out={path}")
        return FileDescriptorSet.FromString(path.read_bytes())


def released() -> Path | None:
    """The wire of the newest release that was kept."""
    found = {}
    for path in FIXTURES.iterdir():
        if (name := _FIXTURE.fullmatch(path.name)) is not None:
            found[tuple(map(int, name.groups()))] = path
    return found[max(found)] if found else None


def version() -> str:
    """The version of this tree."""
    cargo = tomllib.loads((ROOT / "native" / "Cargo.toml").read_text("utf-8"))
    return str(cargo["package"]["version"])


def main(arguments: list[str]) -> int:
    """Zero when a program of the last release can talk to this tree."""
    if arguments not in ([], ["--write"]):
        sys.stderr.write("usage: check_wire.py [--write]\n")
        return 2
    now, kept = described(), released()
    old = FileDescriptorSet() if kept is None else FileDescriptorSet.FromString(kept.read_bytes())
    compared = Comparison(Wire.of(old), Wire.of(now))
    for line in compared.renamed:
        sys.stdout.write(f"compatible: {line}\n")
    for line in compared.incompatible:
        sys.stdout.write(f"incompatible: {line}\n")
    if arguments:
        (FIXTURES / f"wire-{version()}.binpb").write_bytes(now.SerializeToString(deterministic=True))
        return 0
    if kept is None:
        sys.stderr.write("No release of the wire is kept: run tools/check_wire.py --write.\n")
        return 1
    if compared.incompatible:
        sys.stderr.write(
            f"The wire is incompatible with {kept.stem}: programs of that release would fail. Keep what is above as it "
            "was, or raise the version in native/Cargo.toml and run tools/check_wire.py --write.\n"
        )
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
