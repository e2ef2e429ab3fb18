"""A panic of the native library arrives in Python as an exception like any other."""

from __future__ import annotations

import asyncio

import pytest

from snavio import _native  # The seam itself: nothing else may import it.
from snavio.errors import NativeFault, SnavioError


@pytest.mark.parametrize("detached", [False, True])
def test_a_panic_crosses_the_seam_as_a_native_fault(detached: bool) -> None:
    with pytest.raises(NativeFault, match="on purpose") as raised:
        _native.panic_for_test(detached)
    assert isinstance(raised.value, Exception), "`except Exception` has to keep it from ending a loop"
    assert not isinstance(raised.value, SnavioError), "nobody raises it on purpose"


async def test_a_panic_on_a_thread_of_the_loop_is_the_callers_exception() -> None:
    with pytest.raises(NativeFault):
        await asyncio.to_thread(_native.panic_for_test, True)


def test_a_panic_on_one_thread_takes_no_lock_from_the_others() -> None:
    nonces = _native.NonceSet(capacity=8, share_per_tenant=8)
    with pytest.raises(NativeFault):
        _native.panic_for_test(False)
    assert nonces.claim("acme/app", b"12345678", 2, 1) == 0
