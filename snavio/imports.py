"""Keeps the time from exec to the first answer short by deferring imports that a process does not need at start.

A service that was killed is away until its imports are done, so they are part of the duration of a fault. Never leaves
a trace: afterwards the deferred modules can be imported as usual. A library that no installed extra brings ends the
process with one sentence.
"""

from __future__ import annotations

import contextlib
import gc
import os
import sys
from collections.abc import Iterator

_DRAWING = "rich"


@contextlib.contextmanager
def lean_imports() -> Iterator[None]:
    """Context manager around the imports of a process's main module, before any other import of Snavio."""
    # Imports create no garbage, so collections during them are wasted. Frozen objects are also skipped by later
    # collections, which would delay commands.
    gc.disable()
    # pydantic asks every installed package for a plug-in; no foreign code may validate settings.
    os.environ.setdefault("PYDANTIC_DISABLE_PLUGINS", "__all__")
    # gRPC's own lines are no JSON, and a service tells what becomes of its connections itself.
    os.environ.setdefault("GRPC_VERBOSITY", "NONE")
    # structlog imports rich wherever it is installed, to draw tracebacks that JSON lines do not use.
    hidden = _DRAWING not in sys.modules
    if hidden:
        sys.modules[_DRAWING] = None  # type: ignore[assignment]
    try:
        yield
    except ModuleNotFoundError as error:
        _say_what_to_install(error)
        raise
    finally:
        if hidden:
            del sys.modules[_DRAWING]
        gc.freeze()
        gc.enable()


def _say_what_to_install(error: ModuleNotFoundError) -> None:
    """SystemExit with the sentence for a missing extra; returns for any other module, whose traceback is wanted."""
    from snavio.extras import install_hint

    hint = install_hint(error, service=True)
    if hint is not None:
        sys.stderr.write(f"{hint}\n")
        raise SystemExit(2) from None
