"""Compiled plans: defaults, mappings of values, and the parts that this version does not carry out."""

from __future__ import annotations

import dataclasses

import pytest

from snavio.edge.compiling import compile_text
from snavio.edge.language import EdgePart
from snavio.edge.plan import ClientCertificates, RouteChannel, RouteMode
from tests.support.hookaidofiles import ENVIRONMENT, EXAMPLES, PULL, compiled, plan_of

SECOND = 1_000_000_000
DAY = 86_400 * SECOND

TIMED = PULL + "/a { auth hmac %s\n idempotency header %s\n pull { path /p } }"
CERTIFIED = PULL + "%s\n/a { auth mtls spiffe://snavio.local/tenant/acme/service/ci\n pull { path /p } }"


def test_the_defaults_of_a_file_that_says_little() -> None:
    plan = plan_of(PULL + "/a { pull { path /p } }")
    assert (plan.tenant, plan.ingress.listen.text, plan.ingress.rate_limit) == ("edge", ":8080", None)
    assert plan.pull_api is not None
    assert (plan.pull_api.listen.text, plan.pull_api.max_batch) == (":9443", 100)
    assert plan.pull_api.default_lease_ttl_ns == 30 * SECOND
    assert (plan.pull_api.max_lease_ttl_ns, plan.pull_api.default_max_wait_ns, plan.pull_api.max_wait_ns) == (
        None,
        0,
        None,
    )
    assert plan.admin_api is None
    (route,) = plan.routes
    assert (route.max_body, route.max_headers) == (2 << 20, 64 << 10)
    assert (route.methods, route.conditions) == (frozenset({"POST"}), ())
    assert (route.publish.direct, route.publish.managed) == (True, True)
    assert (plan.waiting.max_depth, plan.waiting.bury_oldest) == (10_000, False)
    assert (plan.waiting.max_age_ns, plan.waiting.prune_interval_ns) == (7 * DAY, 300 * SECOND)
    assert (plan.waiting.dead_max_age_ns, plan.waiting.dead_max_depth) == (30 * DAY, 10_000)
    assert plan.waiting.delivered_max_age_ns is None
    assert dict(plan.trends.thresholds)["queued_pressure_leased_multiplier"] == 2
    assert (plan.trends.window_ns, len(plan.trends.thresholds)) == (900 * SECOND, 12)
    assert plan.egress.https_only
    assert not plan.egress.redirects
    assert plan.egress.dns_rebind_protection
    assert dataclasses.asdict(plan.publish_policy) | {"actor_allow": (), "actor_prefix": ()} == {
        **dict.fromkeys(("direct", "managed", "allow_pull_routes", "allow_deliver_routes"), True),
        **dict.fromkeys(("require_actor", "require_request_id", "fail_closed"), False),
        **dict.fromkeys(("actor_allow", "actor_prefix"), ()),
    }
    assert plan.observability.metrics is None


def test_the_defaults_of_a_target() -> None:
    (route,) = plan_of("/a { deliver https://x.example {} }").routes
    (target,) = route.targets
    assert dataclasses.astuple(target.retry) == (8, 2 * SECOND, 120 * SECOND, 0.2)
    assert (target.timeout_ns, route.deliver_concurrency, target.signing) == (10 * SECOND, 20, None)


def test_a_target_takes_what_it_leaves_out_from_the_defaults_of_the_file() -> None:
    text = "defaults { deliver { retry max 3 base 1s; timeout 7s; concurrency 5 } }\n"
    (route,) = plan_of(text + "/a { deliver https://x.example { retry exponential max 4 } }").routes
    assert dataclasses.astuple(route.targets[0].retry) == (4, SECOND, 120 * SECOND, 0.2)
    assert (route.targets[0].timeout_ns, route.deliver_concurrency) == (7 * SECOND, 5)


def test_metrics_have_their_address_once_they_are_on() -> None:
    for text in ("metrics on", "metrics { }", "metrics { enabled on }"):
        metrics = plan_of(f"observability {{ {text} }}").observability.metrics
        assert metrics is not None
        assert (metrics.listen.text, metrics.prefix) == ("127.0.0.1:9900", "/metrics")
    assert plan_of("observability { metrics off }").observability.metrics is None


