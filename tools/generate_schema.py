"""Writes `spark/schema.json`, the telemetry contract for readers that do not import the library.

With `--check` it changes nothing, and fails when the file is not what it would write.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

from snavio.telemetry.schema import document  # noqa: E402

PATH = ROOT / "spark" / "schema.json"


def text() -> str:
    """The file's contents."""
    return json.dumps(document(), indent=1, ensure_ascii=True) + "\n"


def main() -> None:
    """Write it, or compare."""
    if "--check" not in sys.argv[1:]:
        PATH.parent.mkdir(exist_ok=True)
        PATH.write_text(text(), "utf-8")
    elif not PATH.exists() or PATH.read_text("utf-8") != text():
        sys.exit("spark/schema.json is not up to date; run `python tools/generate_schema.py`.")


if __name__ == "__main__":
    main()
