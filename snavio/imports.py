"""Keeps the time from exec to the first answer short by deferring imports that a process does not need at start.

A service that was killed is away until its imports are done, so they are part of the duration of a fault. Never leaves
a trace: afterwards the deferred modules can be imported as usual.
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
    # Nothing of what an import makes is garbage: to look for some, again and again, is work for nothing. Frozen, it
    # is not looked at in later collections either, which come while commands wait.
    gc.disable()
    # pydantic asks every installed package whether it has a plug-in. Nobody else's code is to judge our settings.
    os.environ.setdefault("PYDANTIC_DISABLE_PLUGINS", "__all__")
    # structlog takes rich along wherever it is installed, to draw tracebacks that our lines of JSON have no room for.
    hidden = _DRAWING not in sys.modules
    if hidden:
        sys.modules[_DRAWING] = None  # type: ignore[assignment]
    try:
        yield
    finally:
        if hidden:
            del sys.modules[_DRAWING]
        gc.freeze()
        gc.enable()
