"""Keeps the way from exec to the first answer short: what a process imports at its start, it imports lean.

A service that was killed is away until its imports are done, so they are part of how long a fault lasts. Never leaves
a trace once they are over: what was kept out of the way can be imported by whoever wants it.
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
    """Surrounds the imports of a process's main module, which come before anything else of ours."""
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
