"""Every compile error of the language: its reason, and the place of the word that has to change."""

from __future__ import annotations

import pytest

from snavio.edge.requests import BadPath, request_path
from tests.support.hookaidofiles import PULL, compiled, reasons

ROUTE = PULL + "/a { pull { path /p } "
OUT = "outbound /o { deliver https://x.example {} "
IN = PULL + "internal /i { pull { path /p } "


def route(text: str) -> str:
    return f"{ROUTE}\n{text}\n}}"


def target(text: str, url: str = "https://x.example") -> str:
    return f"/a {{ deliver {url} {{\n{text}\n}} }}"


def top(text: str) -> str:
    return route("") + "\n" + text


CASES = {
    # Channels: eight rules.
    "outbound without deliver": ("outbound /o { publish on }", "outbound-requires"),
    "outbound with auth": (OUT + "auth hmac env:S }", "outbound-forbids"),
    "outbound with match": (OUT + "match { host x.example } }", "outbound-forbids"),
    "outbound with rate_limit": (OUT + "rate_limit { rps 1 } }", "outbound-forbids"),
    "outbound with pull": (PULL + OUT + "pull { path /p } }", "outbound-forbids"),
    "internal without pull": ("internal /i { publish on }", "internal-requires"),
    "internal with auth": (IN + "auth basic u p }", "internal-forbids"),
    "internal with match": (IN + "match { host x.example } }", "internal-forbids"),
    "internal with rate_limit": (IN + "rate_limit { rps 1 } }", "internal-forbids"),
    "internal with deliver": (IN + "deliver https://x.example {} }", "internal-forbids"),
    "outbound in its wrapper with pull": (PULL + "outbound { /o { pull { path /p } } }", "outbound-forbids"),
    "outbound with command": (OUT + "command bot ping }", "outbound-forbids"),
    # Modes.
    "pull and deliver": (route("deliver https://x.example {}"), "two-modes"),
    "pull and command": (route("command bot ping"), "two-modes"),
    "deliver and command": ("/a { deliver https://x.example {}\n command bot ping }", "two-modes"),
    "no mode": ("/a { auth hmac env:S }", "mode-missing"),
    # Labels.
    "application alone": (route("application a"), "labels-incomplete"),
    "endpoint_name alone": (route("endpoint_name a"), "labels-incomplete"),
    "label with a blank": (route('application "a b"; endpoint_name x'), "bad-name"),
    "label twice": (
        route("application a; endpoint_name x") + "/b { application a; endpoint_name x; pull { path /q } }",
        "duplicate-labels",
    ),
    # What is there twice.
    "path twice": (top("/a/ { pull { path /q } }"), "duplicate-path"),
    "path twice in channels": (top("internal /a { pull { path /q } }"), "duplicate-path"),
    "matcher twice": (top("@m { host a.example }\n@m { host b.example }"), "duplicate-matcher"),
    "secret twice": (
        top(
            'secrets { secret s { value env:A; valid_from "2026-01-01T00:00:00Z" }\n secret s { runtime on } }'
        ),
        "duplicate-secret",
    ),
    "target twice": (
        "/a { deliver https://x.example {}\n deliver https://x.example {} }",
        "duplicate-target",
    ),
    "header of a target twice": (target("header X-A 1; header x-a 2"), "duplicate-header"),
    "header of a matcher with two values": (top("@m { header X 1; header x 2 }"), "duplicate-header"),
    "pull path twice": (top("/b { pull { path /p } }"), "duplicate-pull-path"),
    "pull path of an operation": (top("/b { pull { path /p/ack } }"), "duplicate-pull-path"),
    "scalar twice": ("ingress { listen :1\n listen :2 }", "duplicate"),
    "block twice": ("ingress { listen :1 }\ningress { listen :2 }", "duplicate"),
    "short and long form": (route("queue sqlite; queue { backend sqlite }"), "duplicate"),
    "two forms of publish.direct": (route("publish.direct on; publish { direct off }"), "duplicate"),
    "variable twice": ("vars { A 1; A 2 }", "duplicate"),
    "keyword twice": (target("retry max 1 max 2"), "duplicate"),
    "user twice": (route("auth basic u a; auth basic u b"), "bad-user"),
    # Routes that no request reaches.
    "shadowed route": (top("/a/b { pull { path /q } }"), "shadowed-route"),
    "shadowed by everything": (
        PULL + "/ { pull { path /p } }\n/a/b/c { pull { path /q } }",
        "shadowed-route",
    ),
    "no common method": (
        PULL + "@g { method GET }\n/a { match @g; match { method PUT }\n pull { path /p } }",
        "never-matches",
    ),
    # Sockets.
    "socket spelled twice": (
        "ingress { listen :8080 }\nadmin_api { listen 0.0.0.0:8080; prefix /x; auth token env:T }",
        "socket-alias",
    ),
    "socket spelled twice in IPv6": (
        "ingress { listen :8080 }\nadmin_api { listen [::]:8080; prefix /x; auth token env:T }",
        "socket-alias",
    ),
    "loopback spelled twice": (
        "ingress { listen localhost:80 }\nadmin_api { listen 127.0.0.1:80; prefix /x; auth token env:T }",
        "socket-alias",
    ),
    "one address inside of all": (
        "ingress { listen :8080 }\nadmin_api { listen 127.0.0.1:8080; prefix /x }",
        "socket-overlap",
    ),
    "shared port without prefix": (
        "ingress { listen :8080 }\nadmin_api { listen :8080; auth token env:T }",
        "shared-prefix",
    ),
    "shared port with one prefix": (
        "pull_api { listen :9; prefix /x; auth token env:T }\nadmin_api { listen :9; prefix /x/y; auth token env:T }",
        "shared-prefix",
    ),
    "shared port with other TLS": (
        "ingress { listen :8080; tls { cert_file a; key_file b } }\n"
        "admin_api { listen :8080; prefix /x; auth token env:T }",
        "shared-tls",
    ),
    "catch-all against a shared prefix": (
        "ingress { listen :8080 }\npull_api { listen :8080; prefix /x; auth token env:T }\n/ { pull { path /p } }",
        "shared-prefix-route",
    ),
    "route inside of a shared prefix": (
        "ingress { listen :8080 }\npull_api { listen :8080; prefix /x; auth token env:T }\n/x/y { pull { path /p } }",
        "shared-prefix-route",
    ),
    "metrics on a shared port": (
        "ingress { listen :8080 }\nobservability { metrics { listen :8080 } }",
        "port-not-shared",
    ),
    # Open doors.
    "admin_api without token": ("admin_api { listen :2019 }", "admin-open"),
    "admin_api beside ingress": (
        "ingress { listen 127.0.0.1:80 }\nadmin_api { listen 127.0.0.1:80; prefix /x }",
        "admin-open",
    ),
    "pull route without token": ("/a { pull { path /p } }", "pull-without-token"),
    "hmac without secret": (route("auth hmac {}"), "hmac-without-secret"),
    "hmac without secret and with options": (route("auth hmac { tolerance 5m }"), "hmac-without-secret"),
    "basic with a reference": (route("auth basic u env:PASSWORD"), "literal-reference"),
    "forward beside hmac": (route("auth forward https://x.example; auth hmac env:S"), "auth-exclusive"),
    "forward beside basic": (route("auth forward https://x.example; auth basic u p"), "auth-exclusive"),
    "empty matcher": (top("@m { }"), "matcher-empty"),
    # Signatures.
    "headers equal by a default": (
        route("auth hmac { secret env:S; nonce_header x-signature }"),
        "headers-equal",
    ),
    "sign headers equal by a default": (
        target("sign hmac env:S; sign timestamp_header x-hookaido-signature"),
        "headers-equal",
    ),
    "provider with options": (
        route("auth hmac { provider github; secret env:S; tolerance 5m }"),
        "provider-option",
    ),
    "unknown provider": (route("auth hmac { provider githb; secret env:S }"), "bad-value"),
    "sign header without key": (target("sign signature_header X-S"), "sign-without-hmac"),
    "selection without key": (target("sign secret_selection newest_valid"), "sign-without-hmac"),
    "selection without named secrets": (
        target("sign hmac env:S; sign secret_selection oldest_valid"),
        "selection-without-ref",
    ),
    "unknown secret of a target": (target("sign hmac secret_ref none"), "unknown-secret"),
    "unknown secret of a route": (route("auth hmac secret_ref none"), "unknown-secret"),
    "unknown matcher": (route("match @none"), "unknown-matcher"),
    "exec with sign": ("/a { deliver exec /bin/true {\n sign hmac env:S\n } }", "refused"),
    # Values.
    "size that overflows": (route("max_body 99999999999999999999gb"), "size-too-large"),
    "size over 1024gb": (route("max_body 1025gb"), "size-too-large"),
    "size of nothing": (route("max_body 0"), "bad-value"),
    "reversed window": (
        'secrets { secret s { value env:A; valid_from "2026-02-01T00:00:00Z"; valid_until "2026-01-01T00:00:00Z" } }',
        "window-reversed",
    ),
    "URL without scheme": (target("", "x.example/in"), "bad-url"),
    "URL without host": (target("", "https:///in"), "bad-url"),
    "URL with a password": (target("", "https://u:p@x.example"), "bad-url"),
    "unknown scheme of a reference": (route("auth hmac evn:S"), "bad-reference"),
    "reference to nothing": (route("auth hmac env:"), "bad-reference"),
    "reference in a pull token": ("pull_api { auth token plain }", "bad-reference"),
    "concurrency over 10000": ("defaults { deliver { concurrency 10001 } }", "bad-value"),
    "route concurrency over 10000": (
        "/a { deliver https://x.example {}\n deliver_concurrency 10001 }",
        "bad-value",
    ),
    "tracing insecure with tls": (
        "observability { tracing { collector https://o.example; insecure on; tls { ca_file a } } }",
        "insecure-with-tls",
    ),
    "tracing header with a line break": (
        'observability { tracing { collector https://o.example; header A "a\\r\\nB: c" } }',
        "bad-header",
    ),
    "tracing header twice": (
        "observability { tracing { collector https://o.example; header A 1; header a 2 } }",
        "duplicate-header",
    ),
    "postgres": (route("queue postgres"), "refused"),
    "grpc_listen": ("pull_api { auth token env:T; grpc_listen :1 }", "refused"),
    "mixed backends": (route("queue memory") + "/b { pull { path /q } }", "mixed-backends"),
    "max_versions without runtime": (
        'secrets { secret s { value env:A; valid_from "2026-01-01T00:00:00Z"; max_versions 3 } }',
        "runtime-missing",
    ),
    "log to a file without path": ("observability { access_log { output file } }", "path-missing"),
    "path of a log to nowhere": ("observability { runtime_log { path /x } }", "path-unused"),
    "client_auth without CA": (
        "ingress { tls { cert_file a; key_file b; client_auth require_and_verify } }",
        "client-ca-missing",
    ),
    "half of a certificate": ("ingress { tls { cert_file a } }", "tls-incomplete"),
    "lease longer than the longest": (
        "pull_api { auth token env:T; default_lease_ttl 2m; max_lease_ttl 1m }",
        "lease-too-long",
    ),
    "wait longer than the longest": (
        "pull_api { auth token env:T; default_max_wait 2m; max_wait 1m }",
        "wait-too-long",
    ),
    "cap under base": (target("retry base 2m cap 2s"), "retry-cap"),
    "path with dots": (PULL + "/a/../b { pull { path /p } }", "bad-path"),
    "path with an empty segment": (PULL + "/a//b { pull { path /p } }", "bad-path"),
    "path with a hidden slash": (PULL + "/a%2Fb { pull { path /p } }", "bad-path"),
    "path with a hidden letter": (PULL + "/a%41b { pull { path /p } }", "bad-path"),
    "path with a hidden line break": (PULL + "/a%0Ab { pull { path /p } }", "bad-path"),
    "circle of variables": ("vars { A {vars.B}; B {vars.A} }", "vars-cycle"),
    "unknown variable": ("vars { A {vars.B} }", "unknown-variable"),
    # Form.
    "unknown directive": ("ingres { listen :1 }", "unknown-directive"),
    "unknown directive in a block": ("ingress { lisen :1 }", "unknown-directive"),
    "unknown kind of auth": (route("auth hmca env:S"), "unknown-directive"),
    "value missing": ("ingress { listen }", "value-missing"),
    "value forgotten above a directive": ("defaults { max_body\n max_headers 1kb }", "value-missing"),
    "value too many": ("ingress { listen :1 :2 }", "value-too-many"),
    "half of a pause": (target("pause after 3"), "value-missing"),
    "header of ids missing": (route("idempotency header"), "value-missing"),
    "label missing": (route("application; endpoint_name x"), "value-missing"),
    "block missing": ("ingress", "block-missing"),
    "block too many": ("ingress { listen :1 { } }", "no-block"),
    "unclosed block": ("ingress {", "unclosed-block"),
    "unclosed quote": ('ingress { listen ":1\n}', "unclosed-quote"),
    "stray brace": ("}", "stray-brace"),
    "quoted path without slash": (PULL + '"a" { pull { path /p } }', "bad-path"),
    "no-break space": ("ingress\u00a0{ }", "control-character"),
}


