"""The terms of a single right as they are typed: its life and its profile.

Never guesses: a word that is no profile is a mistake.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Annotated

import typer

from snavio.cli.times import read_span
from snavio.errors import BadRequest

if TYPE_CHECKING:
    from snavio.domain.directory import Profile

Life = Annotated[
    str,
    typer.Option("--for", metavar="<duration>", help="The right ends by itself after so long, such as 2h."),
]
OwnProfile = Annotated[
    str,
    typer.Option(
        "--profile", help="Sensitivity of this right instead of its route's: critical, moderate, low or sync."
    ),
]


def read_life(words: str) -> int:
    """Seconds, whole ones; 0 for a right that lasts."""
    return math.ceil(read_span(words, option="--for", least_s=1)) if words else 0


def read_profile(word: str) -> Profile | None:
    """The profile; None for the route's."""
    from snavio.domain.directory import Profile

    known = {profile.name.lower(): profile for profile in Profile}
    if word and word not in known:
        raise BadRequest(f"--profile: must be one of {', '.join(known)}.", reason="bad-field")
    return known[word] if word else None
