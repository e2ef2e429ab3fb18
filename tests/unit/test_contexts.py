"""The file of contexts: whole or unchanged, however it is written, and every mistake in it is one sentence."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from snavio.errors import BadRequest, StateError
from snavio.sdk.context import Context, ContextFile, chosen, config_folder


def acme(folder: Path, name: str = "acme-ci", **more: str) -> Context:
    return Context(name, folder / "id", tenant="acme", addresses={"shield": "mesh.example:7401"}, **more)


def test_the_first_context_is_the_one_in_use_and_another_only_when_asked(tmp_path: Path) -> None:
    file = ContextFile(tmp_path)
    file.put(acme(tmp_path), use=False)
    file.put(acme(tmp_path, "other"), use=False)
    assert file.read().current == "acme-ci"
    file.use("other")
    assert file.read().current == "other"
    assert file.read().named("acme-ci") == acme(tmp_path)


def test_a_context_that_goes_is_no_longer_in_use(tmp_path: Path) -> None:
    file = ContextFile(tmp_path)
    file.put(acme(tmp_path), use=True)
    file.remove("acme-ci")
    assert file.read().current == ""
    assert not file.read().by_name


def test_an_unknown_name_is_answered_with_the_closest_one(tmp_path: Path) -> None:
    file = ContextFile(tmp_path)
    file.put(acme(tmp_path), use=True)
    with pytest.raises(BadRequest, match="did you mean acme-ci"):
        file.use("acme-cl")


@pytest.mark.parametrize("name", ["", "-x", "a b", "Ä", "x" * 64, "a\n", "../a"])
def test_a_name_that_is_none_is_refused(tmp_path: Path, name: str) -> None:
    with pytest.raises(BadRequest) as refused:
        acme(tmp_path, name)
    assert refused.value.reason == "bad-context-name"


@pytest.mark.parametrize(
    "text",
    [
        "contexts = 3",
        "[contexts.a]",
        "[contexts.a]\nidentity = 3",
        "[contexts.a]\nidentity = '/x'\naddresses = 4",
        "[contexts.a]\nidentity = '/x'\n[contexts.a.addresses]\nshielt = 'x:1'",
        "current = ",
        "\xff",
    ],
)
def test_a_file_that_cannot_be_read_is_one_sentence_and_stays(tmp_path: Path, text: str) -> None:
    path = tmp_path / "contexts.toml"
    path.write_bytes(text.encode("latin-1"))
    with pytest.raises(StateError) as refused:
        ContextFile(tmp_path).put(acme(tmp_path), use=True)
    assert refused.value.reason == "bad-contexts"
    assert path.read_bytes() == text.encode("latin-1")


def test_commands_that_add_contexts_at_once_lose_none(tmp_path: Path) -> None:
    with ThreadPoolExecutor(8) as pool:
        list(pool.map(lambda n: ContextFile(tmp_path).put(acme(tmp_path, f"c{n}"), use=False), range(40)))
    assert set(ContextFile(tmp_path).read().by_name) == {f"c{n}" for n in range(40)}


def test_the_choice_is_the_option_then_the_variable_then_the_file(tmp_path: Path) -> None:
    for name in ("a", "b", "c"):
        ContextFile(tmp_path).put(acme(tmp_path, name), use=False)
    here = {"SNAVIO_CONFIG_DIR": str(tmp_path)}
    assert (found := chosen(environment=here)) is not None
    assert found.name == "a"
    assert (found := chosen(environment={**here, "SNAVIO_CONTEXT": "b"})) is not None
    assert found.name == "b"
    assert (found := chosen("c", environment={**here, "SNAVIO_CONTEXT": "b"})) is not None
    assert found.name == "c"


def test_without_a_home_folder_there_is_no_context_and_a_named_one_says_so() -> None:
    assert chosen(environment={}) is None
    with pytest.raises(StateError) as refused:
        chosen("a", environment={})
    assert refused.value.reason == "no-home"


def test_the_folder_follows_the_environment() -> None:
    assert config_folder({"HOME": "/home/u"}) == Path("/home/u/.config/snavio")
    assert config_folder({"HOME": "/home/u", "XDG_CONFIG_HOME": "/cfg"}) == Path("/cfg/snavio")
    assert config_folder({"SNAVIO_CONFIG_DIR": "/own", "HOME": "/home/u"}) == Path("/own")


def test_a_folder_that_cannot_be_written_is_one_sentence(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(StateError) as refused:
        ContextFile(tmp_path / "file" / "x").put(acme(tmp_path), use=True)
    assert refused.value.reason == "folder-unwritable"


@given(st.text(st.characters(codec="utf-8"), min_size=1, max_size=30))
def test_every_text_comes_back_as_it_was_written(text: str) -> None:
    import tempfile

    with tempfile.TemporaryDirectory() as folder:
        file = ContextFile(Path(folder))
        kept = Context("a", Path("/i"), tenant=text, addresses={"shield": text})
        file.put(kept, use=True)
        assert file.read().named("a") == kept
