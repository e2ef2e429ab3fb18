"""`snavio bench` that is ended by Ctrl-C takes back what it has sent."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

import pytest

from snavio.cli import bench_phases
from snavio.cli.bench_phases import QUIET_SECONDS, TARGET, measure
from snavio.config import MeshSettings


async def test_a_bench_that_is_cancelled_empties_its_queue_before_it_ends(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    sending, drained = asyncio.Event(), []

    @asynccontextmanager
    async def producer(_mesh: MeshSettings) -> AsyncIterator[None]:
        yield

    async def send(*_words: Any) -> None:
        sending.set()
        await asyncio.Event().wait()

    async def drain(
        _mesh: MeshSettings, target: str, *, whole: Callable[[set[str]], bool], quiet_s: float
    ) -> set[str]:
        # Whatever the figures say was sent: commands under way when it was ended are not among them.
        assert not whole({"one"})
        drained.append((target, quiet_s))
        return set()

    for name, fake in (("producer_of", producer), ("_warm", send), ("drain", drain)):
        monkeypatch.setattr(bench_phases, name, fake)
    bench = asyncio.create_task(measure(MeshSettings(), progress=lambda _phase, _share: None))
    await sending.wait()
    bench.cancel()
    with pytest.raises(asyncio.CancelledError):
        await bench
    assert drained == [(TARGET, QUIET_SECONDS)]