def test_short_and_long_forms_are_one_plan() -> None:
    pairs = [
        ("auth hmac env:S", "auth hmac { secret env:S }"),
        ("auth hmac env:S { tolerance 1m }", "auth hmac { tolerance 1m; secret env:S }"),
        ("publish off", "publish { enabled off }"),
        ("publish.direct off", "publish { direct off }"),
        ("queue memory", "queue { backend memory }"),
    ]
    for short, long in pairs:
        one, other = (plan_of(PULL + f"/a {{ {text}\n pull {{ path /p }} }}") for text in (short, long))
        assert one.routes == other.routes
        assert one.waiting == other.waiting


def test_routes_keep_the_order_of_the_file_whatever_their_channel() -> None:
    plan = compiled(EXAMPLES["channels"]).usable()
    assert [(each.path, each.channel) for each in plan.routes] == [
        ("/jobs/deploy", RouteChannel.OUTBOUND),
        ("/jobs/report", RouteChannel.INTERNAL),
        ("/jobs/cleanup", RouteChannel.INTERNAL),
        ("/in/a", RouteChannel.INBOUND),
        ("/in/b", RouteChannel.INBOUND),
        ("/jobs/notify", RouteChannel.OUTBOUND),
    ]


def test_a_file_with_everything_compiles_to_all_of_it() -> None:
    plan = compiled(EXAMPLES["everything"], environment=ENVIRONMENT).usable()
    github, own, simple, asked, exec_ = plan.routes
    assert (github.labels is not None and github.labels.application, github.max_body) == ("github", 512 << 10)
    assert github.rate_limit is not None
    assert dataclasses.astuple(github.rate_limit) == (25.0, 25)
    assert github.conditions[1].hosts == {"hooks.example", "*.hooks.example"}
    assert github.auth.hmac is not None
    assert (github.auth.hmac.provider, github.auth.hmac.secret_names) == ("github", ("S1",))
    assert (github.publish.direct, github.publish.managed) == (False, True)
    assert own.auth.hmac is not None
    assert own.auth.hmac.secret_names == ("S1", "S2")
    assert own.auth.hmac.nonce_header == "X-Once"
    assert simple.mode is RouteMode.COMMAND
    assert simple.command is not None
    assert dataclasses.astuple(simple.command) == ("discord-bot", "notify-user", "hooks", "X-Id", True)
    assert simple.auth.basic[0].password == "correct horse"
    assert [each.url for each in asked.targets] == ["https://ci.example/build", "https://other.example/in"]
    assert exec_.targets[0].environment == (("DEPLOY_ENV", "production"), ("API_KEY", "correct horse"))
    assert plan.ingress.tls is not None
    assert plan.ingress.tls.clients is ClientCertificates.REQUIRE_AND_VERIFY
    assert plan.publish_policy.actor_allow == ("ci-bot", "direct")
    assert plan.waiting.bury_oldest
    assert plan.secrets[1].version is not None
    assert plan.secrets[1].version.from_unix_ns % SECOND == SECOND // 2


def test_a_plan_is_frozen_and_compares_whole() -> None:
    text = PULL + "/a { deliver https://x.example { header X {env.H} } }"
    one, other = (plan_of(text, environment={"H": value}) for value in "ab")
    assert one != other
    assert hash(one) != hash(other)
    with pytest.raises(dataclasses.FrozenInstanceError):
        one.tenant = "x"  # type: ignore[misc]


def test_a_plan_says_which_of_its_parts_do_not_run() -> None:
    running = frozenset({EdgePart.INGRESS, EdgePart.PULL})
    found = compile_text(EXAMPLES["channels"], running=running)
    assert found.plan is not None
    assert [(each.part, each.first_line) for each in found.plan.dormant] == [(EdgePart.DELIVERY, 3)]
    assert compile_text(EXAMPLES["short_pull"], running=running).dormant == ()
    assert compile_text(EXAMPLES["short_pull"]).dormant == ()
    assert [each.part for each in compile_text(EXAMPLES["short_pull"], running=frozenset()).dormant] == [
        EdgePart.INGRESS,
        EdgePart.PULL,
    ]


