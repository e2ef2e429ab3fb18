"""Structured logs on stderr, one JSON object per line.

Never carries a secret: values under names that hold key material are removed before anything is written. Never raises
to the caller: on a full disk the refusal of a commit must reach its sender, not end the thread that logs it.
"""

from __future__ import annotations

import logging
import sys
from collections.abc import MutableMapping
from typing import Any, TextIO, cast

import orjson
import structlog

_SECRET_NAMES = frozenset(
    {"secret", "private_key", "key_pem", "token", "hmac", "sealing_key", "seed", "password"}
)


def _redact(_logger: object, _method: str, event: MutableMapping[str, Any]) -> MutableMapping[str, Any]:
    for name in event:
        if name in _SECRET_NAMES or isinstance(event[name], bytes | bytearray | memoryview):
            event[name] = "[redacted]"
    return event


class LossyFile:
    """A text file for logs: lines that cannot be written are dropped, and their number is logged once one can be."""

    def __init__(self, file: TextIO) -> None:
        self._file = file
        self._lost = 0

    def write(self, text: str) -> int:
        """As a file's `write`; always returns the length of `text`."""
        try:
            if self._lost:
                # The previous line may be torn: begin with a line break.
                told = _dumps({"event": "log lines were lost", "lines": self._lost, "level": "warning"})
                self._file.write(f"\n{told}\n")
                self._file.flush()
                self._lost = 0
            self._file.write(text)
        except (OSError, ValueError):
            self._lost += 1
        return len(text)

    def flush(self) -> None:
        """As a file's `flush`."""
        try:
            self._file.flush()
        except (OSError, ValueError):
            self._lost += 1


def configure(*, service: str, level: int = logging.INFO) -> None:
    """Set up logging for this process; call once."""
    structlog.configure(
        processors=[
            structlog.contextvars.merge_contextvars,
            structlog.processors.add_log_level,
            structlog.processors.TimeStamper(fmt="iso", utc=True),
            structlog.processors.format_exc_info,
            _redact,
            structlog.processors.JSONRenderer(serializer=_dumps),
        ],
        wrapper_class=structlog.make_filtering_bound_logger(level),
        logger_factory=structlog.PrintLoggerFactory(file=cast(TextIO, LossyFile(sys.stderr))),
        cache_logger_on_first_use=True,
    )
    structlog.contextvars.bind_contextvars(service=service)


def _dumps(event: object, **_options: object) -> str:
    return orjson.dumps(event, default=str).decode()
