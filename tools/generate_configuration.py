"""Writes `deploy/snavio.toml` and `docs/configuration.md` from the sections of every service.

With `--check` it changes nothing, and fails when one of them is not what it would write.
"""

from __future__ import annotations

import os
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
# A tool is started from anywhere; the services beside it must be the ones that it describes.
sys.path.insert(0, str(ROOT))

from snavio.config import BadConfiguration, default_file, installed, load, markdown  # noqa: E402
from snavio.config.manual import EXAMPLE  # noqa: E402


def report() -> str:
    """Shield's answer to the manual's example, as the code gives it today."""
    before = Path.cwd()
    with tempfile.TemporaryDirectory() as folder:
        os.chdir(folder)
        try:
            Path("snavio.toml").write_text(EXAMPLE, "utf-8")
            load(installed()["shield"], "shield", config=Path("snavio.toml"), environment={})
        except BadConfiguration as error:
            return str(error)
        finally:
            os.chdir(before)
    sys.exit("The manual's example has no mistakes any more.")


def pages() -> dict[Path, str]:
    """Every generated file, by its path in the repository."""
    sections = installed()
    return {
        Path("deploy/snavio.toml"): default_file(sections),
        Path("docs/configuration.md"): markdown(sections, report=report()),
    }


def main() -> None:
    """Write them, or compare."""
    for path, text in pages().items():
        file = ROOT / path
        if "--check" not in sys.argv[1:]:
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_text(text, "utf-8")
        elif not file.exists() or file.read_text("utf-8") != text:
            sys.exit(f"{path} is not up to date; run `make config-docs`.")


if __name__ == "__main__":
    main()
