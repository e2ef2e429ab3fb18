"""Writes `docs/metrics.md` from the table of metrics.

With `--check` it changes nothing, and fails when the page is not what it would write.
"""

from __future__ import annotations

import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
# A tool is started from anywhere; the table beside it must be the one that it describes.
sys.path.insert(0, str(ROOT))

from snavio.observe.manual import page  # noqa: E402

PAGE = ROOT / "docs" / "metrics.md"


def main() -> None:
    """Write it, or compare."""
    text = page()
    if "--check" not in sys.argv[1:]:
        PAGE.write_text(text, "utf-8")
    elif not PAGE.exists() or PAGE.read_text("utf-8") != text:
        sys.exit("docs/metrics.md is not up to date; run `make metrics-docs`.")


if __name__ == "__main__":
    main()
