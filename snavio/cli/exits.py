"""Exit codes of `snavio`, and the one place where an error becomes one sentence and a code.

Never shows a traceback for a user's mistake; SNAVIO_DEBUG=1 shows it.
"""

from __future__ import annotations

import contextlib
import os
import sys
import traceback
from enum import IntEnum
from typing import Final

from snavio.errors import BadRequest, NotAllowed, SnavioError, StateError, Unavailable
from snavio.extras import install_hint

ASKED_AS: Final = "asked as "
"""Begins the note of a refusal that tells who was refused."""


class ExitCode(IntEnum):
    """The exit codes that scripts rely on."""

    OK = 0
    REFUSED = 1
    USAGE = 2
    UNREACHABLE = 3
    STATE = 4
    INTERRUPTED = 130


MEANINGS: Final = {
    ExitCode.OK: "done",
    ExitCode.REFUSED: "the mesh refused, or something failed",
    ExitCode.USAGE: "a mistake in the command or the configuration",
    ExitCode.UNREACHABLE: "the mesh could not be reached",
    ExitCode.STATE: "the state folder cannot be used",
    ExitCode.INTERRUPTED: "ended by Ctrl-C",
}


def code_of(error: BaseException) -> ExitCode:
    """The exit code that fits an error."""
    match error:
        case StateError():
            return ExitCode.STATE
        case Unavailable():
            return ExitCode.UNREACHABLE
        case BadRequest() | ImportError():
            return ExitCode.USAGE
        case _:
            return ExitCode.REFUSED


def report(error: BaseException, *, as_json: bool) -> ExitCode:
    """Say what went wrong, once; returns the exit code."""
    # Tasks that run together fail together; the first of them says why.
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    if os.environ.get("SNAVIO_DEBUG"):
        traceback.print_exception(error)
    code = code_of(error)
    sentence = _sentence(error)
    reason = error.reason if isinstance(error, SnavioError) else "internal"
    if isinstance(error, Unavailable) and reason in ("unavailable", "deadline-exceeded"):
        sentence += (
            " Is the mesh up? `snavio up` starts one on this machine, `snavio doctor` looks for what is wrong; `snavio "
            "whoami` tells which mesh is meant."
        )
    sys.stderr.write(f"snavio: {sentence}\n")
    if as_json:
        import json

        document = {"error": {"reason": reason, "message": sentence, "exit_code": int(code)}}
        # The output that could not be written may be this very stream.
        with contextlib.suppress(OSError):
            sys.stdout.write(json.dumps(document, ensure_ascii=False, separators=(",", ":")) + "\n")
            sys.stdout.flush()
    return code


def _sentence(error: BaseException) -> str:
    match error:
        case NotAllowed(reason="not-allowed"):
            # Refused because of the caller's identity: another identity may.
            asked = [note for note in getattr(error, "__notes__", ()) if note.startswith(ASKED_AS)]
            who = f" ({asked[0]})" if asked else ""
            return f"{str(error).rstrip()}{who} `--as` says under whose certificate a command acts."
        case ImportError() if (hint := install_hint(error)) is not None:
            return hint
        case SnavioError() | ImportError():
            return str(error).rstrip()
        case OSError() if error.strerror:
            # The system's words, not Python's: a full disk or a forbidden folder is nothing to report.
            where = error.filename if error.filename is not None else "The output"
            return f"{where} cannot be used: {error.strerror}."
        case _:
            return (
                f"Something unexpected: {type(error).__name__}: {error}. Run again with SNAVIO_DEBUG=1 to see "
                "where, and please report it."
            )
