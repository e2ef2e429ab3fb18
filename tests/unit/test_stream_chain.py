"""An envelope is believed if the tenant's key has signed it and it is the next one."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

import orjson
import pytest

from snavio.clock import ManualClock
from snavio.domain.stream import EPOCH_STRIDE, GENESIS
from snavio.native import canonical_json
from snavio.signed.stream_chain import ChainEnd, EnvelopeFault, EnvelopeRefused, StreamChain
from snavio.signed.verification import VerifyingKey
from tests.support.envelopes import EnvelopeMaker
from tests.vectors import stream_envelopes


class Asked:
    """Keys as Signer has them, and how often it was asked."""

    def __init__(self, *keys: VerifyingKey) -> None:
        self.keys = list(keys)
        self.times = 0

    async def __call__(self) -> Sequence[VerifyingKey]:
        self.times += 1
        return list(self.keys)


def chain(maker: EnvelopeMaker, *, after: ChainEnd | None = None, gaps: bool = False) -> StreamChain:
    return StreamChain(maker.tenant, keys=Asked(*maker.keys), clock=ManualClock(), after=after, gaps=gaps)


async def refused(reader: StreamChain, body: bytes) -> EnvelopeFault:
    before = reader.end
    with pytest.raises(EnvelopeRefused) as found:
        await reader.verify(body)
    assert reader.end == before
    return found.value.fault


async def test_envelopes_in_order_are_believed() -> None:
    maker = EnvelopeMaker()
    reader = chain(maker)
    for _ in range(5):
        body = maker.next()
        found = await reader.verify(body)
        assert (found.envelope.seq, found.digest, found.body) == (maker.seq, maker.prev, body)


async def test_one_that_was_left_out_is_noticed() -> None:
    maker = EnvelopeMaker()
    first, _, third = maker.next(), maker.next(), maker.next()
    reader = chain(maker)
    await reader.verify(first)
    assert await refused(reader, third) is EnvelopeFault.CHAIN


async def test_a_filtered_stream_may_leave_out_and_not_go_back() -> None:
    maker = EnvelopeMaker()
    first, second, third = maker.next(), maker.next(), maker.next()
    reader = chain(maker, gaps=True)
    await reader.verify(first)
    await reader.verify(third)
    assert await refused(reader, second) is EnvelopeFault.CHAIN


async def test_neighbours_in_a_filtered_stream_are_still_chained() -> None:
    maker = EnvelopeMaker()
    first = maker.next()
    maker.prev = "b3:" + "0" * 64
    reader = chain(maker, gaps=True)
    await reader.verify(first)
    assert await refused(reader, maker.next()) is EnvelopeFault.CHAIN


async def test_a_repeated_one_and_one_of_another_history_are_refused() -> None:
    maker = EnvelopeMaker()
    first = maker.next()
    reader = chain(maker)
    await reader.verify(first)
    assert await refused(reader, first) is EnvelopeFault.CHAIN
    other = EnvelopeMaker(seq=maker.seq, prev="b3:" + "1" * 64)
    assert await refused(reader, other.next()) is EnvelopeFault.CHAIN


async def test_after_a_bookmark_the_next_one_must_continue_it() -> None:
    maker = EnvelopeMaker()
    maker.next()
    end = ChainEnd(maker.seq, maker.prev)
    body = maker.next()
    await chain(maker, after=end).verify(body)
    assert await refused(chain(maker, after=ChainEnd(end.seq, "b3:" + "2" * 64)), body) is EnvelopeFault.CHAIN
    assert await refused(chain(maker, after=ChainEnd(end.seq - 1)), body) is EnvelopeFault.CHAIN


async def test_a_new_epoch_begins_with_nothing_before_it() -> None:
    maker = EnvelopeMaker()
    reader = chain(maker)
    await reader.verify(maker.next())
    later = EnvelopeMaker(epoch=4)
    wrong = later.sign(later.unsigned(prev="b3:" + "3" * 64))
    assert await refused(reader, wrong) is EnvelopeFault.CHAIN
    found = await reader.verify(later.next())
    assert (found.envelope.prev, found.envelope.seq) == (GENESIS, 4 * EPOCH_STRIDE + 1)


@pytest.mark.parametrize("at", range(0, 600, 7))
async def test_no_changed_byte_is_believed(at: int) -> None:
    maker = EnvelopeMaker()
    body = bytearray(maker.next())
    body[at % len(body)] ^= 1
    assert await refused(chain(maker), bytes(body)) in {
        EnvelopeFault.DECODE,
        EnvelopeFault.SIGNATURE,
        EnvelopeFault.SCOPE,
    }


async def test_another_tenants_envelope_is_refused_however_well_signed() -> None:
    maker = EnvelopeMaker(tenant="globex")
    reader = StreamChain("acme", keys=Asked(*maker.keys), clock=ManualClock(), after=None)
    assert await refused(reader, maker.next()) is EnvelopeFault.SCOPE


def changed(body: bytes, **members: Any) -> bytes:
    return canonical_json(orjson.dumps({**orjson.loads(body), **members}))


@pytest.mark.parametrize(
    "members",
    [
        {"seq": "18446744073709551615"},
        {"seq": "18446744073709551616"},
        {"seq": "+5"},
        {"seq": 5},
        {"epoch": "0"},
        {"signature": ""},
        {"signature": "0" * 128},
        {"payload": []},
        {"payload": {"events": []}},
        {"extra": 1},
    ],
)
async def test_a_forged_member_is_refused(members: dict[str, Any]) -> None:
    maker = EnvelopeMaker()
    fault = await refused(chain(maker), changed(maker.next(), **members))
    assert fault in {EnvelopeFault.DECODE, EnvelopeFault.SIGNATURE}


async def test_one_envelope_has_one_spelling() -> None:
    maker = EnvelopeMaker()
    body = maker.next()
    assert await refused(chain(maker), body.replace(b":", b": ", 1)) is EnvelopeFault.DECODE
    doubled = body[:-1] + b',"type":"snavio.telemetry.command"}'
    assert await refused(chain(maker), doubled) is EnvelopeFault.DECODE


async def test_unknown_keys_are_asked_for_once_a_second() -> None:
    maker, clock = EnvelopeMaker(), ManualClock()
    asked = Asked()
    reader = StreamChain("acme", keys=asked, clock=clock, after=None)
    body = maker.next()
    for _ in range(10):
        assert await refused(reader, body) is EnvelopeFault.SIGNATURE
    assert asked.times == 1
    asked.keys = list(maker.keys)
    clock.advance(seconds=1.0)
    await reader.verify(body)
    assert asked.times == 2


async def test_a_key_that_was_ended_at_once_counts_no_longer_than_its_keys_are_kept() -> None:
    maker, clock = EnvelopeMaker(), ManualClock()
    asked = Asked(*maker.keys)
    chain = StreamChain("acme", keys=asked, clock=clock, after=None)
    await chain.verify(maker.next())
    # As after an emergency rotation: Signer does not name it any more.
    asked.keys = []
    clock.advance(seconds=299)
    await chain.verify(maker.next())
    clock.advance(seconds=2)
    with pytest.raises(EnvelopeRefused) as refused:
        await chain.verify(maker.next())
    assert (refused.value.fault, asked.times) == (EnvelopeFault.SIGNATURE, 2)


async def test_a_rotated_key_signs_from_its_time_on() -> None:
    maker = EnvelopeMaker()
    reader = StreamChain(
        "acme", keys=(asked := Asked(*maker.keys)), clock=(clock := ManualClock()), after=None
    )
    await reader.verify(maker.next())
    maker.seed, maker.key_id = b"\x08" * 32, "key-2"
    asked.keys += maker.keys
    clock.advance(seconds=2.0)
    await reader.verify(maker.next())
    # A key that ended before the envelope says that it was issued signs nothing.
    maker.seed, maker.key_id = b"\x09" * 32, "key-3"
    (ended,) = maker.keys
    asked.keys.append(VerifyingKey(ended.key_id, ended.public_key, 0, 1))
    clock.advance(seconds=2.0)
    assert await refused(reader, maker.next()) is EnvelopeFault.SIGNATURE


async def test_the_shared_envelopes_are_those_of_their_maker_and_are_judged_as_they_say() -> None:
    assert stream_envelopes.PATH.read_text("ascii") == stream_envelopes.text()
    shared = json.loads(stream_envelopes.text())
    keys = [
        VerifyingKey(
            key["key_id"],
            bytes.fromhex(key["public_key"]),
            int(key["valid_from_unix_ns"]),
            int(key["valid_until_unix_ns"]),
        )
        for key in shared["keys"]
    ]

    async def known() -> list[VerifyingKey]:
        return keys

    for case in shared["cases"]:
        after = case["after"]
        end = None if after is None else ChainEnd(int(after["seq"]), after["digest"] or None)
        chain = StreamChain("acme", keys=known, clock=ManualClock(), after=end, gaps=case["gaps"])
        for body, expected in zip(case["bodies"], case["outcomes"], strict=True):
            try:
                said = (await chain.verify(bytes.fromhex(body))).digest
            except EnvelopeRefused as refused:
                said = "refused" if expected == "refused" else refused.fault.value
            assert said == expected, case["title"]
