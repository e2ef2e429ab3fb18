"""`validate` of a Hookaidofile with 2,000 routes: at most one second from its bytes to its plan."""

from __future__ import annotations

import time

from bench.meters import record
from snavio.edge.compiling import compile_text

ROUTES, ROUNDS = 2000, 7
MOST_SECONDS = 1.0


def file_of(routes: int) -> bytes:
    """Routes as a platform team generates them, each with a matcher, a signature and a bucket."""
    parts = ["pull_api { auth token env:PULL }\n"]
    parts += [
        f"/hooks/team{number}/github {{\n"
        '  match { method POST; header "X-GitHub-Event" "push" }\n'
        f"  auth hmac {{ provider github; secret env:SECRET_{number} }}\n"
        "  rate_limit { rps 50; burst 100 }\n"
        f"  pull {{ path /team{number} }}\n"
        "}\n"
        for number in range(routes)
    ]
    return "".join(parts).encode()


def test_two_thousand_routes_are_validated_within_a_second() -> None:
    data = file_of(ROUTES)
    taken = []
    for _ in range(ROUNDS):
        started = time.perf_counter()
        found = compile_text(data)
        taken.append(time.perf_counter() - started)
        assert found.plan is not None
        assert len(found.plan.routes) == ROUTES
    figure = record(
        f"Hookaidofile of {ROUTES:,} routes: validated",
        values=[each * 1000 for each in taken],
        unit="ms",
        target=f"≤ {MOST_SECONDS * 1000:,.0f}",
        note=f"{len(data) >> 10} KiB, from bytes to plan",
    )
    assert figure <= MOST_SECONDS * 1000
