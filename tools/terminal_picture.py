"""Turns a captured terminal screen (with its colours, on standard input) into an SVG for the docs.

tmux capture-pane -e -p -t SESSION | python tools/terminal_picture.py docs/images/up.svg "snavio up"
"""

import io
import re
import sys
from pathlib import Path

from rich.console import Console
from rich.text import Text

destination, title = sys.argv[1:]
screen = sys.stdin.read().rstrip().split("\n")
width = max(len(Text.from_ansi(line)) for line in screen)
console = Console(record=True, width=width + 1, file=io.StringIO(), force_terminal=True)
for line in screen:
    console.print(Text.from_ansi(line), no_wrap=True)
picture = console.export_svg(title=title)
# A picture in a repository must not fetch fonts from somewhere else.
picture = re.sub(r"@font-face \{.*?\}\s*", "", picture, flags=re.DOTALL)
Path(destination).write_text(picture, "utf-8")
