"""The evidence behind a ban, as `snavio bans explain` tells it."""

from __future__ import annotations

import json

import pytest

from snavio.cli.ban_evidence import evidence_lines
from spark.judging import Crowding, judged, together
from spark.policy import DetectionPolicy

POLICY = DetectionPolicy()


def test_a_person_sees_who_suffered_since_when_and_how_it_went() -> None:
    rows = [
        Crowding(
            window=1_794_823_200 + window * 30,
            source="acme/big",
            target="bot",
            command_name="say",
            taken=taken,
            volume=1000,
            rivals=2,
            rivals_offered=100,
            rivals_hurt=25,
            rivals_waited=0,
            least_milli=700,
            victims=(("acme/small", 20), ("acme/tiny", 5)),
        )
        for window, taken in ((0, 1000), (1, 750), (3, 1000), (4, 1000))
    ]
    (made,) = together(judged(POLICY, rows, (), ()), POLICY)
    assert list(evidence_lines(made["evidence"])) == [
        "since 2026-11-16T10:00:00Z it held 93.8 % of 4,000 permits; of 400 commands that others offered meanwhile "
        "100 were refused",
        "suffered most: acme/small 80, acme/tiny 20",
        "its share of permits  |█▆ ██|  up to 100 %, 30 s a sign",
        "   of others refused  |▂▂ ▂▂|  up to 25 %, 30 s a sign",
    ]


def test_a_burst_says_what_was_refused_and_named() -> None:
    told = {"since": "2026-11-16T10:00:00Z", "refused": 3000, "sent": 3100, "windows": 2, "targets": ["bot"]}
    assert list(evidence_lines(json.dumps(told))) == [
        "since 2026-11-16T10:00:00Z 3,000 of 3,100 commands had to be refused, in 2 windows",
        "it named bot",
    ]


@pytest.mark.parametrize(
    "text",
    [
        "no json",
        "[]",
        '{"source_share":0.9}',
        '{"since":5,"others_refused":"many","suffered":[1],"share_course":["x"],"harm_course":[]}',
        '{"since":"\\u001b[31m","refused":null}',
    ],
)
def test_evidence_of_another_form_breaks_nothing(text: str) -> None:
    lines = list(evidence_lines(text))
    assert lines and all(line.isprintable() for line in lines)
    assert list(evidence_lines("")) == []
