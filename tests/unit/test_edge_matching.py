"""Routes of requests: paths that are refused, the first match, and an obvious twin that looks at every route."""

from __future__ import annotations

import ipaddress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from snavio.edge.matching import RouteTable
from snavio.edge.plan import EdgeRoute, RouteChannel
from snavio.edge.requests import BadPath, EdgeRequest, address_of, client_address, matched_path, request_path
from tests.support.hookaidofiles import plan_of

API = "pull_api { auth token raw:t }\n"


def table(text: str) -> RouteTable:
    return RouteTable(plan_of(API + text).routes)


def request(
    path: str, *, method: str = "POST", query: str = "", remote: str = "192.0.2.1", **headers: str
) -> EdgeRequest:
    named = [(name.replace("_", "-").encode(), value.encode()) for name, value in headers.items()]
    return EdgeRequest(method, request_path(path.encode()), query, named, address_of(remote))


def taken(found: RouteTable, asked: EdgeRequest) -> str | None:
    match = found.find(asked)
    return None if match.place is None else found.routes[match.place].path


@pytest.mark.parametrize(
    "path",
    [
        "//a", "/a//b", "/a//", "/a/./b", "/a/../b", "/..", "/.", "/a/..", "/a/.", "/a%2fb", "/a%2Fb", "/%2e%2e/b",
        "/a/%2E", "/%61dmin", "/a%5cb", "/a\\b", "/a%00", "/a%0d%0ab", "/a b", "/a%", "/a%2", "/a%zz", "a", "", "*",
        "http://x/a", "/\x00", "/é", "/a?b", "/a#b", "/" + "a" * 2048,
    ],
)  # fmt: skip
def test_a_path_with_two_readings_is_refused(path: str) -> None:
    with pytest.raises(BadPath):
        request_path(path.encode("utf-8"))


@pytest.mark.parametrize(
    ("path", "compared"),
    [
        ("/", "/"),
        ("/a", "/a"),
        ("/a/", "/a"),
        ("/a/b/", "/a/b"),
        ("/%c3%a9", "/%C3%A9"),
        ("/a;v=1", "/a;v=1"),
        ("/...", "/..."),
    ],
)
def test_other_paths_are_compared_in_one_form(path: str, compared: str) -> None:
    assert matched_path(request_path(path.encode())) == compared


def test_a_route_takes_its_path_and_what_is_below_it_and_no_other_word() -> None:
    found = table("/hooks { pull { path /p } }")
    assert [taken(found, request(path)) for path in ("/hooks", "/hooks/", "/hooks/x/y")] == ["/hooks"] * 3
    assert [taken(found, request(path)) for path in ("/hooks-x", "/hook", "/", "/x/hooks")] == [None] * 4


def test_the_first_route_of_the_file_takes_a_request_that_several_would() -> None:
    found = table(
        "/a { match { header X-Kind one }\n pull { path /1 } }\n/a/b { pull { path /2 } }\n/ { pull { path /3 } }"
    )
    assert taken(found, request("/a/b", x_kind="one")) == "/a"
    assert taken(found, request("/a/b", x_kind="two")) == "/a/b"
    assert taken(found, request("/a", x_kind="two")) == "/"


def test_another_method_is_told_what_is_permitted_and_falls_through_to_a_route_that_permits_it() -> None:
    found = table(
        "/a { match { method PUT }\n pull { path /1 } }\n/a/b { match { method PATCH }\n pull { path /2 } }"
    )
    match = found.find(request("/a/b", method="DELETE"))
    assert match.place is None and match.methods == frozenset({"PUT", "PATCH"})
    assert taken(found, request("/a/b", method="PATCH")) == "/a/b"


