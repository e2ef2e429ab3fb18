import json
import math
import struct
from pathlib import Path
from typing import Any

import pytest
import rfc8785
from hypothesis import given, settings
from hypothesis import strategies as st

from snavio.native import canonical_json

VECTORS = json.loads((Path(__file__).resolve().parents[1] / "vectors" / "canonical_json.json").read_text())

UNHURRIED = settings(deadline=None)  # A busy machine is no failure.
SAFE = 2**53 - 1
TEXT = st.text(st.characters(codec="utf-8"), max_size=12)
# Not between 2^53 and 1e21: the canonical form of those is an integer that would be refused when read again.
DOUBLES = st.floats(allow_nan=False, allow_infinity=False).filter(
    lambda number: not 2**53 <= abs(number) < 1e21
)
SCALARS = st.none() | st.booleans() | st.integers(-SAFE, SAFE) | DOUBLES | TEXT
DOCUMENTS = st.recursive(
    SCALARS,
    lambda inner: st.lists(inner, max_size=5) | st.dictionaries(TEXT, inner, max_size=5),
    max_leaves=25,
)


def document(vector: dict[str, str]) -> bytes:
    return bytes.fromhex(vector["input_hex"]) if "input_hex" in vector else vector["input"].encode()


def named(vectors: list[dict[str, str]]) -> pytest.MarkDecorator:
    return pytest.mark.parametrize("vector", vectors, ids=[vector["name"] for vector in vectors])


@named(VECTORS["accepted"])
def test_document_becomes_its_canonical_form(vector: dict[str, str]) -> None:
    assert canonical_json(document(vector)).decode() == vector["canonical"]


@named(VECTORS["refused"])
def test_document_without_canonical_form_is_refused(vector: dict[str, str]) -> None:
    with pytest.raises(ValueError) as refusal:
        canonical_json(document(vector))
    assert vector["says"] in str(refusal.value)


@UNHURRIED
@given(DOCUMENTS, st.booleans(), st.sampled_from([None, 1, "\t"]))
def test_canonical_form_agrees_with_the_oracle(
    value: Any, ascii_only: bool, indent: int | str | None
) -> None:
    spelt = json.dumps(value, ensure_ascii=ascii_only, indent=indent).encode()
    assert canonical_json(spelt) == rfc8785.dumps(value)


@UNHURRIED
@given(st.binary(min_size=8, max_size=8))
def test_any_double_is_written_as_the_oracle_writes_it(bits: bytes) -> None:
    (double,) = struct.unpack(">d", bits)
    if math.isfinite(double) and not 2**53 <= abs(double) < 1e21:
        # More digits than needed: a parser that rounds twice ends on the neighbour.
        assert canonical_json(b"%.40e" % double) == rfc8785.dumps(double)


@UNHURRIED
@given(DOCUMENTS)
def test_canonical_form_is_its_own_canonical_form(value: Any) -> None:
    canonical = canonical_json(json.dumps(value).encode())
    assert canonical_json(canonical) == canonical


@UNHURRIED
@given(st.floats(min_value=2**53, max_value=1e21, exclude_max=True))
def test_double_whose_canonical_form_is_an_unsafe_integer_is_refused(double: float) -> None:
    with pytest.raises(ValueError, match=r"2\^53"):
        canonical_json(b"%.40e" % double)


@UNHURRIED
@given(st.integers())
def test_integer_is_kept_below_2_to_the_53_and_refused_from_there(number: int) -> None:
    if abs(number) <= SAFE:
        assert canonical_json(b"%d" % number) == b"%d" % number
    else:
        with pytest.raises(ValueError, match=r"2\^53"):
            canonical_json(b"%d" % number)


@UNHURRIED
@given(st.dictionaries(TEXT, SCALARS, min_size=1, max_size=5), st.data())
def test_any_repeated_key_is_refused_however_it_is_spelt(
    members: dict[str, Any], data: st.DataObject
) -> None:
    again = data.draw(st.sampled_from(sorted(members)))
    spelt = "".join(f"\\u{unit:04x}" for (unit,) in struct.iter_unpack(">H", again.encode("utf-16-be")))
    twice = json.dumps(members, ensure_ascii=False)[:-1] + f',"{spelt}":0}}'
    with pytest.raises(ValueError, match="same key twice"):
        canonical_json(twice.encode())


@UNHURRIED
@given(st.binary(max_size=40) | TEXT.map(str.encode))
def test_arbitrary_bytes_are_canonicalised_or_refused_with_one_sentence(noise: bytes) -> None:
    try:
        canonical = canonical_json(noise)
    except ValueError as refusal:
        assert str(refusal).endswith(".")
    else:
        assert canonical == rfc8785.dumps(json.loads(noise))


@UNHURRIED
@given(DOCUMENTS, st.data())
def test_spoilt_document_never_breaks_the_parser(value: Any, data: st.DataObject) -> None:
    spelt = bytearray(json.dumps(value).encode())
    spelt[data.draw(st.integers(0, len(spelt) - 1))] = data.draw(
        st.sampled_from(b'{}[]",:\\-+.0159eE \x00\xffnu')
    )
    try:
        canonical = canonical_json(bytes(spelt))
    except ValueError:
        return
    # Whatever we accept, an independent parser reads to the same canonical form.
    assert canonical == rfc8785.dumps(json.loads(bytes(spelt)))


def test_deep_document_is_refused_without_exhausting_the_stack() -> None:
    with pytest.raises(ValueError, match="recursion limit"):
        canonical_json(b"[" * 1_000_000)
    with pytest.raises(ValueError, match="recursion limit"):
        canonical_json(b'{"a":' * 1_000_000)
