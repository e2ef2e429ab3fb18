"""Events are read whole, wherever the bytes are cut."""

from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from snavio.errors import BadRequest
from snavio.sdk.server_sent_events import EventFrame, EventReader


def slow_twin(text: bytes) -> list[EventFrame]:
    """All lines at once, by the letter of the format."""
    found: list[EventFrame] = []
    data: list[bytes] = []
    event_id: str | None = None
    # What follows the last line's end is no line yet.
    for line in re.split(rb"\r\n|\r|\n", text)[:-1]:
        if not line:
            if data:
                found.append(EventFrame(b"\n".join(data), event_id))
            data, event_id = [], None
            continue
        name, _, value = line.partition(b":")
        value = value[1:] if value[:1] == b" " else value
        if name == b"data":
            data.append(value)
        elif name == b"id" and b"\0" not in value:
            event_id = value.decode("utf-8", "replace")
    return found


def read_in_pieces(text: bytes, cuts: list[int]) -> list[EventFrame]:
    reader, found, begin = EventReader(), [], 0
    for cut in [*sorted(cut % (len(text) + 1) for cut in cuts), len(text)]:
        found += list(reader.feed(text[begin:cut]))
        begin = cut
    return found


LINES = st.lists(
    st.sampled_from(
        [
            b"data: a",
            b"data:b",
            b"data:  c",
            b"id: 7",
            b"id: 8\0",
            b": beat",
            b"",
            b"event: x",
            b"datax",
            b"data",
        ]
    ),
    max_size=30,
)
ENDS = st.lists(st.sampled_from([b"\n", b"\r", b"\r\n"]), min_size=1, max_size=7)


@given(LINES, ENDS, st.lists(st.integers(0, 400), max_size=12))
def test_events_are_the_same_wherever_the_bytes_are_cut(
    lines: list[bytes], ends: list[bytes], cuts: list[int]
) -> None:
    text = b"".join(line + ends[at % len(ends)] for at, line in enumerate(lines))
    assert read_in_pieces(text, cuts) == slow_twin(text)


def test_an_event_that_was_not_ended_is_not_handed_out() -> None:
    reader = EventReader()
    assert list(reader.feed(b"id: 1\ndata: half")) == []
    assert list(reader.feed(b"\n")) == []
    assert list(reader.feed(b"\n")) == [EventFrame(b"half", "1")]


def test_a_line_may_have_a_megabyte() -> None:
    body = b"x" * (1 << 20)
    reader = EventReader()
    found = [event for at in range(0, len(body), 1 << 16) for event in reader.feed(body[at : at + (1 << 16)])]
    assert found == []
    # The line above had no name; the next event is whole.
    assert list(reader.feed(b"\ndata: " + body + b"\n\n")) == [EventFrame(body)]


@pytest.mark.parametrize("piece", [b"data: " + b"x" * 90 + b"\n", b"y" * 90])
def test_an_event_without_end_is_refused_instead_of_filling_the_memory(piece: bytes) -> None:
    reader = EventReader(most_bytes=1000)
    with pytest.raises(BadRequest) as refused:
        for _ in range(20):
            list(reader.feed(piece))
    assert refused.value.reason == "oversized"
