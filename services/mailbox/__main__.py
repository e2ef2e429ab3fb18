"""Runs the mailbox as a process: `python -m services.mailbox --config snavio.toml`."""

from __future__ import annotations

import sys

from snavio.imports import lean_imports

with lean_imports():
    from services.mailbox.app import MailboxApp
    from services.mailbox.settings import MailboxSettings
    from snavio.host.process import run


if __name__ == "__main__":
    sys.exit(run("mailbox", MailboxSettings, MailboxApp))
