"""Error messages of a wrong configuration, and the settings of a right one."""

import json
import tomllib
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import Field, SecretStr

from services.fast.settings import FastSettings
from services.mailbox.settings import MailboxSettings
from services.shield.settings import ShieldSettings
from services.signer.settings import SignerSettings
from snavio.config import (
    RULES,
    BadConfiguration,
    MeshSettings,
    Section,
    describe,
    effective,
    installed,
    load,
    validate_all,
)
from snavio.config.safety import is_loopback
from snavio.config.sections import SERVICES
from snavio.config.toml_lines import spots
from snavio.errors import BadRequest


@pytest.fixture
def file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """`snavio.toml` in the current folder, so that sentences begin with its bare name."""
    monkeypatch.chdir(tmp_path)
    return Path("snavio.toml")


def mistakes(
    file: Path | None, text: str | None = None, *, environment: dict[str, str] | None = None
) -> list[str]:
    """The report on a configuration, a line per mistake."""
    if file is not None and text is not None:
        file.write_text(text, "utf-8")
    with pytest.raises(BadConfiguration) as caught:
        validate_all(file, installed(), environment=environment or {})
    lines = str(caught.value).splitlines()
    if len(lines) > 1:
        assert lines[0] == f"The configuration has {len(lines) - 1} mistakes:"
    assert [str(mistake) for mistake in caught.value.mistakes] == [
        line.strip() for line in lines[len(lines) > 1 :]
    ]
    return [str(mistake) for mistake in caught.value.mistakes]


# What is right


def test_without_a_file_everything_has_its_default() -> None:
    mesh, shield = load(ShieldSettings, "shield", config=None, environment={})
    assert (mesh, shield) == (MeshSettings(), ShieldSettings())


def test_the_environment_comes_before_the_file_and_the_file_before_the_default(file: Path) -> None:
    file.write_text("[shield]\nwindow_ms = 30_000\nbatches_in_flight = 8\n")
    _, shield = load(ShieldSettings, "shield", config=file, environment={"SNAVIO_SHIELD__WINDOW_MS": "20000"})
    assert (shield.window_ms, shield.batches_in_flight, shield.keys_stale_ms) == (20_000, 8, 180_000)


def test_every_kind_of_value_can_come_from_the_environment() -> None:
    environment = {
        "SNAVIO_MESH__STATE_DIR": "/var/lib/a b",
        "SNAVIO_MESH__PUBLIC_BIND": "true",
        "SNAVIO_SIGNER__OVERLAP_S": "2.5",
        "SNAVIO_SIGNER__SEALING_KEY": "",
        "SNAVIO_MESH__SIGNER_LISTEN": "[::]:7404",
    }
    mesh, signer = load(SignerSettings, "signer", config=None, environment=environment)
    assert (mesh.state_dir, mesh.public_bind) == (Path("/var/lib/a b"), True)
    assert (signer.overlap_s, signer.sealing_key, mesh.listens("signer")) == (2.5, None, "[::]:7404")


def test_variables_that_are_no_settings_are_left_alone() -> None:
    environment = {"SNAVIO_SEALING_KEY": "77", "SNAVIO_FOLLOW_PARENT": "1", "OTHER__THING": "x"}
    load(SignerSettings, "signer", config=None, environment=environment)


def test_a_process_judges_its_own_section_and_leaves_the_others_to_theirs(file: Path) -> None:
    file.write_text("[fast]\nnonsense = 1\n[shield]\nwindow_ms = 2000\n")
    assert load(ShieldSettings, "shield", config=file, environment={})[1].window_ms == 2000
    with pytest.raises(BadConfiguration, match="nonsense"):
        load(FastSettings, "fast", config=file, environment={})


@pytest.mark.parametrize(
    "text", ["mesh.state_dir = 's'\n", "mesh = { state_dir = 's' }\n", "['mesh']\n\"state_dir\" = 's'\n"]
)
def test_every_way_to_write_a_section_is_understood(file: Path, text: str) -> None:
    file.write_text(text)
    assert load(ShieldSettings, "shield", config=file, environment={})[0].state_dir == Path("s")
    assert effective(file, {}, environment={})["mesh"]["state_dir"].origin.startswith("snavio.toml:")


