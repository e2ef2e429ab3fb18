"""The command line: `snavio up`, `send`, `recv`, `status` and the rest.

Never shows a traceback for a user's mistake; `exits` turns every error into one sentence and an exit code.
"""

from __future__ import annotations

import os
import sys

from snavio.cli.exits import ExitCode, report


def main() -> None:
    """The console script."""
    # Before gRPC is imported: its own log lines would stand around the sentence that tells what is wrong.
    os.environ.setdefault("GRPC_VERBOSITY", "NONE")
    try:
        from snavio.cli.app import app

        app(prog_name="snavio")
    except KeyboardInterrupt:
        sys.exit(ExitCode.INTERRUPTED)
    except Exception as error:
        sys.exit(report(error, as_json="--json" in sys.argv))