@pytest.mark.parametrize(
    ("said", "clients"),
    [
        ("", ClientCertificates.REQUIRE_AND_VERIFY),
        ("client_auth require", ClientCertificates.REQUIRE_AND_VERIFY),
        ("client_auth request", ClientCertificates.VERIFY_IF_GIVEN),
        ("client_auth verify_if_given", ClientCertificates.VERIFY_IF_GIVEN),
        ("client_auth none", ClientCertificates.NONE),
    ],
)
def test_a_client_certificate_that_is_asked_for_is_verified(said: str, clients: ClientCertificates) -> None:
    found = compiled(f"ingress {{ tls {{ cert_file a; key_file b; client_ca c; {said} }} }}")
    assert found.plan is not None
    assert found.plan.ingress.tls is not None
    assert found.plan.ingress.tls.clients is clients
    warned = "client-auth-verifies" in [each.reason for each in found.warnings]
    assert warned == (said in ("client_auth require", "client_auth request"))


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("queue_retention { max_age off }", "ten-years"),
        ("dlq_retention { max_age 0 }", "ten-years"),
        ("pull_api { auth token env:T; default_lease_ttl 100ms }", "lease-raised"),
        (PULL + "/a { queue memory; pull { path /p } }", "memory-backend"),
        (PULL + "/a { pull { path /p } }", "body-over-message"),
        ("/a { deliver http://x.example {} }", "https-only"),
        ("vars { A vault:x#y }", "comment-in-word"),
        (TIMED % ("env:S", "X-Id"), "idempotency-unused"),
        (TIMED % ("{ provider stripe; secret env:S }", "X-Id"), "idempotency-unused"),
        (TIMED % ("{ provider standard_webhooks; secret env:S }", "X-Id"), "idempotency-unused"),
        (CERTIFIED % "", "mtls-without-client-ca"),
        (CERTIFIED % "ingress { tls { cert_file a; key_file b } }", "mtls-without-client-ca"),
        (
            CERTIFIED % "ingress { tls { cert_file a; key_file b; client_ca c; client_auth none } }",
            "mtls-without-client-ca",
        ),
    ],
)
def test_a_value_that_means_something_else_here_is_warned_of(text: str, reason: str) -> None:
    found = compiled(text if "vars" not in text else text + "\n}")
    assert found.ok
    assert [each.reason for each in found.warnings].count(reason) == 1


@pytest.mark.parametrize(
    "text",
    [
        TIMED % ("{ provider github; secret env:S }", "X-Id"),
        TIMED % ("{ provider standard_webhooks; secret env:S }", "Webhook-Id"),
        "/a { auth hmac env:S\n idempotency header X-Id\n command bot ping }",
        PULL + "/a { idempotency header X-Id\n pull { path /p } }",
        CERTIFIED % "ingress { tls { cert_file a; key_file b; client_ca c } }",
    ],
)
def test_ids_and_certificates_that_count_are_not_warned_of(text: str) -> None:
    found = compiled(text)
    assert found.ok
    assert not {"idempotency-unused", "mtls-without-client-ca"} & {each.reason for each in found.warnings}


@pytest.mark.parametrize(
    ("written", "ns"),
    [
        ("0", 0),
        ("500ms", SECOND // 2),
        ("1h30m", 5400 * SECOND),
        ("1.5s", 3 * SECOND // 2),
        ("7d", 7 * DAY),
        ("off", None),
    ],
)
def test_durations(written: str, ns: int | None) -> None:
    plan = plan_of(f"delivered_retention {{ max_age {written} }}")
    assert plan.waiting.delivered_max_age_ns == (ns or None)


@pytest.mark.parametrize(
    ("written", "size"), [("1", 1), ("1b", 1), ("2KB", 2048), ("1mb", 1 << 20), ("1024gb", 1 << 40)]
)
def test_sizes(written: str, size: int) -> None:
    (route,) = plan_of(PULL + f"/a {{ max_body {written}; pull {{ path /p }} }}").routes
    assert route.max_body == size
