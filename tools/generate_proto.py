"""Writes `snavio/v1/` from `proto/`, with the pinned grpcio-tools, and leaves no stale module behind.

Never touches `snavio/v1/__init__.py`, the one file there that is written by hand.
"""

from __future__ import annotations

import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
PACKAGE = Path("snavio/v1")


def run_protoc(*arguments: str) -> None:
    """Run protoc over every proto; its own words say what is wrong with them."""
    protos = sorted(str(proto.relative_to(ROOT)) for proto in (ROOT / "proto" / PACKAGE).glob("*.proto"))
    command = [sys.executable, "-m", "grpc_tools.protoc", "-Iproto", *arguments, *protos]
    if subprocess.run(command, cwd=ROOT, timeout=120, check=False).returncode:
        sys.exit("protoc refused the protos; see above.")


def generate(into: Path) -> None:
    """Write the modules under `into`, as `snavio/v1/*_pb2.py` and `.pyi`."""
    run_protoc(f"--python_out={into}", f"--pyi_out={into}")


def generated_files(folder: Path) -> dict[str, bytes]:
    """Everything in the package that is not written by hand."""
    return {file.name: file.read_bytes() for file in folder.glob("*.py*") if file.name != "__init__.py"}


def main() -> None:
    """Replace the generated modules of the tree."""
    with tempfile.TemporaryDirectory() as scratch:
        # Elsewhere first: protos that do not compile leave the tree as it was.
        generate(Path(scratch))
        for name in generated_files(ROOT / PACKAGE):
            (ROOT / PACKAGE / name).unlink()
        for name in generated_files(Path(scratch) / PACKAGE):
            shutil.copy(Path(scratch) / PACKAGE / name, ROOT / PACKAGE / name)


if __name__ == "__main__":
    main()
