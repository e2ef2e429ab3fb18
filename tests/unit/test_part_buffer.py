"""A part goes to the next hop as the same bytes, written alone or straight into a frame."""

from __future__ import annotations

import gc
import sys

import pytest

from snavio.native import Admission, Dispatch, PartBuffer, batch_frame, batch_header, sign_command, uuid7
from snavio.sdk.pending_sends import submission_field
from tests.support.frames import NAME, SOURCE, TARGET, TOPIC, RunOf, batch, command


def buffer_of(*runs: RunOf) -> tuple[PartBuffer, bytes]:
    """The part of a plan whose batch is held nowhere else, and its bytes."""
    dispatch = Dispatch()
    dispatch.put_route(TARGET, NAME, queue=0, topic=TOPIC, profile=3, strict=False)
    dispatch.allow(SOURCE, TARGET, NAME, 1)
    dispatch.renewed(0)
    plan = dispatch.plan(batch(*runs), now_mono_ns=0)
    [send] = plan.sends
    assert isinstance(send.body, PartBuffer)
    return send.body, bytes(send.body)


def test_a_buffer_outlives_the_plan_and_the_frame_that_it_is_of() -> None:
    buffer, body = buffer_of(RunOf([command(payload=b"\x00\xff" * 40_000), command()]))
    gc.collect()
    assert (bytes(buffer), len(buffer)) == (body, len(body))


def test_a_run_of_which_only_a_part_goes_on_keeps_its_head() -> None:
    buffer, body = buffer_of(RunOf([command(name="other"), command(), command(name="other"), command()]))
    assert bytes(buffer) == body
    assert body.count(SOURCE.encode()) == 1


def test_a_frame_is_its_header_and_behind_it_every_body_in_order() -> None:
    buffer, body = buffer_of(RunOf([command()]))
    large, large_body = buffer_of(RunOf([command(payload=b"x" * 200_000)]))
    frame = batch_frame(7, 900, [buffer, b"\x1a\x00", large, b"", buffer])
    assert frame == batch_header(7, 900) + body + b"\x1a\x00" + large_body + body
    assert batch_frame(7, 900, []) == batch_header(7, 900)


def test_a_body_that_is_neither_is_an_error_and_not_a_crash() -> None:
    with pytest.raises(TypeError):
        batch_frame(1, 1, ["text"])  # type: ignore[list-item]


NOW_NS = 1_790_000_000_000_000_000


def signed(payload: bytes, *, key: bytes = b"k" * 32) -> bytes:
    """A command as a field of a Submission."""
    command = sign_command(
        key,
        key_version="hmac-v1",
        audience="here",
        command_id=uuid7(),
        timestamp_unix_ns=NOW_NS,
        target=TARGET,
        name=NAME,
        payload=payload,
    )
    return submission_field(command) + command


def judged(*commands: bytes) -> tuple[PartBuffer, bool]:
    """The bytes that Shield forwards of a producer's frame, and a flag that it holds the frame for them."""
    admission = Admission(audience="here")
    admission.set_keyset(SOURCE, [("hmac-v1", b"k" * 32, 0, 0, False)])
    frame = b"".join(commands)
    before = sys.getrefcount(frame)
    buffer = admission.judge(frame, source=SOURCE, cert_serial="a", now_unix_ns=NOW_NS).buffer
    return buffer, sys.getrefcount(frame) > before


def test_the_little_that_is_left_of_a_frame_does_not_hold_all_of_it() -> None:
    forged = signed(bytes(100_000), key=b"f" * 32)
    good = signed(b"good")
    buffer, held = judged(good, forged)
    assert not held
    assert b"good" in bytes(buffer)
    # Most of it is held: the last copy is made where it leaves from.
    buffer, held = judged(signed(bytes(100_000)), signed(b"forged", key=b"f" * 32))
    assert held
    assert len(buffer) > 100_000


def test_the_little_that_goes_to_a_queue_does_not_hold_what_goes_elsewhere() -> None:
    dispatch = Dispatch()
    dispatch.put_route(TARGET, NAME, queue=0, topic=TOPIC, profile=3, strict=False)
    dispatch.allow(SOURCE, TARGET, NAME, 1)
    dispatch.renewed(0)
    frame = batch(RunOf([command(), command(name="unknown", payload=bytes(100_000))]))
    before = sys.getrefcount(frame)
    plan = dispatch.plan(frame, now_mono_ns=0)
    [send] = plan.sends
    assert sys.getrefcount(frame) == before
    assert bytes(send.body).count(NAME.encode()) == 1
