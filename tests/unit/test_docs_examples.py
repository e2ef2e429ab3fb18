import pytest

from tests.support.docs import DOCUMENTS, ROOT, Example, examples

EXAMPLES = examples()


def place(example: Example) -> str:
    return f"{example.document}:{example.line}"


@pytest.mark.parametrize("example", EXAMPLES, ids=place)
def test_every_example_compiles(example: Example) -> None:
    example.compiled()


@pytest.mark.parametrize("example", [example for example in EXAMPLES if example.runnable], ids=place)
def test_a_runnable_example_runs(example: Example) -> None:
    example.names()


def test_the_guide_has_examples_of_both_directions() -> None:
    titles = [example.title for example in EXAMPLES if example.title]
    assert {"send", "receive"} <= set(titles)
    assert len(titles) == len(set(titles))


def test_no_python_block_escapes_the_search() -> None:
    for document in DOCUMENTS:
        name = str(document.relative_to(ROOT))
        fences = sum(line.strip().startswith("```py") for line in document.read_text("utf-8").splitlines())
        assert fences == sum(example.document == name for example in EXAMPLES)
