"""Placeholders in both modes of trust, and secrets by reference: what is expanded, and what is never shown."""

from __future__ import annotations

import pytest

from snavio.edge.placeholders import MOST_EXPANDED, TextTrust
from snavio.edge.references import (
    SecretChoice,
    SecretReference,
    SecretScheme,
    SecretWindow,
    parse_reference,
    read_valid,
    signing_version,
    valid_versions,
)
from snavio.errors import BadRequest
from tests.support.hookaidofiles import PULL, compiled, plan_of

SECRET = "hunter-two-hunter"


def url_of(
    text: str, environment: dict[str, str] | None = None, files: dict[str, str] | None = None
) -> str | None:
    found = compiled(f"{text}\n", environment=environment, files=files).usable()
    return found.routes[0].targets[0].url


@pytest.mark.parametrize(
    ("written", "url"),
    [
        ("https://{$HOST}/x", "https://ci.example/x"),
        ('"https://{env.HOST}/x"', "https://ci.example/x"),
        ("https://{$NONE:other.example}/x", "https://other.example/x"),
        ("https://{file./host}/x", "https://from.file.example/x"),
        ("{vars.URL}", "https://ci.example/build/1"),
        ("{vars.BASE}/{vars.NUMBER}", "https://ci.example/1"),
    ],
)
def test_a_placeholder_is_replaced_inside_of_its_value(written: str, url: str) -> None:
    variables = "vars { URL {vars.BASE}/build/{vars.NUMBER}; BASE https://{$HOST}; NUMBER 1 }\n"
    text = f"{variables}/a {{ deliver {written} {{}} }}"
    assert url_of(text, {"HOST": "ci.example"}, {"/host": "from.file.example\n"}) == url


def test_an_empty_default_is_a_default() -> None:
    assert url_of("/a { deliver https://x.example/{$NONE:} {} }") == "https://x.example/"


def test_what_an_expansion_brings_in_is_not_expanded() -> None:
    # A variable's value is somebody else's text: it must not read this machine's files.
    plan = plan_of(
        PULL + "/a { auth basic u {env.A}; pull { path /p } }", environment={"A": "{file./etc/passwd}"}
    )
    assert plan.routes[0].auth.basic[0].password == "{file./etc/passwd}"


@pytest.mark.parametrize(
    ("value", "reason"),
    [
        ("{$NONE}", "variable-not-set"),
        ("{env.NONE}", "variable-not-set"),
        ("{env.}", "bad-placeholder"),
        ("{$A-B}", "bad-placeholder"),
        ("{file.}", "bad-placeholder"),
        ("{file./none}", "file-unreadable"),
        ("{vars.NONE}", "unknown-variable"),
    ],
)
def test_a_placeholder_without_value_is_a_mistake_at_its_word(value: str, reason: str) -> None:
    (found,) = compiled(f"tenant {value}").mistakes
    assert (found.reason, str(found.at)) == (reason, "1:8")


@pytest.mark.parametrize("length", [1, 2, 40])
def test_a_circle_of_variables_is_refused(length: int) -> None:
    lines = "\n".join(f"V{number} {{vars.V{(number + 1) % length}}}" for number in range(length))
    found = compiled(f"vars {{\n{lines}\n}}\n")
    assert {each.reason for each in found.mistakes} == {"vars-cycle"}


def test_variables_that_double_each_other_end() -> None:
    lines = "\n".join(f"V{number + 1} {{vars.V{number}}}{{vars.V{number}}}" for number in range(64))
    found = compiled(f"vars {{\nV0 ab\n{lines}\n}}\n")
    assert [each.reason for each in found.mistakes] == ["expansion-too-long"]
    assert found.mistakes[0].at.line == 2 + MOST_EXPANDED.bit_length() - 1


@pytest.mark.parametrize(
    "written",
    ["{$SECRET}", "{env.SECRET}", "{file./etc/passwd}", "{vars.S}", "x{env.SECRET}", '"{$SECRET:d}"'],
)
def test_a_candidate_expands_nothing(written: str) -> None:
    text = f"vars {{ S {{env.SECRET}} }}\n{PULL}/a {{ auth basic user {written}; pull {{ path /p }} }}"

    class Watched(dict[str, str]):
        def get(self, *_: object) -> str:
            raise AssertionError("a candidate read the environment")

    found = compiled(text, environment=Watched(SECRET=SECRET), trust=TextTrust.CANDIDATE)
    # It is checked as far as it can be, and is no plan: nothing could run the text as it stands.
    assert (found.mistakes, found.plan) == ((), None)
    assert "not-expanded" in [each.reason for each in found.warnings]