def test_every_condition_has_to_hold_and_the_one_that_did_not_is_named() -> None:
    found = table(
        "/a { match { host api.example.com *.hooks.example; header X-A one; header_exists X-B; query k v; "
        "query_exists q; remote_ip 203.0.113.0/24 2001:db8::/32 }\n pull { path /1 } }"
    )
    good = {"host": "API.example.com:8080", "x_a": "one", "x_b": ""}
    assert taken(found, request("/a", query="k=v&q", remote="203.0.113.9", **good)) == "/a"
    assert (
        taken(
            found, request("/a", query="q=&k=v", remote="2001:db8::1", **{**good, "host": "x.hooks.example"})
        )
        == "/a"
    )
    for fault, asked in {
        "host": request("/a", query="k=v&q", remote="203.0.113.9", **{**good, "host": "hooks.example"}),
        "header x-a": request("/a", query="k=v&q", remote="203.0.113.9", **{**good, "x_a": "One"}),
        "header_exists x-b": request(
            "/a", query="k=v&q", remote="203.0.113.9", host="api.example.com", x_a="one"
        ),
        "query k": request("/a", query="k=w&q", remote="203.0.113.9", **good),
        "query_exists q": request("/a", query="k=v", remote="203.0.113.9", **good),
        "remote_ip": request("/a", query="k=v&q", remote="203.0.114.9", **good),
    }.items():
        match = found.find(asked)
        assert (match.place, match.passed) == (None, (("/a", fault),))


def test_the_client_behind_proxies_is_the_last_address_that_no_trusted_one_wrote() -> None:
    trusted = [ipaddress.ip_network("10.0.0.0/8")]

    def client(peer: str, *forwarded: str) -> str:
        return str(client_address(peer, forwarded, trusted))

    assert client("198.51.100.1", "203.0.113.5") == "198.51.100.1"
    assert client("10.0.0.1", "203.0.113.5") == "203.0.113.5"
    # What a client wrote itself stands left of what the proxy added.
    assert client("10.0.0.1", "127.0.0.1, 203.0.113.5, 10.0.0.2") == "203.0.113.5"
    assert client("10.0.0.1", "127.0.0.1", "203.0.113.5") == "203.0.113.5"
    assert client("10.0.0.1", "no address") == "10.0.0.1"
    assert client("::ffff:10.0.0.1", "::ffff:203.0.113.5") == "203.0.113.5"


WORDS = ("a", "b", "ab", "c")
PATHS = st.lists(st.sampled_from(WORDS), max_size=4).map(lambda words: "/" + "/".join(words))


def twin(routes: tuple[EdgeRoute, ...], asked: EdgeRequest) -> str | None:
    """The manual's rule, with a look at every route."""
    for route in routes:
        below = route.path == "/" or asked.path == route.path or asked.path.startswith(route.path + "/")
        if route.channel is RouteChannel.INBOUND and below and asked.method in route.methods:
            headers = {each for condition in route.conditions for each in condition.headers_present}
            if all(asked.has(name) for name in headers):
                return route.path
    return None


@given(st.lists(st.tuples(PATHS, st.sampled_from(["POST", "PUT"]), st.booleans()), min_size=1, max_size=8), PATHS,
       st.sampled_from(["POST", "PUT"]), st.booleans())  # fmt: skip
def test_a_table_finds_what_a_look_at_every_route_finds(
    wanted: list[tuple[str, str, bool]], path: str, method: str, marked: bool
) -> None:
    unique = {each[0]: each for each in wanted}
    # Built by hand: a file in which one route hides another does not compile.
    (model,) = plan_of(API + "/m { match { header_exists X-M }\n pull { path /p } }").routes
    (plain,) = plan_of(API + "/m { pull { path /p } }").routes
    import dataclasses

    routes = tuple(
        dataclasses.replace(model if mark else plain, path=where, methods=frozenset({which}))
        for where, which, mark in unique.values()
    )
    asked = EdgeRequest(method, path, "", [(b"x-m", b"")] if marked else [], None)
    assert taken(RouteTable(routes), asked) == twin(routes, asked)
