"""The keys of a registration file: the type of each, and whether it must be there."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from snavio.domain.directory.topic_rule import BOUNDS

Keys = Mapping[str, tuple[type[Any], bool]]

TOP: Final[Keys] = {
    "tenant": (str, True),
    "principals": (list, False),
    "service": (dict, False),
    "target": (dict, False),
    "route": (dict, False),
    "limit": (dict, False),
    "acl": (dict, False),
    "quota": (dict, False),
    "alert": (dict, False),
    "topic": (dict, False),
}
TABLES: Final[Mapping[str, Keys]] = {
    "service": {"name": (str, True), "principals": (list, False)},
    "target": {"name": (str, True)},
    "route": {
        "target": (str, True),
        "command": (str, True),
        "profile": (str, False),
        "queue": (str, False),
        "dlq": (str, False),
        "dedupe_mode": (str, False),
        "dispatch_mode": (str, False),
        "expected_drain_seconds": (int, False),
        "ttl_seconds": (int, False),
        "limit": (dict, False),
        "fairness": (dict, False),
    },
    "route.limit": {
        "max": (int, True),
        "interval_seconds": (int, True),
        "burst": (int, False),
        "cooldown_seconds": (int, False),
        "shadow": (bool, False),
        "leases": (int, False),
    },
    "route.fairness": {
        "window_seconds": (int, False),
        "dominant_share": (float, False),
        "competing_share": (float, False),
        "competitors": (int, False),
        "minimum_volume": (int, False),
        "ban_seconds": (int, False),
    },
    "limit": {
        "target": (str, True),
        "profile": (str, True),
        "max": (int, True),
        "interval_seconds": (int, True),
        "burst": (int, False),
        "cooldown_seconds": (int, False),
        "shadow": (bool, False),
        "leases": (int, False),
    },
    "acl": {
        "source": (str, True),
        "target": (str, True),
        "command": (str, True),
        "profile": (str, False),
        "ttl_seconds": (int, False),
    },
    "quota": {
        "source": (str, True),
        "target": (str, True),
        "command": (str, True),
        "max": (int, True),
        "interval_seconds": (int, True),
        "always": (bool, False),
        "burst": (int, False),
        "cooldown_seconds": (int, False),
        "shadow": (bool, False),
    },
    "alert": {"name": (str, True), "kind": (str, True), "address": (str, False)},
    "topic": {
        "name": (str, True),
        "when_full": (str, False),
        **dict.fromkeys(BOUNDS, (int, False)),
    },
}
WORDS: Final[Mapping[type[Any], str]] = {
    str: "text",
    int: "a whole number",
    float: "a number",
    bool: "true or false",
    list: "a list of text",
    dict: "a table",
}
