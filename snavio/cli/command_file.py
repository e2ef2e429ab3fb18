"""Reads a file of commands to send: one JSON object per line.

Never gives a part of a file with mistakes: all of them are named by line, and nothing is sent.
"""

from __future__ import annotations

import base64
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import orjson

from snavio.config.mistakes import closest
from snavio.domain.directory.rules import require_command, require_target
from snavio.errors import BadRequest

MOST_LINES: Final = 1_000_000
MOST_TOLD: Final = 20
KEYS: Final = ("target", "name", "payload", "payload_base64", "content_type", "id")


@dataclass(frozen=True, slots=True)
class CommandLine:
    """A command to send."""

    target: str
    name: str
    payload: bytes
    content_type: str = ""
    command_id: str = ""
    """Empty for a new one."""
    line: int = 0
    """Its line in the file; 0 when it came from the command line."""


def read_commands(path: Path, *, target: str, name: str, content_type: str) -> list[CommandLine]:
    """The commands of a file, `-` for standard input; `target` and `name` are those of lines that name none."""
    try:
        raw = sys.stdin.buffer.read() if str(path) == "-" else path.read_bytes()
    except OSError as error:
        raise BadRequest(f"{path} cannot be read: {error.strerror}.", reason="bad-commands") from None
    found: list[CommandLine] = []
    mistakes: list[str] = []
    for number, text in enumerate(raw.split(b"\n"), 1):
        if not text.strip():
            continue
        if len(found) == MOST_LINES:
            raise BadRequest(
                f"{path} has over {MOST_LINES} commands; send it in parts.", reason="bad-commands"
            )
        try:
            found.append(_command(text, number, target=target, name=name, content_type=content_type))
        except BadRequest as error:
            mistakes.append(f"{path}:{number}: {error}")
    if mistakes:
        more = [f"and {len(mistakes) - MOST_TOLD} more"] if len(mistakes) > MOST_TOLD else []
        told = "\n  ".join([*mistakes[:MOST_TOLD], *more])
        raise BadRequest(f"Nothing was sent:\n  {told}", reason="bad-commands")
    return found


def _command(text: bytes, number: int, *, target: str, name: str, content_type: str) -> CommandLine:
    try:
        row = orjson.loads(text)
    except orjson.JSONDecodeError as error:
        raise BadRequest(f"not JSON: {error}.") from None
    if not isinstance(row, dict):
        raise BadRequest("must be a JSON object.")
    given = {"target": target, "name": name, "content_type": content_type, "id": "", **dict(_checked(row))}
    require_target(given["target"], "target")
    require_command(given["name"], "name")
    return CommandLine(
        given["target"], given["name"], _payload(row), given["content_type"], given["id"], number
    )


def _checked(row: dict[str, Any]) -> Iterator[tuple[str, str]]:
    for key, value in row.items():
        if key not in KEYS:
            meant = closest(key, KEYS)
            raise BadRequest(
                f"unknown key {key!r}: "
                + (f"did you mean {meant!r}?" if meant else f"known are {', '.join(KEYS)}.")
            )
        if not key.startswith("payload"):
            if not isinstance(value, str):
                raise BadRequest(f"{key}: must be text.")
            yield key, value


def _payload(row: dict[str, Any]) -> bytes:
    """Text as it is, any other JSON as JSON."""
    if "payload_base64" in row:
        if "payload" in row:
            raise BadRequest("payload and payload_base64: give one of them.")
        try:
            return base64.b64decode(row["payload_base64"], validate=True)
        except (ValueError, TypeError):
            raise BadRequest("payload_base64: must be base64.") from None
    payload = row.get("payload", "")
    return payload.encode() if isinstance(payload, str) else orjson.dumps(payload)