def test_a_byte_order_mark_and_windows_line_ends_do_no_harm(file: Path) -> None:
    file.write_bytes(b"\xef\xbb\xbf[shield]\r\nwindow_ms = 2000\r\n")
    assert load(ShieldSettings, "shield", config=file, environment={})[1].window_ms == 2000


# What is wrong


def test_a_wrong_type_is_told_with_what_is_wanted_and_what_is_there(file: Path) -> None:
    assert mistakes(file, '[shield]\nwindow_ms = "fast"\n') == [
        'snavio.toml:2:1: [shield] window_ms must be a whole number from 1000 to 600_000, and is the text "fast".'
    ]


@pytest.mark.parametrize(
    ("line", "end"),
    [
        ('window_ms = "60000"', 'and is the text "60000".'),
        ("window_ms = true", "and is true."),
        ("window_ms = 1.5", "and is 1.5."),
        ("window_ms = 2000.0", "and is 2000.0."),
        ("window_ms = [1]", "and is a list."),
        ("window_ms = {}", "and is a table."),
        ("window_ms = 2026-01-01", "and is a date or time."),
        ("start_within_s = '1'", 'and is the text "1".'),
        ("start_within_s = inf", "and is inf."),
        ("start_within_s = nan", "and is nan."),
        ("i_accept_a_long_replay_window = 1", "must be true or false, and is 1."),
        ("instance = 7", "and is 7."),
        (f"instance = '{'x' * 100}'", f'and is the text "{"x" * 60}…".'),
        ("instance = ''", "and is empty."),
    ],
)
def test_a_file_must_give_the_type_itself(file: Path, line: str, end: str) -> None:
    (told,) = mistakes(file, f"[shield]\n{line}\n")
    assert told.startswith(f"snavio.toml:2:1: [shield] {line.partition(' ')[0]} must be ")
    assert told.endswith(end)


def test_a_value_out_of_range_is_told_with_the_range(file: Path) -> None:
    assert mistakes(file, "[shield]\n\n  window_ms = 700_000 # much\n") == [
        "snavio.toml:3:3: [shield] window_ms must be a whole number from 1000 to 600_000, and is 700000."
    ]
    assert mistakes(file, "[registry]\nsigner_timeout_s = 0\n") == [
        "snavio.toml:2:1: [registry] signer_timeout_s must be a number above 0 and at most 30, and is 0."
    ]


@pytest.mark.parametrize(
    "address",
    [
        "127.0.0.1",
        "127.0.0.1:",
        ":7401",
        "127.0.0.1:70000",
        "::1:7401",
        "[::1]",
        "*:1",
        "http://a:1",
        "a b:1",
    ],
)
def test_what_is_no_address_is_refused_with_examples(file: Path, address: str) -> None:
    assert mistakes(file, f'[mesh]\nshield = "{address}"\n') == [
        'snavio.toml:2:1: [mesh] shield must be an address such as "127.0.0.1:7401", "[::1]:7401" or '
        f'"shield.internal:7401", and is the text "{address}".'
    ]


def test_a_name_that_no_process_may_have_is_refused_with_the_rule(file: Path) -> None:
    assert mistakes(file, '[fast]\ninstance = "Fast 0"\n') == [
        "snavio.toml:2:1: [fast] instance must be a name of 1 to 63 lower-case letters, digits and hyphens that "
        'does not begin with a hyphen, and is the text "Fast 0".'
    ]
    assert mistakes(file, '[fast]\ninstance = "fast\\n"\n')


@pytest.mark.parametrize("key", ["window_sm", "window-ms", "Window_MS"])
def test_a_misspelled_key_is_told_with_the_right_one(file: Path, key: str) -> None:
    assert mistakes(file, f"[shield]\n{key} = 1000\n") == [
        f"snavio.toml:2:1: [shield] has no key '{key}'; did you mean 'window_ms'?"
    ]


