"""Words of which there are only some, as states and operations are.

Never takes a word for another: what was probably meant is only said.
"""

from __future__ import annotations

import difflib
from collections.abc import Collection

from snavio.errors import BadRequest


def one_of(word: str, words: Collection[str], option: str, *, reason: str = "bad-option") -> str:
    """`word`, if it is one of `words`; otherwise BadRequest with the one that was probably meant."""
    if word not in words:
        near = difflib.get_close_matches(word, words, 1)
        meant = f"Did you mean {near[0]}?" if near else f"There are {', '.join(words)}."
        raise BadRequest(f"{option}: {word[:32]!r} is none. {meant}", reason=reason)
    return word


def one_of_each(words: Collection[str], known: Collection[str], option: str, **reason: str) -> list[str]:
    """The words of an option that is given several times, or once with commas."""
    return [one_of(word, known, option, **reason) for some in words for word in some.split(",")]