@pytest.mark.parametrize("name", CASES)
def test_compile_error(name: str) -> None:
    text, reason = CASES[name]
    found = compiled(text)
    assert reason in [each.reason for each in found.mistakes]
    assert found.plan is None
    lines = text.split("\n")
    for each in found.mistakes:
        assert 1 <= each.at.line <= len(lines)
        assert 1 <= each.at.column <= len(lines[each.at.line - 1]) + 1
        assert each.sentence.endswith((".", "?"))


@pytest.mark.parametrize(
    "name", [name for name in CASES if CASES[name][1] not in ("unclosed-quote", "unclosed-block")]
)
def test_one_mistake_is_told_once(name: str) -> None:
    found = compiled(CASES[name][0]).mistakes
    assert len({each.at.line for each in found}) <= 2
    assert len(found) <= 2, found


@pytest.mark.parametrize(
    ("text", "at", "suggestion"),
    [
        ("ingress {\n  lisen :1\n}", "2:3", "listen"),
        ("ingres { listen :1 }", "1:1", "ingress"),
        (ROUTE + "auth hmca env:S }", "2:28", "hmac"),
        (ROUTE + "match @githb }\n@github { host x.example }", "2:29", "@github"),
        (ROUTE + 'auth hmac secret_ref "mian" }\nsecrets { secret main { runtime on } }', "2:44", "main"),
        (ROUTE + "auth hmac { provider strpe; secret env:S } }", "2:44", "stripe"),
        ("vars { HOST a; URL https://{vars.HOTS}/x }", "1:20", "HOST"),
        ("admin_api { listen 127.0.0.1:1; tsl { cert_file a } }", "1:33", "tls"),
        (PULL + "/%61%2d%C3%BC/%7e { pull { path /p } }", "2:1", "/a-%C3%BC/~"),
    ],
)
def test_a_near_miss_is_suggested_where_it_stands(text: str, at: str, suggestion: str) -> None:
    (found,) = compiled(text).mistakes
    assert (str(found.at), found.suggestion) == (at, suggestion)
    assert f"Did you mean `{suggestion}`?" in str(found)


