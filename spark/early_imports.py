"""Has Python import what Spark will ask for while its JVM starts: a session is there a third of a second sooner.

Never imports while a process is being forked: a lock that is held at that moment stays locked in the child for ever.
"""

from __future__ import annotations

import contextlib
import importlib
import os
import threading
from collections.abc import Iterator
from typing import Final

# py4j's first call asks pyspark whether a value is one of numpy's, and pyspark imports pandas to find out. It knows
# nothing of pyspark, so that the two threads never wait for each other.
ASKED_FOR: Final = "pandas"


@contextlib.contextmanager
def meanwhile() -> Iterator[None]:
    """While the block runs, from its first fork on, import in the background; done when the block is left."""
    forked = threading.Event()
    os.register_at_fork(after_in_parent=forked.set)
    importing = threading.Thread(target=_import_after, args=(forked,), name="early imports", daemon=True)
    importing.start()
    try:
        yield
    finally:
        forked.set()
        importing.join()


def _import_after(forked: threading.Event) -> None:
    forked.wait()
    # Not there is fine: Spark does without it too.
    with contextlib.suppress(ImportError):
        importlib.import_module(ASKED_FOR)
