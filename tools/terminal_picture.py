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
# As a whole: a colour may begin on one line and end on the next.
screen = Text.from_ansi(sys.stdin.read().rstrip())
width = max(len(line) for line in screen.plain.splitlines())
console = Console(record=True, width=width + 1, file=io.StringIO(), force_terminal=True)
console.print(screen, no_wrap=True)
picture = console.export_svg(title=title)
# A picture in a repository must not fetch fonts from somewhere else.
picture = re.sub(r"@font-face \{.*?\}\s*", "", picture, flags=re.DOTALL)
Path(destination).write_text(picture, "utf-8")