def test_a_path_out_of_a_variable_is_not_shown_in_a_better_form() -> None:
    (found,) = compiled(PULL + "/{env.HOOK} { pull { path /p } }", environment={"HOOK": "%61"}).mistakes
    assert (found.reason, found.suggestion) == ("bad-path", "")


@pytest.mark.parametrize("place", range(256))
def test_a_path_of_a_route_is_accepted_exactly_when_a_request_can_have_it(place: int) -> None:
    path = f"/a%{place:02x}b"
    try:
        request_path(path.encode())
    except BadPath:
        assert reasons(PULL + f"{path} {{ pull {{ path /p }} }}") == ["bad-path"]
    else:
        assert reasons(PULL + f"{path} {{ pull {{ path /p }} }}") == []


def test_every_mistake_of_a_file_is_found_at_once() -> None:
    text = (
        "ingres { listen :1 }\n/a { auth hmac {}\n max_body 1x\n foo { bar { } }\n}\n"
        "/a { deliver nowhere {} }\nvars { A {vars.A} }"
    )
    assert [(each.at.line, each.reason) for each in compiled(text).mistakes] == [
        (1, "unknown-directive"),
        (2, "mode-missing"),
        (2, "hmac-without-secret"),
        (3, "bad-value"),
        (4, "unknown-directive"),
        (6, "duplicate-path"),
        (6, "bad-url"),
        (7, "vars-cycle"),
    ]


