"""A bookmark is where it was moved to, also after a crash, and never anywhere else."""

from __future__ import annotations

from pathlib import Path

import pytest

from snavio.errors import StateError
from snavio.sdk.bookmark import FileBookmark, MemoryBookmark, StreamPlace

LARGEST = (1 << 64) - 1


def test_a_place_survives_the_process(tmp_path: Path) -> None:
    path = tmp_path / "new" / "bookmark.json"
    assert FileBookmark(path).read() is None
    FileBookmark(path).move(StreamPlace(LARGEST, "b3:" + "a" * 64))
    assert FileBookmark(path).read() == StreamPlace(LARGEST, "b3:" + "a" * 64)
    assert [each.name for each in path.parent.iterdir()] == ["bookmark.json"]


@pytest.mark.parametrize(
    "content", [b"", b"{", b"[]", b'{"seq": "x", "digest": ""}', b'{"seq": "1"}', b"null"]
)
def test_a_damaged_bookmark_is_refused_and_not_taken_for_none(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "bookmark.json"
    path.write_bytes(content)
    with pytest.raises(StateError) as refused:
        FileBookmark(path).read()
    assert refused.value.reason == "bad-bookmark"


def test_a_bookmark_in_memory_begins_where_it_is_told() -> None:
    bookmark = MemoryBookmark(StreamPlace(5))
    assert bookmark.read() == StreamPlace(5)
    bookmark.move(StreamPlace(6, "b3:x"))
    assert bookmark.read() == StreamPlace(6, "b3:x")
