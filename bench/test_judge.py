"""Cost of judging one command: the native admission and its plain twin, in one run.

A thousand sources with two keys each, batches of 1000 fresh commands of 400 encoded bytes. Signing is done
before the clock starts; every batch is judged once, because a second time it would be a batch of replays. CPU
time of this thread is what is compared: the machine is shared, and wall time tells about its other guests.

Run: `python -m pytest bench/test_judge.py -q -s`.
"""

from __future__ import annotations

import random
import statistics
import time
from collections.abc import Callable
from dataclasses import dataclass

import pytest
from pytest_benchmark.fixture import BenchmarkFixture

from bench.meters import record
from snavio import native
from tests.support import twin

NOW = 1_790_000_000 * twin.NS
AUDIENCE = "shield-0:17f3a2"
SOURCES = [f"tenant-{number % 40}/service-{number}" for number in range(1000)]
BATCH = 1000
TWIN_BATCH = 50
ENCODED_BYTES = 400
REPEATS = 15
BATCHES_PER_REPEAT = 4
CEILING_US = 1.0
RATIO = 5.0


@dataclass(frozen=True, slots=True)
class Traffic:
    """A source with one of its batches."""

    source: str
    frame: bytes
    commands: int


@dataclass(slots=True)
class Producers:
    """The secrets of all sources, and a supply of fresh commands."""

    randomness: random.Random
    secrets: dict[str, bytes]
    payload_bytes: int = 0
    sent: int = 0

    def command(self, source: str) -> bytes:
        """The next command of `source`, 400 bytes long."""
        self.sent += 1
        return native.sign_command(
            self.secrets[source],
            key_version="hmac-v2",
            audience=AUDIENCE,
            command_id=f"0190a5b2-7c00-7000-8000-{self.sent:012x}",
            # 4 us apart, as in a stream of 250k/s: a batch lies in one second or two.
            timestamp_unix_ns=NOW - 2 * twin.NS + self.sent * 4000,
            target="discord-bot",
            name="delete-user",
            payload=self.randomness.randbytes(self.payload_bytes),
            content_type="application/json",
        )

    def batch(self, commands: int) -> Traffic:
        """A fresh batch of a random source."""
        source = self.randomness.choice(SOURCES)
        body = [self.command(source) for _ in range(commands)]
        return Traffic(source, twin.submission(body, batch_seq=self.sent), commands)


@pytest.fixture(scope="module")
def producers() -> Producers:
    randomness = random.Random(7)
    crowd = Producers(randomness, {source: randomness.randbytes(32) for source in SOURCES})
    crowd.payload_bytes = 200
    # Past 127 bytes the payload's length takes two bytes whatever it is here, so one correction is exact.
    crowd.payload_bytes += ENCODED_BYTES - len(crowd.command(SOURCES[0]))
    assert len(crowd.command(SOURCES[0])) == ENCODED_BYTES
    return crowd


def native_admission(producers: Producers) -> native.Admission:
    admission = native.Admission(audience=AUDIENCE)
    for source, secret in producers.secrets.items():
        admission.set_keyset(source, [("hmac-v1", bytes(32), 0, 0, False), ("hmac-v2", secret, 0, 0, False)])
    return admission


def twin_admission(producers: Producers) -> twin.TwinAdmission:
    admission = twin.TwinAdmission(AUDIENCE)
    for source, secret in producers.secrets.items():
        admission.keysets[source] = [twin.TwinKey("hmac-v1", bytes(32)), twin.TwinKey("hmac-v2", secret)]
    return admission


def cpu_us_per_command(judge: Callable[[Traffic], int], batches: list[Traffic]) -> float:
    """CPU microseconds of this thread per command; every command must be accepted."""
    commands = sum(batch.commands for batch in batches)
    start = time.thread_time_ns()
    accepted = sum(judge(batch) for batch in batches)
    spent_ns = time.thread_time_ns() - start
    assert accepted == commands
    return spent_ns / 1000 / commands


def test_native_judge_costs_at_most_a_microsecond_and_a_fifth_of_the_twin(producers: Producers) -> None:
    shield, plain = native_admission(producers), twin_admission(producers)

    def judge_natively(batch: Traffic) -> int:
        return shield.judge(batch.frame, source=batch.source, cert_serial="0a1b", now_unix_ns=NOW).accepted

    def judge_plainly(batch: Traffic) -> int:
        return plain.judge(batch.frame, source=batch.source, cert_serial="0a1b", now_unix_ns=NOW).codes.count(
            0
        )

    cpu_us_per_command(judge_natively, [producers.batch(BATCH)])  # Warm up.
    fast: list[float] = []
    slow: list[float] = []
    for _ in range(REPEATS):
        fast.append(
            cpu_us_per_command(judge_natively, [producers.batch(BATCH) for _ in range(BATCHES_PER_REPEAT)])
        )
        slow.append(cpu_us_per_command(judge_plainly, [producers.batch(TWIN_BATCH)]))
    ratio = statistics.median(slow) / statistics.median(fast)
    print(f"\n{'judge, CPU us per command':<28}{'median':>9}{'least':>9}{'most':>9}")
    for title, figures in (("native, batches of 1000", fast), ("twin, batches of 50", slow)):
        print(f"{title:<28}{statistics.median(figures):>9.3f}{min(figures):>9.3f}{max(figures):>9.3f}")
    print(f"{'twin / native':<28}{ratio:>9.1f}")
    name = "judge, batches of 1000 from 1,000 sources"
    record(f"{name}: CPU per command", values=fast, unit="µs", target=f"≤ {CEILING_US}")
    record(
        f"{name}: the plain Python twin", values=slow, unit="µs", target="-", note="batches of 50, same run"
    )
    record(f"{name}: twin over native", values=[ratio], unit="x", target=f"≥ {RATIO}")
    assert statistics.median(fast) <= CEILING_US
    assert ratio >= RATIO


def test_judge_of_a_thousand_commands(benchmark: BenchmarkFixture, producers: Producers) -> None:
    shield = native_admission(producers)

    def fresh() -> tuple[tuple[Traffic], dict[str, object]]:
        return (producers.batch(BATCH),), {}

    def judge(batch: Traffic) -> native.Judgement:
        return shield.judge(batch.frame, source=batch.source, cert_serial="0a1b", now_unix_ns=NOW)

    judgement = benchmark.pedantic(judge, setup=fresh, rounds=60, warmup_rounds=3)  # type: ignore[no-untyped-call]
    assert judgement.accepted == BATCH


def test_judge_of_a_thousand_forgeries(benchmark: BenchmarkFixture, producers: Producers) -> None:
    # The cost that a forger can cause: everything but the nonce, and a telemetry row each.
    shield = native_admission(producers)
    forged = producers.batch(BATCH)
    for source in SOURCES:
        shield.set_keyset(source, [("hmac-v2", bytes(32), 0, 0, False)])

    def judge() -> native.Judgement:
        return shield.judge(forged.frame, source=forged.source, cert_serial="0a1b", now_unix_ns=NOW)

    judgement = benchmark.pedantic(judge, rounds=60, warmup_rounds=3)  # type: ignore[no-untyped-call]
    assert judgement.accepted == 0