@pytest.mark.parametrize("key", ["streams_per_source", "nonce_share_per_source"])
def test_a_key_of_an_earlier_version_is_told_what_stands_in_its_place(file: Path, key: str) -> None:
    (mistake,) = mistakes(file, f"[shield]\n{key} = 16\n")
    assert f"[shield] has no key '{key}' any more; " in mistake
    assert "[mesh] tenant_share_percent" in mistake


def test_a_key_of_another_section_is_told_where_it_belongs(file: Path) -> None:
    assert mistakes(file, "[fast]\nwindow_ms = 1000\n") == [
        "snavio.toml:2:1: [fast] has no key 'window_ms'; it belongs to [shield]."
    ]


def test_a_key_that_resembles_nothing_is_told_without_a_guess(file: Path) -> None:
    assert mistakes(file, "[fast]\nzzz = 1\n") == ["snavio.toml:2:1: [fast] has no key 'zzz'."]


def test_a_misspelled_section_is_told_with_the_right_one(file: Path) -> None:
    assert mistakes(file, "# mine\n[sheild]\nwindow_ms = 1\n") == [
        "snavio.toml:2:2: [sheild] is not a section; did you mean [shield]?"
    ]


def test_a_section_that_resembles_nothing_is_told_with_all_there_are(file: Path) -> None:
    assert mistakes(file, "[kafka]\n") == [
        "snavio.toml:1:2: [kafka] is not a section; there are [mesh], [shield], [fast], [slow], [mailbox], "
        "[registry], [signer] and [relay]."
    ]


def test_a_table_inside_a_section_is_an_unknown_key(file: Path) -> None:
    assert mistakes(file, "[shield]\n[shield.limits]\na = 1\n") == [
        "snavio.toml:2:2: [shield] has no key 'limits'."
    ]


def test_a_section_in_double_brackets_is_told(file: Path) -> None:
    assert mistakes(file, "[[shield]]\nwindow_ms = 1000\n") == [
        "snavio.toml:1:3: [shield] is one section, written in single brackets."
    ]


def test_a_key_outside_of_any_section_is_told(file: Path) -> None:
    assert mistakes(file, "window_ms = 1000\n") == [
        "snavio.toml:1:1: 'window_ms' stands outside of any section; put it below a line such as [mesh]."
    ]


@pytest.mark.parametrize(
    ("text", "told"),
    [
        (
            "[mesh]\nstate_dir = /var/lib\n",
            "snavio.toml:2:13: this is not TOML: no value can be read here; text stands in quotes, and it is true "
            "and false in lower case. Nothing else in the file was read.",
        ),
        (
            "[mesh]\nshield = 127.0.0.1:7401\n",
            "snavio.toml:2:15: this is not TOML: something follows the value; a comment begins with #, and text "
            "stands in quotes. Nothing else in the file was read.",
        ),
        (
            "[mesh\n",
            "snavio.toml:1:6: this is not TOML: expected ']' at the end of a table declaration. "
            "Nothing else in the file was read.",
        ),
        (
            "[mesh]\nstate_dir =",
            "snavio.toml:2:12: this is not TOML: no value can be read here; text stands in quotes, and it is true "
            "and false in lower case. Nothing else in the file was read.",
        ),
    ],
)
def test_what_is_not_toml_is_told_with_line_and_column(file: Path, text: str, told: str) -> None:
    assert mistakes(file, text) == [told]


def test_a_key_that_is_set_twice_is_told_with_both_lines_and_hides_nothing_else(file: Path) -> None:
    text = '[shield]\nwindow_ms = 1000\ninstance = """\na"""\nwindow_ms = 2000\n[fast]\nzzz = 1\n'
    assert mistakes(file, text) == [
        "snavio.toml:5:1: [shield] window_ms is set twice; it was set in line 2.",
        "snavio.toml:7:1: [fast] has no key 'zzz'.",
    ]


def test_a_section_that_begins_twice_is_told_with_both_lines(file: Path) -> None:
    assert mistakes(file, "[shield]\nwindow_ms = 1000\n[fast]\n[shield]\n") == [
        "snavio.toml:4:2: [shield] begins a second time; it began in line 1. Join the two. "
        "Nothing else in the file was read."
    ]


