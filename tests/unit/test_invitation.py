"""Invitations: read whole or not at all, whatever happens to the text on its way."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from snavio.domain.enrolment import Token
from snavio.domain.invitation import MAX_LETTERS, SERVICES, Invitation, parse_invitation
from snavio.errors import BadRequest

TOKEN = Token(bytes(range(32)), bytes(range(32, 64)))
ADDRESSES = {name: f"mesh.example:{7400 + number}" for number, name in enumerate(SERVICES)}
INVITATION = Invitation(TOKEN, 1_900_000_000, "acme", "ci", "snavio.local", ADDRESSES)

hosts = st.sampled_from(["mesh.example", "10.0.0.4", "[::1]", "a.b"])
addresses = st.dictionaries(
    st.sampled_from(SERVICES), st.builds(lambda host, port: f"{host}:{port}", hosts, st.integers(0, 65_535))
)


@given(addresses, st.binary(min_size=32, max_size=32), st.integers(0, 2**63), st.sampled_from(["", "ci"]))
def test_what_was_invited_is_what_is_read(
    some: dict[str, str], secret: bytes, end: int, principal: str
) -> None:
    made = Invitation(
        Token(bytes(32), secret), end, "acme", principal, "mesh.example", {"enrolment": "x:1", **some}
    )
    assert parse_invitation(made.text) == made


def test_an_invitation_that_a_mail_program_broke_into_lines_is_still_one() -> None:
    text = INVITATION.text
    assert parse_invitation(f"  {text[:70]}\r\n{text[70:]}\n") == INVITATION


def test_a_truncated_invitation_is_none_wherever_it_was_cut() -> None:
    for end in range(len(INVITATION.text)):
        with pytest.raises(BadRequest, match="a part of it is missing"):
            parse_invitation(INVITATION.text[:end])


@given(st.integers(0, len(INVITATION.text) - 1), st.sampled_from("abAB01-_."))
def test_a_mistyped_letter_is_noticed_before_anything_is_sent(place: int, letter: str) -> None:
    text = INVITATION.text[:place] + letter + INVITATION.text[place + 1 :]
    if text == INVITATION.text:
        return
    with pytest.raises(BadRequest) as refused:
        parse_invitation(text)
    assert refused.value.reason == "bad-invitation"


@pytest.mark.parametrize(
    "text",
    ["", "x", "snvi1.", "snvi1.A", "\x00\x1b[2J", "ÄÖ" * 5000, "snvi1." + "A" * MAX_LETTERS, TOKEN.text],
)
def test_what_is_no_invitation_is_refused_and_not_quoted(text: str) -> None:
    with pytest.raises(BadRequest) as refused:
        parse_invitation(text)
    assert refused.value.reason == "bad-invitation"
    assert not text or text not in str(refused.value)


def test_an_invitation_shows_its_secret_in_no_representation() -> None:
    assert TOKEN.secret.hex() not in repr(INVITATION)
    assert "token" not in repr(INVITATION)


def test_an_invitation_fits_into_a_chat_message() -> None:
    assert len(INVITATION.text) < 300
