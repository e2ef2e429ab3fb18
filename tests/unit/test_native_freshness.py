import ast
import shutil
from pathlib import Path

import pytest

from snavio import native

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    """A copy of the crate's sources that a test may change."""
    crate = tmp_path / "native"
    shutil.copytree(ROOT / "native" / "src", crate / "src")
    for name in ("Cargo.toml", "Cargo.lock"):
        shutil.copy(ROOT / "native" / name, crate / name)
    return tmp_path


def check(root: Path) -> None:
    native._refuse_stale_library(root, built_from=native.SOURCE_DIGEST)


def assert_stale(root: Path) -> None:
    with pytest.raises(
        ImportError, match=r"^The native library was built from other sources .* run `make build`\.$"
    ):
        check(root)


def test_library_built_from_these_sources_is_fresh(tree: Path) -> None:
    check(tree)


@pytest.mark.parametrize("name", ["Cargo.toml", "Cargo.lock", "src/lib.rs", "src/core/canonical.rs"])
def test_one_changed_byte_makes_the_library_stale(tree: Path, name: str) -> None:
    file = tree / "native" / name
    body = file.read_bytes()
    file.write_bytes(bytes([body[0] ^ 1]) + body[1:])
    assert_stale(tree)


def test_removed_source_makes_the_library_stale(tree: Path) -> None:
    (tree / "native" / "src" / "core" / "crypto.rs").unlink()
    assert_stale(tree)


def test_added_source_makes_the_library_stale(tree: Path) -> None:
    (tree / "native" / "src" / "core" / "empty.rs").touch()
    assert_stale(tree)


def test_renamed_source_makes_the_library_stale(tree: Path) -> None:
    core = tree / "native" / "src" / "core"
    (core / "crypto.rs").rename(core / "cryptp.rs")
    assert_stale(tree)


def test_installed_wheel_without_sources_is_not_checked(tmp_path: Path) -> None:
    check(tmp_path)


def test_every_name_of_the_stub_is_exported() -> None:
    stub = ast.parse((ROOT / "snavio" / "_native.pyi").read_text())
    names = {node.name for node in stub.body if isinstance(node, ast.ClassDef | ast.FunctionDef)}
    constants = [node.target for node in stub.body if isinstance(node, ast.AnnAssign)]
    names |= {each.id for each in constants if isinstance(each, ast.Name)}
    # Only a test asks for a panic.
    exported = {name for name in vars(native) if not name.startswith("_")}
    own = {"Path", "annotations", "hashlib"}
    assert exported - own == names - {"panic_for_test"}