def test_a_file_that_is_not_there_a_folder_and_a_huge_file_are_told(file: Path) -> None:
    assert mistakes(Path("none.toml")) == ["none.toml: this file does not exist."]
    assert mistakes(Path("..")) == ["..: this is a folder; give the path of the file in it."]
    assert mistakes(file, "#" * (2 << 20)) == [
        "snavio.toml: this file is over 1 MiB, so it is hardly a configuration."
    ]
    assert mistakes(file, "a = " + "[" * 100_000) == ["snavio.toml: values are nested too deeply."]


def test_what_is_not_utf_8_is_told_with_its_line(file: Path) -> None:
    file.write_bytes(b'[mesh]\nstate_dir = "caf\xe9"\n')
    assert mistakes(file) == ["snavio.toml:2:17: this is not UTF-8; save the file as such."]


def test_values_from_the_environment_are_named_as_such(file: Path) -> None:
    environment = {
        "SNAVIO_SHIELD__WINDOW_MS": "a minute",
        "SNAVIO_SHIELD__WINDOW_SM": "1",
        "SNAVIO_SHEILD__WINDOW_MS": "1",
        "SNAVIO_FAST__WINDOW_MS": "1",
        "SNAVIO_SLOW__RESOLVE_TIMEOUT_MS": "",
    }
    assert mistakes(file, "[shield]\nwindow_ms = 2000\n", environment=environment) == [
        "environment variable SNAVIO_FAST__WINDOW_MS: [fast] has no key 'window_ms'; it belongs to "
        "SNAVIO_SHIELD__WINDOW_MS.",
        "environment variable SNAVIO_SHEILD__WINDOW_MS: there is no section [sheild]; did you mean "
        "SNAVIO_SHIELD__WINDOW_MS?",
        "environment variable SNAVIO_SHIELD__WINDOW_MS: [shield] window_ms must be a whole number from 1000 to "
        '600_000, and is the text "a minute".',
        "environment variable SNAVIO_SHIELD__WINDOW_SM: [shield] has no key 'window_sm'; did you mean "
        "SNAVIO_SHIELD__WINDOW_MS?",
        "environment variable SNAVIO_SLOW__RESOLVE_TIMEOUT_MS: [slow] resolve_timeout_ms must be a whole number "
        "from 10 to 10_000, and is empty.",
    ]


def test_two_variables_for_one_key_are_not_chosen_between() -> None:
    environment = {"SNAVIO_SHIELD__WINDOW_MS": "2000", "SNAVIO_shield__window_ms": "3000"}
    assert mistakes(None, environment=environment) == [
        "environment variable SNAVIO_shield__window_ms: this sets [shield] window_ms, and so does "
        "SNAVIO_SHIELD__WINDOW_MS; unset one."
    ]


def test_values_that_contradict_each_other_are_told_where_they_stand(file: Path) -> None:
    assert mistakes(file, "[fast]\nroute_stale_ms = 1000\nroute_fresh_ms = 2000\n") == [
        "snavio.toml:3:1: [fast] route_fresh_ms (2000) is longer than route_stale_ms (1000); a route is fresh "
        "first and stale later."
    ]


def test_everything_that_is_wrong_is_told_at_once_in_the_order_of_the_file(file: Path) -> None:
    text = """\
loose = 1
[mesh]
shield = "0.0.0.0:7401"
budget_ms = 1
[shield]
window_sm = 30_000
nonce_capacity = "many"
window_ms = 400_000
[kafka]
[mailbox]
amnesia = true
max_topics = 1
max_topics = 2
"""
    told = mistakes(file, text, environment={"SNAVIO_SLOW__BATCHES_IN_FLIGHT": "65"})
    assert [line.split(" ")[0] for line in told] == [
        "snavio.toml:1:1:",
        "snavio.toml:3:1:",
        "snavio.toml:4:1:",
        "snavio.toml:6:1:",
        "snavio.toml:7:1:",
        "snavio.toml:8:1:",
        "snavio.toml:9:2:",
        "snavio.toml:11:1:",
        "snavio.toml:13:1:",
        "environment",
    ]


