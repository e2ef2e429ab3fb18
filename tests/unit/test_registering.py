"""A large registration is written in calls that Registry takes, and tried in ones that have all that they need."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from snavio.cli.registering import MOST_AT_ONCE, MOST_QUEUES, in_parts, rehearsals
from snavio.cli.registration import parse_registration
from snavio.domain.directory import (
    AclEntry,
    Limit,
    Profile,
    ProfileLimit,
    QueueKind,
    Route,
    Service,
    SourceQuota,
    Target,
    Tenant,
    Value,
)


def large(dice: random.Random) -> list[Value]:
    """A registration as its file gives it: tenants first, rights and quotas last."""
    targets = [f"bot-{number}" for number in range(dice.randint(1, 120))]
    kinds = [QueueKind.MAILBOX, QueueKind.MAILBOX, QueueKind.REDIS]
    routes = [
        Route(target, f"C{number}", dice.choice(kinds), dice.choice(list(Profile)))
        for target in targets
        for number in range(dice.randint(1, 40))
    ]
    services = [Service("acme", f"s{number}") for number in range(dice.randint(1, 50))]
    sources = [service.source for service in services] + ["rival/shop"]
    rights = {(dice.choice(sources), dice.choice(routes)) for _ in range(dice.randint(1, 3000))}
    triples = sorted((source, route.target, route.name) for source, route in rights)
    return [
        Tenant("acme"),
        *services,
        *(Target(target, "acme") for target in targets),
        *(ProfileLimit(target, Profile.MODERATE, Limit(5, 60)) for target in targets[::3]),
        *routes,
        *(AclEntry(*triple) for triple in triples),
        *(SourceQuota(*triple, 5, 60) for triple in triples[::7]),
    ]


def foreign(values: list[Value]) -> int:
    kinds = {
        (value.queue_kind, value.target)
        for value in values
        if isinstance(value, Route) and value.queue_kind is not QueueKind.MAILBOX
    }
    return len(kinds)


@pytest.mark.parametrize("seed", range(8))
def test_parts_are_the_whole_in_its_order_and_none_is_too_large(seed: int) -> None:
    values = large(random.Random(seed))
    parts = in_parts(values)
    assert [number for part in parts for number in part] == list(range(len(values)))
    for part in parts:
        inside = [values[number] for number in part]
        assert 0 < len(inside) <= MOST_AT_ONCE
        assert foreign(inside) <= MOST_QUEUES


@pytest.mark.parametrize("seed", range(8))
def test_each_entry_is_tried_with_all_of_the_file_that_it_needs(seed: int) -> None:
    values = large(random.Random(seed))
    tried: set[int] = set()
    for numbers in rehearsals(values):
        inside = [values[number] for number in numbers]
        assert numbers == sorted(set(numbers))
        assert len(inside) <= MOST_AT_ONCE
        assert foreign(inside) <= MOST_QUEUES
        tried |= set(numbers)
        there = {(value.kind, *value.key) for value in inside}
        limits = {value.key for value in values if isinstance(value, ProfileLimit)}
        for value in inside:
            match value:
                case Service() | Target():
                    assert ("tenant", "acme") in there
                case Route():
                    assert ("target", value.target) in there
                    limit = (value.target, value.profile.name.lower())
                    assert limit not in limits or ("profile_limit", *limit) in there
                case AclEntry() | SourceQuota():
                    assert ("route", value.target, value.name) in there
                    assert value.source == "rival/shop" or ("service", *value.source.split("/")) in there
    assert tried == set(range(len(values)))


def test_small_file_is_one_call_and_one_rehearsal() -> None:
    text = 'tenant = "acme"\ntarget = [{ name = "bot" }]\n[[route]]\ntarget = "bot"\ncommand = "Ping"\n'
    values = parse_registration(text, Path("f.toml")).values
    assert in_parts(values) == [range(3)]
    assert list(rehearsals(values)) == [[0, 1, 2]]


def test_refusal_after_a_part_was_written_does_not_say_that_nothing_was() -> None:
    read = parse_registration('tenant = "acme"\nprincipals = ["a", "b"]\n', Path("f.toml"))
    two = [(1, "no."), (2, "no.")]
    assert "; nothing was registered:" in str(read.refused(two))
    assert "nothing was registered" not in str(read.refused(two, written=1))
