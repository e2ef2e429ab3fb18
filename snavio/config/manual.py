"""The manual, generated from the sections: the commented default file, and the same as a page of tables.

Never states anything that the code does not enforce: types, bounds, defaults and dangers come from the code.
"""

from __future__ import annotations

import textwrap
from collections.abc import Iterator, Mapping

from snavio.config.describe import KeyDescription, SectionDescription, describe
from snavio.config.safety import RULES
from snavio.config.sections import Section

_WIDTH = 107

_FILE_HEAD = """\
Snavio's configuration: every section and key, each with its default.

Everything is commented out, so this file changes nothing as it is. Take the "# " away from a line to set it. Lines
with "##" explain. A variable SNAVIO_SECTION__KEY in the environment comes before the file. A service that finds
mistakes says all of them at once and does not start; `snavio config validate` says them before.

Made by `make config-docs` from the sections in the code. Copy it; do not edit it in the repository.
"""

_PAGE_HEAD = """\
# Configuration

<!-- Made by `make config-docs` from the sections in the code. Do not edit. -->

Snavio needs no configuration: without a file, every service uses the defaults below. What you set stands in one
TOML file, which every process gets with `--config`. [deploy/snavio.toml](../deploy/snavio.toml) is this page as such
a file, with everything commented out.

```toml
[mesh]
state_dir = "/var/lib/snavio"

[shield]
window_ms = 30_000
```

## Who wins

1. A variable of the environment, `SNAVIO_SECTION__KEY`: upper case, two underscores between section and key.
2. The file.
3. The default.

```
SNAVIO_SHIELD__WINDOW_MS=30000 python -m services.shield --config snavio.toml
```

Variables are text, so `30000`, `2.5`, `true` and `/var/lib/snavio` are written without quotes. An empty variable is
a value like any other; where a key may be without a value, empty text means "not set". Variables that begin with
`SNAVIO_` but have no two underscores, such as `SNAVIO_SEALING_KEY`, are not settings. Values are read once, at start.

`snavio config show` prints what is in force and where each value comes from: `default`, `snavio.toml:12`, or
`environment`.

## Mistakes

A process reads `[mesh]` and its own section. If anything in them is wrong, it says all of it at once, does not
start, and its exit code is 2. `snavio config validate` checks every section in the same way. This file

```toml
{example}```

is refused by `python -m services.shield --config snavio.toml` with

```
shield: {report}
```

Misspelled sections and keys are mistakes, never ignored, and a number in quotes is not a number. When a file is not
TOML, the line is told, and nothing else in the file is read.

| exit code of a service | what it means |
|---|---|
| 0 | it was told to stop, and did |
| 2 | it did not start: a mistake in the configuration or the command line, or something it needs is not there |
| 70 | some of its work could not go on, as `work cannot go on` in its log says; `snavio up` starts it again |

## Settings that are said twice

These are refused unless a second key says that you mean it. Client certificates are demanded on every connection;
there is no setting that turns them off.

{rules}
"""

EXAMPLE = """\
[mesh]
shield = "0.0.0.0:7401"

[shield]
window_sm = 30_000
nonce_capacity = "many"
"""
"""A file with mistakes, for the page; its error report is generated."""


def default_file(sections: Mapping[str, type[Section]]) -> str:
    """`snavio.toml` with every key commented out. Uncommenting all of them changes nothing."""
    lines = [*_comment(_FILE_HEAD)]
    for section in describe(sections):
        lines += ["", "", f"[{section.name}]", *_comment(section.description)]
        for key in section.keys:
            lines += [
                "",
                *_comment(_meaning(key)),
                *_comment(_kind(key)),
                f"# {key.key} = {key.default_toml}",
            ]
    return "\n".join(lines) + "\n"


def markdown(sections: Mapping[str, type[Section]], *, report: str) -> str:
    """The page. `report` is the error report on `EXAMPLE`."""
    rules = ["| what | what to add | what may happen |", "|---|---|---|"]
    rules += [f"| {rule.when} | `[{rule.word_section}]` `{rule.word}` | {rule.danger} |" for rule in RULES]
    page = [_PAGE_HEAD.format(example=EXAMPLE, report=report, rules="\n".join(rules))]
    page += [part for section in describe(sections) for part in _table(section)]
    return "\n".join(page).rstrip("\n") + "\n"


def _table(section: SectionDescription) -> Iterator[str]:
    yield f"## [{section.name}]\n"
    yield section.description + "\n"
    yield "| key | type | default | what it is |"
    yield "|---|---|---|---|"
    for key in section.keys:
        kind = f"{key.type} {key.bounds}".strip()
        words = key.in_words(key.default)
        default = (
            "not set" if key.default is None else f"`{key.default_toml}`" + (f" ({words})" if words else "")
        )
        yield f"| `{key.key}` | {kind} | {default} | {_meaning(key)} |"
    yield ""


def _kind(key: KeyDescription) -> str:
    words = key.in_words(key.default)
    default = "not set" if key.default is None else key.default_toml + (f" ({words})" if words else "")
    return f"{f'{key.type} {key.bounds}'.strip().capitalize()}; default {default}."


def _meaning(key: KeyDescription) -> str:
    """The description; for a confirming setting also the danger that it confirms."""
    dangers = [rule.danger for rule in RULES if (rule.word_section, rule.word_key) == (key.section, key.key)]
    return " ".join([key.description, *(f"The danger: {danger}." for danger in dangers)])


def _comment(text: str) -> Iterator[str]:
    for number, paragraph in enumerate(text.rstrip("\n").split("\n\n")):
        if number:
            yield "##"
        yield from (f"## {line}" for line in textwrap.wrap(paragraph, _WIDTH))
