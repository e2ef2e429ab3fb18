"""Messages of the mesh as JSON documents for programs.

Never makes a text of a number: a reader that compares or adds would be wrong without notice.
"""

from __future__ import annotations

from typing import Any

from google.protobuf.json_format import MessageToDict


def message_document(message: Any, **settings: Any) -> dict[str, Any]:
    """A protobuf message as JSON with 64-bit numbers as numbers; protobuf's own would make texts of them."""
    told = MessageToDict(message, preserving_proto_field_name=True, **settings)
    return _numbered(told, message.DESCRIPTOR)


def _numbered(told: dict[str, Any], descriptor: Any) -> dict[str, Any]:
    for name, value in told.items():
        field = descriptor.fields_by_name[name]
        nested = field.message_type
        if nested is not None and nested.GetOptions().map_entry:
            field = nested.fields_by_name["value"]
            told[name] = {key: _number(one, field) for key, one in value.items()}
        elif isinstance(value, list):
            told[name] = [_number(one, field) for one in value]
        else:
            told[name] = _number(value, field)
    return told


def _number(value: Any, field: Any) -> Any:
    if isinstance(value, dict) and field.message_type is not None:
        return _numbered(value, field.message_type)
    whole = field.cpp_type in (field.CPPTYPE_INT64, field.CPPTYPE_UINT64)
    return int(value) if whole and isinstance(value, str) else value
