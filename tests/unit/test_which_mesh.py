"""Which mesh a command talks to, and as whom: one order of precedence, and a sentence for everything that cannot be."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from snavio.cli.actor import act_as, read_actor
from snavio.cli.exits import ExitCode, code_of
from snavio.domain.identity import Identity, IdentityKind
from snavio.errors import BadRequest, StateError, Unauthenticated, Unavailable
from snavio.launch.installation import Installation, attach, of_context
from snavio.pki import fingerprint_of
from snavio.sdk.context import Context, ContextFile
from snavio.sdk.from_context import service_access
from tests.support.pki import Authority
from tests.support.terminal import snavio

CI = Identity("snavio.local", IdentityKind.PRINCIPAL, "ci", "acme")


@pytest.fixture(autouse=True)
def machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A machine where nothing is configured."""
    here = tmp_path / "here"
    here.mkdir()
    monkeypatch.chdir(here)
    monkeypatch.setenv("SNAVIO_CONFIG_DIR", str(tmp_path / "config"))
    for name in ("SNAVIO_CONTEXT", "SNAVIO_STATE_DIR"):
        monkeypatch.delenv(name, raising=False)
    return tmp_path


def ran_here(folder: Path) -> None:
    (folder / "certs" / "operator-admin").mkdir(parents=True)


def context(machine: Path, name: str, authority: Authority, identity: Identity = CI, **more: str) -> Context:
    folder = machine / "config" / "identities" / name / "certs" / f"acme-{identity.name}"
    authority.leaf(identity, folder=folder)
    made = Context(
        name,
        folder,
        "acme",
        fingerprint_of(authority.ca.certificate).hex(),
        addresses={"shield": f"{name}.example:7401", **more},
    )
    ContextFile(machine / "config").put(made, use=False)
    return made


def shield(**options: str | Path | None) -> str:
    state, config, name = (options.get(key) for key in ("state_dir", "config", "context"))
    found = attach(
        state_dir=Path(state) if state else None,
        config=Path(config) if config else None,
        context=str(name) if name else None,
    )
    return found.mesh.shield


