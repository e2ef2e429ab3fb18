"""Prints the requirements of pyproject.toml, with the extras that are named as arguments."""

import sys
import tomllib
from pathlib import Path

project = tomllib.loads(Path("pyproject.toml").read_text("utf-8"))["project"]
wanted = list(project["dependencies"])
for extra in sys.argv[1:]:
    wanted += project["optional-dependencies"][extra]
sys.stdout.write("\n".join(wanted) + "\n")
