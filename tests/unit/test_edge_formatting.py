"""Formatting of Hookaidofiles: the same tree, the same comments, and the same text the second time."""

from __future__ import annotations

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from snavio.edge.findings import FindingLog
from snavio.edge.formatting import formatted
from snavio.edge.language import ANY, FILE, LANGUAGE, MATCHER, PATH, Directive, DirectiveArgument
from snavio.edge.lexer import LexemeKind, lexemes_of
from snavio.edge.parsing import parse
from tests.support.hookaidofiles import ENVIRONMENT, EXAMPLES, compiled, tree_of

_TEXT = st.text(
    st.characters(exclude_characters='"\\', exclude_categories=("C", "Z")), min_size=1, max_size=9
)
_BARE = st.from_regex(r"[A-Za-z0-9:/._\-]{1,9}(;[a-z]|\{env\.[A-Z]{1,3}\}|\{vars\.X\})?", fullmatch=True)
_QUOTED = st.builds(
    '"{}"'.format, _TEXT | st.sampled_from(["", " ", "a # b", r"\d", r"\\", r"\"", "pull", "{"])
)
_COMMENT = st.builds("# {}".format, _TEXT)


def comments(text: str) -> list[str]:
    return sorted(each.raw for each in lexemes_of(text, FindingLog()) if each.kind is LexemeKind.COMMENT)


@pytest.mark.parametrize("name", EXAMPLES)
def test_every_example_compiles(name: str) -> None:
    found = compiled(EXAMPLES[name], environment=ENVIRONMENT)
    assert found.mistakes == ()
    assert found.plan is not None


@pytest.mark.parametrize("name", EXAMPLES)
def test_formatting_keeps_the_tree_and_a_formatted_file_formats_to_itself(name: str) -> None:
    tree = tree_of(EXAMPLES[name])
    text = formatted(tree)
    assert tree_of(text.encode()) == tree
    assert formatted(tree_of(text.encode())) == text


@pytest.mark.parametrize("name", EXAMPLES)
def test_formatting_keeps_every_comment(name: str) -> None:
    text = EXAMPLES[name].decode("utf-8-sig")
    assert comments(formatted(tree_of(EXAMPLES[name]))) == comments(text)


@pytest.mark.parametrize("name", EXAMPLES)
def test_a_formatted_file_compiles_to_an_equal_plan(name: str) -> None:
    before = compiled(EXAMPLES[name], environment=ENVIRONMENT).plan
    after = compiled(formatted(tree_of(EXAMPLES[name])), environment=ENVIRONMENT).plan
    assert before == after


def test_the_one_form_of_a_file() -> None:
    source = (
        b"#a\ningress{listen :8080;\n\n\n\nrate_limit{rps 5; burst 9}} # b\n/x{\n#c\n\n"
        b'deliver #d\n"https://x.example/" { \n } ; }\n#e'
    )
    assert formatted(tree_of(source)) == (
        "#a\n"
        "ingress {\n"
        "  listen :8080\n"
        "\n"
        "  rate_limit { rps 5; burst 9 }\n"
        "} # b\n"
        "/x {\n"
        "  #c\n"
        "\n"
        "  #d\n"
        '  deliver "https://x.example/" {}\n'
        "}\n"
        "#e\n"
    )


@pytest.mark.parametrize(
    "raw", [r'"\d+"', r'"a\\b"', r'"C:\temp"', '"a#b"', '"pull"', '""', "a;b", "{env.A}/{vars.B}"]
)
def test_quotes_and_escapes_are_written_back_as_they_stand(raw: str) -> None:
    text = f"vars {{ X {raw} }}\n"
    assert formatted(tree_of(text.encode())) == text


