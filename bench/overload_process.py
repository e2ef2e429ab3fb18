"""One load process of bench/test_overload.py: several producers, each with its own connection.

Prints `ready` once all of them are connected, waits for a line on stdin, works, and prints its counts as JSON.
"""

from __future__ import annotations

import asyncio
import json
import random
import sys
import time
from collections import Counter
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import uvloop

from snavio.sdk import Producer

# Longer than any wait at the bounds: the figure is the work done, not the number of timeouts.
ATTEMPT_NS = 60_000_000_000


class Load:
    """`seconds` of batches by every producer, `at_once` of each, the first `warm_up` of them not counted; or, with
    `every_s`, single commands at that interval.
    """

    def __init__(self, told: dict[str, Any]) -> None:
        self.told = told
        self.reasons: Counter[str] = Counter()
        self.waits_s: list[float] = []

    async def run(self) -> None:
        told = self.told
        async with AsyncExitStack() as stack:
            producers = []
            for _ in range(told["producers"]):
                producer = Producer(
                    shield=told["shield"],
                    signer=told["signer"],
                    certificates=Path(told["certificates"]),
                    timeout_s=60.0,
                    max_attempts=1,
                )
                producer._attempt_ns = ATTEMPT_NS
                producers.append(await stack.enter_async_context(producer))
            sys.stdout.write("ready\n")
            sys.stdout.flush()
            await asyncio.to_thread(sys.stdin.readline)
            end = time.monotonic() + told["seconds"]
            if told.get("every_s"):
                await asyncio.gather(*(self.pace(producer, end) for producer in producers))
            else:
                await asyncio.gather(
                    *(self.pour(producer, end) for producer in producers for _ in range(told["at_once"]))
                )
        sys.stdout.write(json.dumps({"reasons": self.reasons, "waits_s": self.waits_s}) + "\n")
        sys.stdout.flush()

    async def pour(self, producer: Producer, end: float) -> None:
        payload = b"x" * self.told["payload"]
        commands = [(self.told["target"], self.told["name"], payload)] * self.told["batch"]
        while time.monotonic() < end:
            outcomes = await producer.send_batch(commands)
            # Neither while the first batches fill the pipeline, nor the rest in it at the end.
            if end - self.told["seconds"] + self.told["warm_up"] < time.monotonic() < end:
                self.reasons["delivered"] += outcomes.delivered
                for outcome in outcomes:
                    if not outcome.delivered:
                        self.reasons[outcome.reason] += 1

    async def pace(self, producer: Producer, end: float) -> None:
        # Replicas are not in step with each other.
        await asyncio.sleep(random.uniform(0.0, self.told["every_s"]))
        while time.monotonic() < end:
            began = time.monotonic()
            outcome = await producer.send(self.told["target"], self.told["name"], b"x" * self.told["payload"])
            self.waits_s.append(time.monotonic() - began)
            self.reasons[outcome.reason] += 1
            await asyncio.sleep(max(0.0, self.told["every_s"] - (time.monotonic() - began)))


if __name__ == "__main__":
    uvloop.run(Load(json.loads(sys.argv[1])).run())
