"""The count of source lines, by which a step that is to make the code smaller is judged."""

from __future__ import annotations

from tools.count_lines import lines_of

SOURCE = '''"""Module docstring."""

# A comment.
X = 1  # with a comment
"""What X is."""


def f(
    a,
):
    """Function docstring,
    in two lines."""
    text = """A text
    that is no docstring."""
    return text
'''


def test_lines_of_code_are_counted_and_nothing_else() -> None:
    # X, the head of f in three lines, the text in two, and the return.
    assert lines_of(SOURCE) == 7


def test_a_module_without_code_has_no_lines() -> None:
    assert lines_of('"""Only a promise."""\n\n# and a comment\n') == 0