@pytest.mark.parametrize(
    ("raw", "text"),
    [
        (r'"a\nb\tc\rd"', "a\nb\tc\rd"),
        (r'"\"\\"', '"\\'),
        (r'"\d\q"', r"\d\q"),
        ("a;b", "a;b"),
        ("a{env.X}b{$Y:1}c", "a{env.X}b{$Y:1}c"),
    ],
)
def test_what_a_word_means(raw: str, text: str) -> None:
    assert [each.text for each in lexemes_of(raw, FindingLog())] == [text]


def test_a_semicolon_ends_a_directive_and_stays_inside_of_a_word() -> None:
    kinds = [each.kind.value for each in lexemes_of("a; b;c;} ;d;", FindingLog())]
    assert kinds == ["word", ";", "word", ";", "}", ";", "word", ";"]


def test_a_value_that_is_called_like_a_directive_stays_a_value() -> None:
    text = 'defaults {\n  publish_policy {\n    actor_allow direct "managed"\n    managed off\n  }\n}\n'
    # On the line of its directive the first bare word is a value; of the further ones only those in quotes.
    plan = compiled(text).plan
    assert plan is not None
    assert (plan.publish_policy.actor_allow, plan.publish_policy.managed) == (("direct", "managed"), False)
    assert formatted(tree_of(text.encode())) == text


def argument(one: DirectiveArgument) -> st.SearchStrategy[list[str]]:
    value = st.sampled_from(one.choices) | _QUOTED if one.choices else _QUOTED | _BARE
    some = st.lists(value, min_size=int(one.required), max_size=3 if one.many else 1)
    return some.map(lambda found: [one.keyword, *found] if one.keyword and found else found)


@st.composite
def statement(draw: st.DrawFn, row: Directive, depth: int) -> str:
    patterns = {
        ANY: _QUOTED | _BARE,
        PATH: st.builds("/{}".format, st.from_regex(r"[a-z0-9]{1,5}", fullmatch=True)),
        MATCHER: st.just("@m"),
    }
    words = [draw(patterns[each]) if each in patterns else each for each in row.name]
    for one in row.arguments:
        words += draw(argument(one))
    gap = draw(st.sampled_from([" ", "  ", "\t", " # in between\n "]))
    text = gap.join(words)
    if row.opens and (not row.closed or draw(st.booleans())):
        text += f" {{{draw(block(row.opens, depth + 1))}}}"
    return text


@st.composite
def block(draw: st.DrawFn, name: str = FILE, depth: int = 0) -> str:
    rows = [row for row in LANGUAGE[name].rows if not row.refused and (depth < 3 or not row.opens)]
    parts = [draw(st.sampled_from(["", " ", "\n", "\n\n\n", " # open\n"]))]
    for row in draw(st.lists(st.sampled_from(rows), max_size=4)) if rows else ():
        if draw(st.booleans()):
            parts.append(draw(_COMMENT) + "\n")
        parts.append(draw(statement(row, depth)))
        parts.append(draw(st.sampled_from([";", "\n", " ;\n\n", "\n\n\n", " # beside\n"])))
    return "".join(parts)


@settings(max_examples=200, deadline=None, suppress_health_check=list(HealthCheck))
@given(block())
def test_formatting_keeps_any_tree_of_the_language(text: str) -> None:
    findings = FindingLog()
    tree = parse(text.encode(), findings)
    assert tree is not None
    if findings.mistakes:
        return  # Such as a value that is called like the directive that may follow.
    written = formatted(tree)
    assert tree_of(written.encode()) == tree
    assert formatted(tree_of(written.encode())) == written
    assert comments(written) == comments(text)


def test_most_of_the_texts_that_are_drawn_are_read() -> None:
    # Otherwise the test above would test nothing.
    read = []

    @settings(max_examples=60, deadline=None, database=None, suppress_health_check=list(HealthCheck))
    @given(block())
    def draw(text: str) -> None:
        findings = FindingLog()
        parse(text.encode(), findings)
        read.append(not findings.mistakes)

    draw()
    assert sum(read) > len(read) / 2
