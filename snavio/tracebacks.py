"""Tracebacks as text for the log: files, lines and messages.

Never the values of variables: a renderer that is given the exception itself may print the locals of every frame, which
include private keys and capabilities.
"""

from __future__ import annotations

import traceback


def trace_of(error: BaseException) -> str:
    """The traceback of `error` with its causes, as Python prints it; for the log's key `stack`."""
    return "".join(traceback.format_exception(error)).rstrip()