def test_the_order_is_flags_then_a_named_context_then_a_state_folder_then_the_context_in_use(
    machine: Path, authority: Authority, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("used", "named", "flag"):
        context(machine, name, authority)
    assert shield() == "used.example:7401"
    ran_here(machine / "here" / ".snavio")
    assert shield() == "127.0.0.1:7401"
    monkeypatch.setenv("SNAVIO_CONTEXT", "named")
    assert shield() == "named.example:7401"
    assert shield(context="flag") == "flag.example:7401"
    config = machine / "mesh.toml"
    config.write_text('[mesh]\nshield = "configured.example:7401"\n')
    assert shield(config=config) == "configured.example:7401"
    assert shield(state_dir=machine / "other") == "127.0.0.1:7401"
    monkeypatch.setenv("SNAVIO_STATE_DIR", str(machine / "here" / ".snavio"))
    assert shield() == "named.example:7401"


def test_a_state_folder_that_was_named_is_not_replaced_by_the_context_in_use(
    machine: Path, authority: Authority, monkeypatch: pytest.MonkeyPatch
) -> None:
    context(machine, "used", authority)
    monkeypatch.setenv("SNAVIO_STATE_DIR", str(machine / "nowhere"))
    found = attach(state_dir=None, config=None)
    assert found.context is None
    with pytest.raises(Unavailable, match="No mesh has run on"):
        _ = found.identity


def test_two_meshes_in_one_command_are_refused(machine: Path, authority: Authority) -> None:
    context(machine, "used", authority)
    with pytest.raises(BadRequest) as refused:
        shield(context="used", state_dir=machine)
    assert refused.value.reason == "two-meshes"


def test_a_command_with_certificates_and_a_configuration_needs_no_state_folder(
    machine: Path, authority: Authority
) -> None:
    authority.leaf(CI, folder=machine / "here" / "certs" / "acme-ci")
    (machine / "here" / "snavio.toml").write_text('[mesh]\nregistry = "127.0.0.1:1"\n')
    ran = snavio("try", "acme/billing", "bot", "Ping", "--as", "acme-ci", folder=machine / "here")
    assert ran.returncode == ExitCode.UNREACHABLE
    assert "Registry does not answer at 127.0.0.1:1" in ran.stderr
    assert "No mesh has run" not in ran.stderr


def test_a_folder_with_another_ca_is_refused(machine: Path, authority: Authority, tmp_path: Path) -> None:
    made = context(machine, "used", authority)
    (tmp_path / "other").mkdir()
    Authority(tmp_path / "other").leaf(CI, folder=made.identity)
    with pytest.raises(StateError, match="nothing was sent") as refused:
        of_context(made)
    assert refused.value.reason == "wrong-ca"


def test_a_context_whose_identity_is_gone_says_how_to_get_another(
    machine: Path, authority: Authority
) -> None:
    made = context(machine, "used", authority)
    (made.identity / "ca.pem").unlink()
    with pytest.raises(StateError, match="Join again") as refused:
        of_context(made)
    assert refused.value.reason == "no-identity"


def test_an_address_that_is_none_is_told_with_its_context(machine: Path, authority: Authority) -> None:
    context(machine, "used", authority, registry="nonsense")
    with pytest.raises(BadRequest, match="its registry is 'nonsense'"):
        attach(state_dir=None, config=None)


def test_an_ended_certificate_is_told_as_that_and_not_as_a_dead_mesh(
    machine: Path, authority: Authority
) -> None:
    made = context(machine, "used", authority)
    authority.leaf(CI, ttl_s=60, issued_ago_s=120, folder=made.identity)
    for words in ("whoami", "queue ls", "send bot Ping --as billing", "acl ls --target bot"):
        ran = snavio(*words.split(), folder=machine / "here", SNAVIO_CONFIG_DIR=str(machine / "config"))
        said = ran.stdout + ran.stderr
        assert ran.returncode == ExitCode.REFUSED, said
        assert "ended 1 min ago" in said, said
        assert "snavio tenant invite acme --principal ci" in said
        assert "Is the mesh up" not in said


def test_a_clock_that_is_behind_is_said(machine: Path, authority: Authority) -> None:
    made = context(machine, "used", authority)
    who = read_actor(made.identity, trust_domain="snavio.local")
    ten_minutes_ago = time.time_ns() - 600 * 10**9
    with pytest.raises(Unauthenticated, match="This machine's clock is behind") as refused:
        who.require_living(ten_minutes_ago)
    assert refused.value.reason == "clock-behind"


@pytest.mark.parametrize("reason", ["certificate-revoked", "certificate-expired"])
def test_a_refusal_names_who_was_refused_and_the_next_command(
    reason: str, machine: Path, authority: Authority
) -> None:
    who = read_actor(context(machine, "used", authority).identity, trust_domain="snavio.local")
    error = who.refused(Unauthenticated("no", reason=reason))
    assert "The mesh refused principal ci of acme" in str(error)
    assert "snavio tenant invite acme --principal ci" in str(error)
    assert code_of(error) is ExitCode.REFUSED


def in_context(machine: Path, authority: Authority, identity: Identity = CI) -> Installation:
    return of_context(context(machine, "used", authority, identity))


def test_a_principal_acts_as_the_services_of_its_own_tenant_only(machine: Path, authority: Authority) -> None:
    here, now = in_context(machine, authority), time.time_ns()
    for name in ("billing", "acme/billing"):
        who = act_as(name, here, default="x", now_unix_ns=now)
        assert (who.label, who.principal) == ("acme/billing", here.identity)
        assert who.certificates == here.identity.parent / "acme-billing"
    with pytest.raises(BadRequest) as refused:
        act_as("rival/shop", here, default="x", now_unix_ns=now)
    assert refused.value.reason == "no-certificate"
    with pytest.raises(BadRequest) as unnamed:
        act_as(None, here, default="x", now_unix_ns=now)
    assert unnamed.value.reason == "no-service"


def test_the_context_of_a_service_acts_as_itself(machine: Path, authority: Authority) -> None:
    here = in_context(machine, authority, Identity("snavio.local", IdentityKind.SERVICE, "billing", "acme"))
    who = act_as(None, here, default="x", now_unix_ns=time.time_ns())
    assert (who.label, who.principal) == ("acme/billing", None)
    assert service_access("", None).source == "acme/billing"


@pytest.mark.parametrize("name", ["ünï", "x" * 10_000, "a\x1b[2J", "../../etc", "", "/"])
def test_a_name_that_is_no_service_is_refused_and_shown_harmlessly(
    name: str, machine: Path, authority: Authority
) -> None:
    here = in_context(machine, authority)
    with pytest.raises(BadRequest) as refused:
        act_as(name, here, default="x", now_unix_ns=time.time_ns())
    assert str(refused.value).isprintable()
    assert len(str(refused.value)) < 600
    with pytest.raises(BadRequest):
        service_access(name, None)


def test_the_sdk_without_a_context_says_how_to_get_one() -> None:
    with pytest.raises(BadRequest, match="snavio join") as refused:
        service_access("billing", None)
    assert refused.value.reason == "no-context"


def test_without_a_home_folder_a_join_says_so_and_other_commands_go_on(machine: Path) -> None:
    here = machine / "here"
    listed = snavio("context", "ls", folder=here, HOME="", SNAVIO_CONFIG_DIR="", XDG_CONFIG_HOME="")
    assert listed.returncode == ExitCode.STATE
    assert "set HOME, or SNAVIO_CONFIG_DIR" in listed.stderr
    ran = snavio("send", "bot", "Ping", folder=here, HOME="", SNAVIO_CONFIG_DIR="", XDG_CONFIG_HOME="")
    assert ran.returncode == ExitCode.UNREACHABLE
    assert "No mesh has run on" in ran.stderr


def test_a_context_that_is_misspelled_is_answered_with_the_closest(
    machine: Path, authority: Authority
) -> None:
    context(machine, "acme-ci", authority)
    for words, variable in ((("whoami",), "acme-cl"), (("whoami", "--context", "acme-cl"), "")):
        ran = snavio(
            *words,
            folder=machine / "here",
            SNAVIO_CONFIG_DIR=str(machine / "config"),
            SNAVIO_CONTEXT=variable,
        )
        assert (ran.returncode, "did you mean acme-ci?" in ran.stderr) == (ExitCode.USAGE, True), ran.stderr
