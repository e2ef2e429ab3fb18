"""`snavio edge`: the Hookaidofile of an HTTP edge, from the first draft to the comparison of two versions."""

from __future__ import annotations

from typing import Final

from snavio.cli.commands import EDGE_COMMANDS
from snavio.cli.group import CommandGroup, HelpfulGroup


class EdgeGroup(HelpfulGroup):
    """The group of the edge's commands."""

    entries = EDGE_COMMANDS


edge: Final = CommandGroup(
    "Run an HTTP edge: webhooks in, messages out; write and check its file.",
    examples=(
        "snavio edge init github",
        "snavio edge run --watch",
        "snavio edge explain req_pn4x7ocadgkqskqd",
        "snavio edge config validate",
        "snavio edge config fmt --write",
        "snavio edge config diff Hookaidofile.old Hookaidofile",
    ),
    cls=EdgeGroup,
)


@edge.callback()
def _about() -> None:
    pass
