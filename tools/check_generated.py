"""Fails when `snavio/v1/` is not what `proto/` generates; never changes the tree."""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path

if __package__ in (None, ""):  # Run as a file: the repository is not on the path yet.
    sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from tools.generate_proto import PACKAGE, ROOT, generate, generated_files


def main() -> None:
    """Exit with a list when generating again would change something."""
    with tempfile.TemporaryDirectory() as scratch:
        generate(Path(scratch))
        wanted = generated_files(Path(scratch) / PACKAGE)
    found = generated_files(ROOT / PACKAGE)
    faults = [f"{PACKAGE}/{name}: not generated yet" for name in wanted.keys() - found.keys()]
    faults += [f"{PACKAGE}/{name}: stale, no proto makes it" for name in found.keys() - wanted.keys()]
    faults += [
        f"{PACKAGE}/{name}: differs from its proto"
        for name in wanted.keys() & found.keys()
        if wanted[name] != found[name]
    ]
    if faults:
        sys.exit("\n".join(["Generated code is not up to date; run `make proto`:", *sorted(faults)]))


if __name__ == "__main__":
    main()