def test_the_error_is_a_bad_request_that_machines_can_read(file: Path) -> None:
    file.write_text("[shield]\nwindow_sm = 1\n")
    with pytest.raises(BadRequest) as caught:
        load(ShieldSettings, "shield", config=file, environment={})
    assert isinstance(caught.value, BadConfiguration)
    assert caught.value.reason == "bad-configuration"
    (mistake,) = caught.value.mistakes
    assert (mistake.section, mistake.key) == ("shield", "window_sm")
    assert (mistake.place.file, mistake.place.line, mistake.place.column) == (file, 2, 1)


# What is unsafe


def test_amnesia_is_refused_unless_losing_messages_is_accepted(file: Path) -> None:
    assert mistakes(file, "[mailbox]\namnesia = true\n") == [
        "snavio.toml:2:1: [mailbox] amnesia = true is unsafe: messages that were acknowledged as delivered are "
        "lost when the mailbox stops, however it stops, and so is which commands of strict routes were delivered: one "
        "that is sent again arrives again. If you mean it, add `i_accept_losing_messages = true` to [mailbox], or set "
        "SNAVIO_MAILBOX__I_ACCEPT_LOSING_MESSAGES=true."
    ]
    file.write_text("[mailbox]\namnesia = true\ni_accept_losing_messages = true\n")
    assert load(MailboxSettings, "mailbox", config=file, environment={})[1].amnesia


def test_a_window_over_five_minutes_is_refused_unless_it_is_accepted(file: Path) -> None:
    (told,) = mistakes(file, "[shield]\nwindow_ms = 300_001\n")
    assert told.startswith(
        "snavio.toml:2:1: [shield] window_ms = 300001 is unsafe: a captured command stays "
    )
    assert told.endswith(
        "If you mean it, add `i_accept_a_long_replay_window = true` to [shield], or set "
        "SNAVIO_SHIELD__I_ACCEPT_A_LONG_REPLAY_WINDOW=true."
    )
    file.write_text("[shield]\nwindow_ms = 300_000\n")
    validate_all(file, installed(), environment={})
    file.write_text("[shield]\nwindow_ms = 300_001\ni_accept_a_long_replay_window = true\n")
    validate_all(file, installed(), environment={})


@pytest.mark.parametrize("host", ["0.0.0.0", "[::]", "192.168.1.7", "[fe80::1]", "shield.internal", "127.1"])
def test_an_address_that_others_reach_is_refused_unless_it_is_public(file: Path, host: str) -> None:
    (told,) = mistakes(file, f'[mesh]\nshield = "{host}:7401"\n')
    assert told.startswith(
        f'snavio.toml:2:1: [mesh] shield = "{host}:7401" is unsafe: other machines can talk to '
    )
    assert told.endswith("add `public_bind = true` to [mesh], or set SNAVIO_MESH__PUBLIC_BIND=true.")
    validate_all(file, installed(), environment={"SNAVIO_MESH__PUBLIC_BIND": "true"})


@pytest.mark.parametrize("host", ["127.0.0.1", "127.9.9.9", "[::1]", "localhost"])
def test_loopback_needs_no_second_word(host: str) -> None:
    assert is_loopback(f"{host}:0")


def test_a_process_may_call_a_remote_service_without_being_public_itself(file: Path) -> None:
    file.write_text('[mesh]\nsigner = "10.0.0.4:7404"\n')
    load(ShieldSettings, "shield", config=file, environment={})
    with pytest.raises(BadConfiguration, match="public_bind"):
        load(SignerSettings, "signer", config=file, environment={})


def test_what_counts_is_where_a_service_listens(file: Path) -> None:
    file.write_text('[mesh]\nsigner = "signer.internal:7404"\nsigner_listen = "127.0.0.1:7404"\n')
    load(SignerSettings, "signer", config=file, environment={})
    assert mistakes(file, '[mesh]\nsigner_listen = "0.0.0.0:7404"\n')[0].startswith(
        'snavio.toml:2:1: [mesh] signer_listen = "0.0.0.0:7404" is unsafe'
    )


@pytest.mark.parametrize("service", SERVICES)
def test_every_service_can_listen_on_another_address_than_the_one_it_is_called_by(service: str) -> None:
    called = MeshSettings.model_validate({service: "mesh.example:7499"})
    assert called.listens(service) == "mesh.example:7499"
    elsewhere = called.model_copy(update={f"{service}_listen": "0.0.0.0:7401"})
    assert (elsewhere.listens(service), getattr(elsewhere, service)) == ("0.0.0.0:7401", "mesh.example:7499")