def test_a_route_below_another_is_not_shadowed_when_the_other_leaves_requests_over() -> None:
    narrow = [
        "method GET",
        "header X 1",
        "host a.example",
        "query q 1",
        "remote_ip 192.0.2.1",
        "header_exists X",
    ]
    for condition in narrow:
        text = PULL + f"/a {{ match {{ {condition} }}\n pull {{ path /p }} }}\n/a/b {{ pull {{ path /q }} }}"
        assert reasons(text) == [], condition


@pytest.mark.parametrize(
    ("above", "below"),
    [
        ("header_exists X", "header x 1"),
        ("host *.example", "host a.example"),
        ("host *", "query q 1"),
        ("method POST PUT", "method PUT"),
        ("remote_ip 192.0.2.1 192.0.2.2", "remote_ip 192.0.2.2"),
    ],
)
def test_a_route_is_shadowed_by_conditions_that_follow_from_its_own(above: str, below: str) -> None:
    text = (
        PULL
        + f"/a {{ match {{ {above} }}\n pull {{ path /p }} }}\n/a/b {{ match {{ {below} }}\n pull {{ path /q }} }}"
    )
    assert reasons(text) == ["shadowed-route"]


def test_other_boundaries_and_other_orders_are_no_shadow() -> None:
    text = PULL + "/a/b { pull { path /p } }\n/a { pull { path /q } }\n/ab { pull { path /r } }"
    assert reasons(text) == []
    assert reasons(PULL + "internal /a { pull { path /p } }\n/a/b { pull { path /q } }") == []


def test_more_mistakes_than_anybody_reads_are_counted() -> None:
    found = compiled("nonsense {}\n" * 500)
    assert (len(found.mistakes), found.left_out) == (100, 400)


def test_more_routes_than_a_gateway_takes_are_refused() -> None:
    text = PULL + "".join(f"/r{number} {{ pull {{ path /p{number} }} }}\n" for number in range(5001))
    (found,) = compiled(text).mistakes
    assert (found.reason, found.at.line) == ("too-many-routes", 5002)
