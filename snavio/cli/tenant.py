"""`snavio tenant`: tenants as operators see them."""

from __future__ import annotations

from snavio.cli.group import CommandGroup
from snavio.cli.invite import invite

tenant = CommandGroup(
    "Invite tenants.",
    examples=(
        "snavio tenant invite acme --contact ops@acme.example",
        "snavio tenant invite acme --principal ci",
    ),
)
tenant.command("invite")(invite)


@tenant.callback()
def _about() -> None:
    # A group of one command would be that command.
    pass