def test_the_earlier_way_to_listen_elsewhere_is_answered_with_todays(file: Path) -> None:
    assert "it is [mesh] signer_listen now" in mistakes(file, '[signer]\nlisten = "127.0.0.1:1"\n')[0]


def test_door_for_newcomers_needs_a_second_word_to_be_public(file: Path) -> None:
    assert mistakes(file, '[signer]\nenrol_listen = "0.0.0.0:7414"\n')[0].startswith(
        'snavio.toml:2:1: [signer] enrol_listen = "0.0.0.0:7414" is unsafe: other machines can try enrolment tokens'
    )


@pytest.mark.parametrize(
    ("signer", "listen", "door"),
    [
        ("127.0.0.1:7404", None, "127.0.0.1:7414"),
        ("127.0.0.1:0", None, "127.0.0.1:0"),
        ("signer.internal:7404", "[::1]:65530", "[::1]:65520"),
    ],
)
def test_door_for_newcomers_is_ten_ports_above_signer(signer: str, listen: str | None, door: str) -> None:
    assert SignerSettings().enrol_address(MeshSettings(signer=signer, signer_listen=listen)) == door
    assert SignerSettings(enrol_listen="127.0.0.1:1").enrol_address(MeshSettings()) == "127.0.0.1:1"


def test_an_unsafe_setting_from_the_environment_is_refused_as_well() -> None:
    assert mistakes(None, environment={"SNAVIO_MAILBOX__AMNESIA": "true"})[0].startswith(
        "environment variable SNAVIO_MAILBOX__AMNESIA: [mailbox] amnesia = true is unsafe"
    )


def test_no_second_word_is_asked_for_while_the_file_that_may_hold_it_cannot_be_read(file: Path) -> None:
    told = mistakes(file, "[mailbox\n", environment={"SNAVIO_MAILBOX__AMNESIA": "true"})
    assert len(told) == 1
    assert "not TOML" in told[0]


def test_every_second_word_is_a_key_that_is_off_by_default() -> None:
    sections = installed()
    for rule in RULES:
        assert sections[rule.word_section].model_fields[rule.word_key].default is False
    assert not any(list(rule.offenders({name: kind() for name, kind in sections.items()})) for rule in RULES)


# What is in force


def test_effective_settings_say_where_they_come_from(file: Path) -> None:
    file.write_text("[shield]\n\nwindow_ms = 2000\n")
    found = effective(file, installed(), environment={"SNAVIO_MESH__STATE_DIR": "/s"})
    assert found["shield"]["window_ms"] == (2000, "snavio.toml:3")
    assert found["mesh"]["state_dir"] == ("/s", "environment")
    assert found["fast"]["instance"] == ("fast-0", "default")
    assert found["signer"]["sealing_key"] == (None, "default")
    json.dumps(found)


class Vault(Section):
    """A section with a secret."""

    token: SecretStr = Field(default=SecretStr("none"), min_length=8, description="A secret.")


def test_secrets_are_never_shown() -> None:
    environment = {"SNAVIO_SIGNER__TOKEN": "hunter2hunter2"}
    shown = effective(None, {"signer": Vault}, environment=environment)
    assert shown["signer"]["token"] == ("********", "environment")
    (section,) = describe({"signer": Vault})
    assert (section.keys[0].secret, section.keys[0].default) == (True, "********")
    with pytest.raises(BadConfiguration) as caught:
        load(Vault, "signer", config=None, environment={"SNAVIO_SIGNER__TOKEN": "hunter2"})
    assert "hunter2" not in str(caught.value) + repr(caught.value)


# Where keys stand


def flattened(document: dict[str, Any], prefix: tuple[str, ...] = ()) -> set[tuple[str, ...]]:
    found: set[tuple[str, ...]] = set()
    for key, value in document.items():
        if isinstance(value, dict) and value:
            found |= flattened(value, (*prefix, key))
        else:
            found.add((*prefix, key))
    return found


