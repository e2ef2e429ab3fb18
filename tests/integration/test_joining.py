"""New instances of the mesh's services: tokens of Signer's machine, and everybody who must not become a service."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from services.signer.join_token import make_join_tokens, write_token
from snavio.domain.enrolment import MAX_OPEN_JOINS, MAX_OPEN_PER_TENANT, Enrolment, Enrolments
from snavio.errors import (
    BadRequest,
    IntegrityError,
    NotAllowed,
    Saturated,
    SnavioError,
    StateError,
    Unavailable,
)
from snavio.host.joining import join
from snavio.rpc.renewal import Leaf
from snavio.sdk.enrolment import enroll
from snavio.v1 import signer_pb2 as sig
from tests.support.control import ADMIN, Control
from tests.support.enrolling import ask, door, newcomer, request_with, spiffe, token_for

FAST = spiffe("mesh/fast")


async def join_token(control: Control, service: str = "fast", *, ttl_s: int = 3600) -> str:
    (token,) = await make_join_tokens(control.mesh, [service], ttl_s=ttl_s)
    return token


def elsewhere(control: Control, machine: Path, token: str | None) -> Path:
    """Write `token` on another machine, and return its state folder."""
    machine.mkdir()
    if token is not None:
        (machine / "token").write_text(token + "\n")
    return machine


async def joins(control: Control, machine: Path, *, service: str = "fast", within_s: float = 0.0) -> bool:
    mesh = control.mesh.model_copy(
        update={"state_dir": machine, "join_token": machine / "token", "enrolment": door(control)}
    )
    return await join(service, mesh, within_s=within_s)


async def test_instance_on_another_machine_gets_a_certificate_of_its_service(
    control: Control, tmp_path: Path
) -> None:
    machine = elsewhere(control, tmp_path / "second", await join_token(control))
    assert await joins(control, machine)
    leaf = Leaf.in_folder(machine / "certs" / "fast")
    assert leaf.spiffe_id == FAST
    assert leaf.serial != Leaf.in_folder(control.mesh.certificates("fast")).serial
    # Good for a call that only services of the mesh may make.
    copied = control.mesh.certificates("joined")
    copied.symlink_to(machine / "certs" / "fast")
    await control.sign("joined", "Denylist", sig.DenylistRequest(), sig.DenylistResponse)


async def test_instance_that_has_its_certificate_spends_nothing(control: Control, tmp_path: Path) -> None:
    machine = elsewhere(control, tmp_path / "second", await join_token(control))
    assert await joins(control, machine)
    serial = Leaf.in_folder(machine / "certs" / "fast").serial
    assert not await joins(control, machine)
    assert Leaf.in_folder(machine / "certs" / "fast").serial == serial


async def test_token_works_once(control: Control, tmp_path: Path) -> None:
    token = await join_token(control)
    assert await joins(control, elsewhere(control, tmp_path / "second", token))
    thief = elsewhere(control, tmp_path / "third", token)
    with pytest.raises(NotAllowed) as refusal:
        await joins(control, thief)
    assert refusal.value.reason == "enrolment-refused"
    assert not (thief / "certs" / "fast" / "cert.pem").exists()


async def test_two_that_join_with_one_token_at_once_are_one(control: Control, tmp_path: Path) -> None:
    token = await join_token(control)
    machines = [elsewhere(control, tmp_path / f"m{number}", token) for number in range(4)]
    told = await asyncio.gather(*(joins(control, each) for each in machines), return_exceptions=True)
    assert [each for each in told if each is True] == [True]
    assert {each.reason for each in told if isinstance(each, SnavioError)} == {"enrolment-refused"}


async def test_token_for_one_service_makes_no_other(control: Control, tmp_path: Path) -> None:
    machine = elsewhere(control, tmp_path / "second", await join_token(control, "relay"))
    with pytest.raises(NotAllowed) as refusal:
        await joins(control, machine, service="registry")
    assert refusal.value.reason == "wrong-name"
    # And it is still good for what it is for.
    assert await joins(control, machine, service="relay")


async def test_token_ends(control: Control, tmp_path: Path) -> None:
    machine = elsewhere(control, tmp_path / "second", await join_token(control, ttl_s=60))
    control.clock.advance(seconds=61)
    with pytest.raises(NotAllowed) as refusal:
        await joins(control, machine)
    assert refusal.value.reason == "enrolment-refused"


async def test_tenants_token_makes_no_service_and_a_services_token_no_principal(
    control: Control, tmp_path: Path
) -> None:
    machine = elsewhere(control, tmp_path / "second", await token_for(control))
    with pytest.raises(IntegrityError):
        await joins(control, machine)
    assert not (machine / "certs" / "fast" / "cert.pem").exists()
    with pytest.raises(IntegrityError):
        await enroll(await join_token(control), address=door(control), folder=tmp_path / "person")


async def test_certificate_request_for_another_service_is_refused(control: Control) -> None:
    token = await join_token(control)
    with pytest.raises(SnavioError) as refusal:
        await ask(control, token=token, csr_pem=request_with(None, spiffe("mesh/signer")), name="fast")
    assert refusal.value.reason == "csr-names-another"
    assert (await ask(control, token=token, name="fast")).spiffe_id == FAST


@pytest.mark.parametrize("caller", [ADMIN, "registry", "fast", "gateway", "relay", "ci"])
async def test_nobody_but_signers_machine_makes_join_tokens(control: Control, caller: str) -> None:
    if caller == "ci":
        await newcomer(control, await token_for(control))
    with pytest.raises(NotAllowed) as refusal:
        await control.sign(
            caller, "CreateJoining", sig.CreateJoiningRequest(service="fast"), sig.CreateJoiningResponse
        )
    assert refusal.value.reason == "not-allowed"


@pytest.mark.parametrize("service", ["signer", "", "fasts", "fast\n", "acme/billing"])
async def test_no_token_for_signer_or_for_what_is_no_service(control: Control, service: str) -> None:
    with pytest.raises(BadRequest):
        await control.sign(
            "signer", "CreateJoining", sig.CreateJoiningRequest(service=service), sig.CreateJoiningResponse
        )


async def test_machine_without_signers_certificate_is_told_where_tokens_are_made(
    control: Control, tmp_path: Path
) -> None:
    with pytest.raises(StateError, match="Signer's machine"):
        await make_join_tokens(
            control.mesh.model_copy(update={"state_dir": tmp_path / "x"}), ["fast"], ttl_s=60
        )


async def test_instance_waits_for_its_token_and_says_so_at_the_end(control: Control, tmp_path: Path) -> None:
    machine = elsewhere(control, tmp_path / "second", None)
    with pytest.raises(Unavailable) as refusal:
        await joins(control, machine)
    assert refusal.value.reason == "no-join-token"
    waiting = asyncio.create_task(joins(control, machine, within_s=60))
    token = await join_token(control)
    (machine / "token").write_text(token)
    assert await waiting


@pytest.mark.parametrize("text", [b"\xff\xfe", b"x" * 5000, b"snv1.zz"])
async def test_file_that_holds_no_token_is_told_without_its_text(
    control: Control, tmp_path: Path, text: bytes
) -> None:
    machine = elsewhere(control, tmp_path / "second", "")
    (machine / "token").write_bytes(text)
    with pytest.raises(SnavioError) as refusal:
        await joins(control, machine)
    assert refusal.value.reason == "bad-token"
    assert "snv1" not in str(refusal.value) and "xxx" not in str(refusal.value)


async def test_join_token_without_an_address_for_newcomers_is_a_mistake_of_the_configuration(
    control: Control, tmp_path: Path
) -> None:
    mesh = control.mesh.model_copy(update={"state_dir": tmp_path / "x", "join_token": tmp_path / "token"})
    with pytest.raises(StateError, match="enrolment"):
        await join("fast", mesh)


def test_tenants_that_hoard_tokens_keep_no_service_from_joining() -> None:
    def token(number: int, tenant: str, service: str = "") -> Enrolment:
        return Enrolment(number.to_bytes(32, "big"), tenant, "", 100, "admin", service)

    full = Enrolments(
        0, tuple(token(n, f"t{n // MAX_OPEN_PER_TENANT}") for n in range(50 * MAX_OPEN_PER_TENANT))
    )
    with pytest.raises(Saturated):
        full.added(token(10_000, "acme"), now_ns=1)
    with_one = full.added(token(10_001, "", "fast"), now_ns=1)
    assert with_one.open[-1].service == "fast"
    crowded = Enrolments(0, tuple(token(n, "", "fast") for n in range(MAX_OPEN_JOINS)))
    with pytest.raises(Saturated):
        crowded.added(token(20_000, "", "relay"), now_ns=1)
    assert len(crowded.added(token(20_000, "acme"), now_ns=1).open) == MAX_OPEN_JOINS + 1


def test_a_token_is_never_written_into_a_file_that_somebody_laid_there(tmp_path: Path) -> None:
    trap, own = tmp_path / "fast.part", tmp_path / "fast.token"
    trap.touch(mode=0o666)
    with trap.open() as watching:
        write_token(own, "a token")
        assert watching.read() == ""
    assert own.read_text() == "a token\n" and own.stat().st_mode & 0o777 == 0o600
