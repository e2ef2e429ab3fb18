"""Runs the edge as a process: `python -m services.gateway.edge`, as `snavio edge run` starts it."""

import signal
import sys

# Before anything is imported: a hang-up that comes early must not end the process that it is to refresh.
if __name__ == "__main__":
    signal.signal(signal.SIGHUP, signal.SIG_IGN)

from snavio.imports import lean_imports

with lean_imports():
    from services.gateway.edge.process import main


if __name__ == "__main__":
    sys.exit(main())
