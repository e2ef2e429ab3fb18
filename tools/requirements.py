"""Prints the requirements of pyproject.toml, with the extras that are named as arguments.

Extras that name the project itself (`snavio[cli]`) are followed: pip would look for a released Snavio otherwise.
"""

from __future__ import annotations

import re
import sys
import tomllib
from collections.abc import Iterable
from pathlib import Path
from typing import Any


def requirements(project: dict[str, Any], extras: Iterable[str]) -> list[str]:
    """Dependencies of `project` and of `extras`, each once, in their order."""
    own = re.compile(rf"{re.escape(project['name'])}\[([\w\-, ]+)\]")
    wanted: dict[str, None] = {}
    followed: set[str] = set()

    def follow(lines: Iterable[str]) -> None:
        for line in lines:
            if (named := own.fullmatch(line)) is None:
                wanted[line] = None
                continue
            for extra in map(str.strip, named[1].split(",")):
                if extra not in followed:
                    followed.add(extra)
                    follow(project["optional-dependencies"][extra])

    follow(project["dependencies"])
    follow(f"{project['name']}[{extra}]" for extra in extras)
    return list(wanted)


if __name__ == "__main__":
    text = Path("pyproject.toml").read_text("utf-8")
    sys.stdout.write("\n".join(requirements(tomllib.loads(text)["project"], sys.argv[1:])) + "\n")