HARD = '''\
# [no] a = 1
top = 1 # b = 2
[ mesh ]   # [c]
"state dir" = "a # b = [c]"
'lit.eral' = '\\'
text = """
[not.a.section]
key = 1 \\""" still "" text """""
raw = \'\'\'
x = 1\'\'\'
list = [ "]", # ]
  { a = 1, b = [ '}' ] },
]
inline = { x = 1, "y.z" = { w = "}" } }
when = 1979-05-27 07:32:00Z
dotted . key."part" = -1.5e3
[a."b\\u002ec"]
last = true'''


def test_keys_are_found_where_they_stand_in_hard_text() -> None:
    found = {spot.path: (spot.line, spot.column) for spot in spots(HARD)}
    assert flattened(tomllib.loads(HARD)) <= set(found)
    assert found["top",] == (2, 1)
    assert found["mesh",] == (3, 3)
    assert found["mesh", "state dir"] == (4, 1)
    assert found["mesh", "raw"] == (9, 1)
    assert found["mesh", "list"] == (11, 1)
    assert found["mesh", "inline", "y.z", "w"] == (14, 29)
    assert found["mesh", "when"] == (15, 1)
    assert found["mesh", "dotted", "key", "part"] == (16, 1)
    assert found["a", "b.c", "last"] == (18, 1)
    assert not {path for path in found if "not" in path or "key" in path[1:2] or "x" in path[1:2]}


_WORDS = st.text("abc_-", min_size=1, max_size=3)
_TEXTS = st.text("ab=[]{}#\"'\\\n, ", max_size=8)
_VALUES = st.recursive(
    st.one_of(
        st.integers(-9, 9).map(str),
        _TEXTS.map(json.dumps),
        _TEXTS.map(lambda text: '"""' + text.replace("\\", "\\\\").replace('"', '\\"') + '"""'),
        _TEXTS.filter(lambda text: not set("'\n") & set(text)).map(lambda text: f"'{text}'"),
        _TEXTS.filter(lambda text: "'" not in text).map(lambda text: f"'''{text}'''"),
    ),
    lambda inner: st.lists(inner, max_size=3).map(lambda items: "[" + ", # ]\n".join([*items, ""]) + "]"),
    max_leaves=4,
)
_SECTIONS = st.dictionaries(_WORDS, st.dictionaries(_WORDS, _VALUES, max_size=4), max_size=4)


@settings(max_examples=150, deadline=None)
@given(_SECTIONS)
def test_every_key_that_tomllib_reads_is_found_on_its_line(document: dict[str, dict[str, str]]) -> None:
    lines: list[str] = []
    expected: dict[tuple[str, ...], int] = {}
    for name, keys in document.items():
        expected[name,] = len("\n".join([*lines, ""]).split("\n"))
        lines.append(f"[{name}] # c")
        for key, value in keys.items():
            expected[name, key] = len("\n".join([*lines, ""]).split("\n"))
            lines.append(f"{key} = {value} # d = 1")
    text = "\n".join(lines)
    assert flattened(tomllib.loads(text)) <= set(expected)
    assert {spot.path: spot.line for spot in spots(text)} == expected


@settings(max_examples=200, deadline=None)
@given(st.text("ab=[]{}#\"'\\\n, .1", max_size=40))
def test_text_that_is_not_toml_is_survived(text: str) -> None:
    found = spots(text)
    try:
        document = tomllib.loads(text)
    except tomllib.TOMLDecodeError:
        return
    assert {path[:1] for path in flattened(document)} == {spot.path[:1] for spot in found}


@pytest.mark.parametrize(
    ("key", "value", "told"),
    [
        ("TENANT_SHARES", "topic=5", "'topic' is not a bound"),
        ("REDIS_URL", "http://x", "must begin with redis://"),
    ],
)
def test_a_mesh_section_that_cannot_be_is_told_in_a_sentence(key: str, value: str, told: str) -> None:
    """The rules about unsafe settings need [mesh], which is missing then."""
    with pytest.raises(BadConfiguration, match=told):
        validate_all(None, installed(), environment={f"SNAVIO_MESH__{key}": value})