def test_a_candidate_without_placeholders_is_a_plan() -> None:
    found = compiled(PULL + "/a { pull { path /p } }", trust=TextTrust.CANDIDATE)
    assert found.plan is not None


def test_a_candidate_is_checked_beside_its_placeholders() -> None:
    text = (
        "admin_api { listen {$ADDRESS}; auth token {env.T} }\n"
        "/a { pull { path {vars.P}; auth token {env.T} }\n foo }"
    )
    found = compiled(text, trust=TextTrust.CANDIDATE)
    assert [each.reason for each in found.mistakes] == ["unknown-directive"]


@pytest.mark.parametrize(
    "text",
    [
        "tenant {env.SECRET}",
        "tenant x{$SECRET}",
        "ingress { listen {env.SECRET} }",
        PULL + "/a { auth hmac {env.SECRET}; pull { path /p } }",
        PULL + f"/a {{ auth hmac {SECRET}; pull {{ path /p }} }}",
        f"pull_api {{ auth token raw{SECRET} }}",
        'observability { tracing { collector https://o.example; header A "' + SECRET + '\\n" } }',
        PULL + f"/a {{ auth basic u env:{SECRET}; pull {{ path /p }} }}",
        "vars { S {env.SECRET} }\n/a { deliver {vars.S} {} }",
    ],
)
def test_no_mistake_shows_an_expanded_value_or_a_credential(text: str) -> None:
    found = compiled(text, environment={"SECRET": f"{SECRET} !"})
    assert found.mistakes
    assert SECRET not in "\n".join(map(str, found.mistakes))


def test_no_plan_shows_a_credential() -> None:
    text = f"pull_api {{ auth token raw:{SECRET} }}\n/a {{ auth basic u {SECRET}; pull {{ path /p }} }}"
    plan = plan_of(text)
    assert SECRET not in repr(plan)
    assert plan.pull_api is not None
    assert SECRET not in str(plan.pull_api.tokens[0])


@pytest.mark.parametrize(
    ("text", "scheme", "name"),
    [
        ("env:TOKEN_1", SecretScheme.ENV, "TOKEN_1"),
        ("file:/run/secrets/a b", SecretScheme.FILE, "/run/secrets/a b"),
        ("vault:hooks/github#key", SecretScheme.VAULT, "hooks/github#key"),
        ("raw:a:b", SecretScheme.RAW, "a:b"),
    ],
)
def test_a_reference_names_where_its_bytes_are(text: str, scheme: SecretScheme, name: str) -> None:
    assert parse_reference(text) == SecretReference(scheme, name)


@pytest.mark.parametrize(
    "text", ["", "env", "env:", "ENV:A", "evn:A", "env:1A", "env:A B", "raw:", "file: ", "raw:a\x00"]
)
def test_what_is_no_reference_is_refused_without_its_text(text: str) -> None:
    with pytest.raises(BadRequest) as refused:
        parse_reference(text)
    assert refused.value.reason == "bad-reference"


WINDOWS = (
    SecretWindow(SecretReference(SecretScheme.ENV, "OLD"), 100, 300),
    SecretWindow(SecretReference(SecretScheme.ENV, "NEW"), 200, None),
)


@pytest.mark.parametrize(
    ("at", "names"),
    [(99, []), (100, ["OLD"]), (199, ["OLD"]), (200, ["NEW", "OLD"]), (299, ["NEW", "OLD"]), (300, ["NEW"])],
)
def test_a_window_includes_its_beginning_and_not_its_end(at: int, names: list[str]) -> None:
    assert [each.reference.name for each in valid_versions(WINDOWS, at_unix_ns=at)] == names


def test_the_newest_or_the_oldest_valid_version_signs() -> None:
    def name(choice: SecretChoice, at: int) -> str | None:
        found = signing_version(WINDOWS, at_unix_ns=at, choice=choice)
        return found.reference.name if found else None

    assert [name(choice, 250) for choice in SecretChoice] == ["NEW", "OLD"]
    assert [name(choice, 350) for choice in SecretChoice] == ["NEW", "NEW"]
    assert [name(choice, 50) for choice in SecretChoice] == [None, None]


async def test_only_versions_that_are_valid_are_read() -> None:
    asked: list[str] = []

    class Vault:
        async def read(self, reference: SecretReference) -> bytes:
            asked.append(reference.name)
            return reference.name.encode()

    assert await read_valid(WINDOWS, Vault(), at_unix_ns=350) == (b"NEW",)
    assert asked == ["NEW"]
