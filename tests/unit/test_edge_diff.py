"""Differences of two Hookaidofiles by route and directive, and when each of them is in force."""

from __future__ import annotations

import pytest

from snavio.edge.diffing import differences
from snavio.edge.formatting import formatted
from snavio.edge.language import ReloadClass
from tests.support.hookaidofiles import EXAMPLES, tree_of


def changes(before: str, after: str) -> list[str]:
    return [str(each) for each in differences(tree_of(before.encode()), tree_of(after.encode()))]


@pytest.mark.parametrize("name", EXAMPLES)
def test_a_formatted_file_does_not_differ(name: str) -> None:
    tree = tree_of(EXAMPLES[name])
    assert differences(tree, tree_of(formatted(tree).encode())) == ()


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("/a { auth hmac env:S }", "# c\n/a {\n auth hmac { secret env:S } }"),
        ("/a { publish.direct off }", "/a { publish { direct off } }"),
        ("/a { queue memory }", '"/a/" { queue { backend "memory" } }'),
        ("internal /a { pull { path /p } }", "internal { /a { pull { path /p } } }"),
        ("/a { pull { path /p } }", "inbound { /a { pull { path /p } } }"),
        ("observability { metrics on }", "observability { metrics { enabled on } }"),
    ],
)
def test_layout_and_short_forms_are_no_difference(one: str, other: str) -> None:
    assert changes(one, other) == []


@pytest.mark.parametrize(
    ("before", "after", "said"),
    [
        ("ingress { listen :1 }", "ingress { listen :2 }", ["~ ingress › listen: :1 → :2  [restart]"]),
        (
            "/a { rate_limit { rps 1 } }",
            "/a { rate_limit { rps 2 } }",
            ["~ route /a › rate_limit › rps: 1 → 2  [live]"],
        ),
        ("/a { }", "/b { }", ["+ route /b  [live]", "- route /a  [live]"]),
        ("internal /a { }", "outbound /a { }", ["~ route /a: internal → outbound  [live]"]),
        ("", "admin_api { }", ["+ admin_api  [restart]"]),
        (
            "",
            "pull_api { max_batch 5 }",
            ["+ pull_api  [restart]", "+ pull_api › max_batch 5  [live]"],
        ),
        ("", "ingress { rate_limit { rps 1 } }", ["+ ingress › rate_limit › rps 1  [live]"]),
        (
            "/a { queue sqlite }",
            "/a { queue { backend memory } }",
            ["~ route /a › queue › backend: sqlite → memory  [restart]"],
        ),
        (
            "/a { deliver https://x.example { timeout 1s } }",
            "/a { deliver https://x.example { timeout 2s; header X-A 1 } }",
            [
                "~ route /a › deliver https://x.example › timeout: 1s → 2s  [live]",
                "+ route /a › deliver https://x.example › header X-A *****  [live]",
            ],
        ),
        (
            "/a { }\n/b { }",
            "/b { }\n/a { }",
            ["~ route /b: place 2 → place 1  [live]", "~ route /a: place 1 → place 2  [live]"],
        ),
        ("/a { match @x }", "/a { match @y }", ["~ route /a › match: @x → @y  [live]"]),
        ("@m { method PUT }", "@m { method GET PUT }", ["~ @m › method: PUT → GET PUT  [live]"]),
    ],
)
def test_a_difference_is_told_by_its_route_and_directive(before: str, after: str, said: list[str]) -> None:
    assert changes(before, after) == said


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("/a { auth hmac raw:one-one }", "/a { auth hmac raw:two-two }"),
        ("/a { auth basic u one-one }", "/a { auth basic u two-two }"),
        ("vars { TOKEN one-one }", "vars { TOKEN two-two }"),
        ("observability { tracing { header A one-one } }", "observability { tracing { header A two-two } }"),
        ("pull_api { auth token one-one }", "pull_api { auth token two-two }"),
        ("/a { deliver exec /x { env K one-one } }", "/a { deliver exec /x { env K two-two } }"),
    ],
)
def test_a_changed_credential_is_named_and_not_shown(before: str, after: str) -> None:
    # An equality check that looked at what is shown would never bring a rotated token into force.
    (said,) = changes(before, after)
    assert "*****" in said
    assert "one-one" not in said
    assert "two-two" not in said


def test_references_to_secrets_are_shown() -> None:
    assert changes("/a { auth hmac env:A }", "/a { auth hmac env:B }") == [
        "~ route /a › auth hmac › secret: env:A → env:B  [live]"
    ]


def test_every_change_has_a_place_and_a_class() -> None:
    found = differences(tree_of(b""), tree_of(EXAMPLES["everything"]))
    assert {each.reload for each in found} == set(ReloadClass)
    assert all(each.at.line > 1 for each in found)
    back = differences(tree_of(EXAMPLES["everything"]), tree_of(b""))
    assert len(back) == len(found)
