"""Structured logs on stderr, one JSON object per line.

Never carries a secret: values under names that hold key material are cut out before anything is written.
"""

from __future__ import annotations

import logging
import sys
from collections.abc import MutableMapping
from typing import Any

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
        logger_factory=structlog.PrintLoggerFactory(file=sys.stderr),
        cache_logger_on_first_use=True,
    )
    structlog.contextvars.bind_contextvars(service=service)


def _dumps(event: object, **_options: object) -> str:
    return orjson.dumps(event, default=str).decode()
