"""`watch` outlives its job: what fails for a while is started again, what is wrong with its options is told at once."""

from __future__ import annotations

from typing import Any

import pytest

from snavio.audit import runner
from snavio.errors import BadRequest, SnavioError


class Scripted:
    """A job that ends as the script says, one life after the other."""

    def __init__(self, *ends: Exception | None) -> None:
        self.ends = list(ends)
        self.lives = 0

    def start(self) -> Any:
        self.lives += 1
        return self

    async def run(self, _told: Any) -> dict[str, Any]:
        end = self.ends.pop(0)
        if end is not None:
            raise end
        return {}


@pytest.fixture
def pauses(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    slept: list[float] = []

    async def sleep(seconds: float) -> None:
        slept.append(seconds)

    monkeypatch.setattr("snavio.audit.runner.asyncio.sleep", sleep)
    return slept


async def test_a_job_that_failed_is_started_again_after_longer_and_longer_pauses(pauses: list[float]) -> None:
    full = SnavioError("No space left on device", reason="job-failed")
    job = Scripted(*[full] * 8, None)
    told: list[dict[str, Any]] = []
    await runner._lasting(job.start, told.append)
    assert (job.lives, pauses) == (9, [5, 10, 20, 40, 80, 160, 300, 300])
    assert told[0] == {"step": "failed", "message": "No space left on device", "again_in_s": 5.0}


async def test_a_mistake_in_its_options_is_told_and_not_tried_again(pauses: list[float]) -> None:
    job = Scripted(BadRequest("policy.ban_minute: there is no such threshold.", reason="bad-job"))
    with pytest.raises(BadRequest, match="no such threshold"):
        await runner._lasting(job.start, lambda _: None)
    assert (job.lives, pauses) == (1, [])
