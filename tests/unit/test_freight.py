"""What goes on to the next hop is the same bytes, whether written alone or straight into a frame."""

from __future__ import annotations

import gc

import pytest

from snavio.native import Dispatch, Freight, batch_frame, batch_header
from tests.support.frames import NAME, SOURCE, TARGET, TOPIC, RunOf, batch, command


def freight_of(*runs: RunOf) -> tuple[Freight, bytes]:
    """Of a plan whose batch nobody else holds, and its bytes."""
    dispatch = Dispatch()
    dispatch.put_route(TARGET, NAME, queue=0, topic=TOPIC, profile=3, strict=False)
    dispatch.allow(SOURCE, TARGET, NAME, 1)
    dispatch.renewed(0)
    plan = dispatch.plan(batch(*runs), now_mono_ns=0)
    [(_, _, freight)] = plan.freights
    [(_, _, body)] = plan.sends
    return freight, body


def test_freight_is_what_was_sent_before_it_was_freight() -> None:
    freight, body = freight_of(RunOf([command(payload=b"\x00\xff" * 40_000), command()]))
    gc.collect()
    assert (bytes(freight), len(freight)) == (body, len(body))


def test_a_run_of_which_only_a_part_goes_on_keeps_its_head() -> None:
    freight, body = freight_of(RunOf([command(name="other"), command(), command(name="other"), command()]))
    assert bytes(freight) == body
    assert body.count(SOURCE.encode()) == 1


def test_a_frame_is_its_header_and_behind_it_every_body_in_order() -> None:
    freight, body = freight_of(RunOf([command()]))
    large, large_body = freight_of(RunOf([command(payload=b"x" * 200_000)]))
    frame = batch_frame(7, 900, [freight, b"\x1a\x00", large, b"", freight])
    assert frame == batch_header(7, 900) + body + b"\x1a\x00" + large_body + body
    assert batch_frame(7, 900, []) == batch_header(7, 900)


def test_a_body_that_is_neither_is_an_error_and_not_a_crash() -> None:
    with pytest.raises(TypeError):
        batch_frame(1, 1, ["text"])  # type: ignore[list-item]
