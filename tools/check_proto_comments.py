"""Fails when something in `proto/` has no comment above it: the protos are the wire's only manual."""

from __future__ import annotations

import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

from google.protobuf.descriptor_pb2 import (
    DescriptorProto,
    EnumDescriptorProto,
    FileDescriptorProto,
    FileDescriptorSet,
)

if __package__ in (None, ""):  # Run as a file: the repository is not on the path yet.
    sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from tools.generate_proto import run_protoc

# Where an element stands: field numbers and indexes down descriptor.proto, as source info spells it.
Place = tuple[int, ...]
Element = tuple[Place, str]


def elements(file: FileDescriptorProto) -> Iterator[Element]:
    """Every element of a file that must have a comment."""
    for index, message in enumerate(file.message_type):
        yield from _in_message(message, (FileDescriptorProto.MESSAGE_TYPE_FIELD_NUMBER, index))
    for index, enum in enumerate(file.enum_type):
        yield from _in_enum(enum, (FileDescriptorProto.ENUM_TYPE_FIELD_NUMBER, index))
    for index, service in enumerate(file.service):
        place = (FileDescriptorProto.SERVICE_FIELD_NUMBER, index)
        yield place, f"service {service.name}"
        for position, method in enumerate(service.method):
            yield (*place, service.METHOD_FIELD_NUMBER, position), f"rpc {service.name}.{method.name}"


def _in_message(message: DescriptorProto, place: Place) -> Iterator[Element]:
    if message.options.map_entry:
        return  # Made up by protoc for a map field; nobody wrote it.
    yield place, f"message {message.name}"
    for index, field in enumerate(message.field):
        yield (*place, message.FIELD_FIELD_NUMBER, index), f"field {message.name}.{field.name}"
    made_up = {field.oneof_index for field in message.field if field.proto3_optional}
    for index, oneof in enumerate(message.oneof_decl):
        if index not in made_up:
            yield (*place, message.ONEOF_DECL_FIELD_NUMBER, index), f"oneof {message.name}.{oneof.name}"
    for index, nested in enumerate(message.nested_type):
        yield from _in_message(nested, (*place, message.NESTED_TYPE_FIELD_NUMBER, index))
    for index, enum in enumerate(message.enum_type):
        yield from _in_enum(enum, (*place, message.ENUM_TYPE_FIELD_NUMBER, index))


def _in_enum(enum: EnumDescriptorProto, place: Place) -> Iterator[Element]:
    yield place, f"enum {enum.name}"
    for index, value in enumerate(enum.value):
        yield (*place, enum.VALUE_FIELD_NUMBER, index), f"enum value {value.name}"


def uncommented(file: FileDescriptorProto) -> Iterator[str]:
    """`file:line: element` for each that lacks a leading comment."""
    locations = {tuple(location.path): location for location in file.source_code_info.location}
    for place, element in elements(file):
        location = locations[place]
        if not location.leading_comments.strip():
            yield f"proto/{file.name}:{location.span[0] + 1}: {element} has no comment above it"


def main() -> None:
    """Exit with a list when a comment is missing."""
    with tempfile.TemporaryDirectory() as scratch:
        described = Path(scratch) / "protos.binpb"
        run_protoc("--include_source_info", f"--descriptor_set_out={described}")
        files = FileDescriptorSet.FromString(described.read_bytes()).file
    faults = [fault for file in files for fault in uncommented(file)]
    if faults:
        sys.exit("\n".join(faults))


if __name__ == "__main__":
    main()
