"""Invitations and folders that a join must refuse, each before the token is spent or anything is sent."""

from __future__ import annotations

import asyncio
import os
import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from snavio.clock import ManualClock
from snavio.domain.enrolment import Token, parse_token
from snavio.domain.invitation import Invitation
from snavio.errors import (
    BadRequest,
    Conflict,
    NotAllowed,
    SnavioError,
    StateError,
    Unauthenticated,
    Unavailable,
)
from snavio.rpc.credentials import CertificateFiles
from snavio.sdk import enrolment
from snavio.sdk.context import ContextFile
from snavio.sdk.join import JoinResult, join
from snavio.v1 import signer_pb2 as sig
from tests.support.control import ADMIN, Control, control_plane
from tests.support.enrolling import door, spiffe, token_for

pytestmark = pytest.mark.filterwarnings("error")


async def invited(control: Control, *, principal: str = "ci", **changed: str) -> Invitation:
    token = parse_token(await token_for(control, principal=principal))
    expires = control.clock.unix_ns() // 10**9 + 86_400
    addresses = {"enrolment": door(control), "signer": control.mesh.signer, **changed}
    return Invitation(token, expires, "acme", principal, "snavio.local", addresses)


async def accept(invitation: Invitation, folder: Path, control: Control, **more: str) -> JoinResult:
    return await join(invitation, file=ContextFile(folder), clock=control.clock, **more)


async def living(control: Control) -> int:
    """Certificates of the principal that there are: 0 shows that no token was spent."""
    request = sig.ListCertificatesRequest(spiffe_id=spiffe("tenant/acme/principal/ci"))
    answer = await control.sign(ADMIN, "ListCertificates", request, sig.ListCertificatesResponse)
    return len(answer.certificate)


async def refusal(invitation: Invitation, folder: Path, control: Control, **more: str) -> SnavioError:
    with pytest.raises(SnavioError) as refused:
        await accept(invitation, folder, control, **more)
    # Neither the token nor its secret stands in what may end in a log.
    assert invitation.token.text not in str(refused.value)
    return refused.value


async def test_a_join_leaves_a_context_with_the_ca_of_the_invitation(
    control: Control, tmp_path: Path
) -> None:
    invitation = await invited(control)
    joined = await accept(invitation, tmp_path / "config", control)
    kept = ContextFile(tmp_path / "config").read()
    assert (kept.current, kept.named("acme-ci")) == ("acme-ci", joined.context)
    assert joined.context.ca_sha256 == invitation.token.fingerprint.hex()
    joined.context.require_ca()
    assert joined.clock_off_s == 0


async def test_a_used_invitation_is_refused_and_the_context_stays(control: Control, tmp_path: Path) -> None:
    invitation = await invited(control)
    await accept(invitation, tmp_path, control)
    before = (tmp_path / "contexts.toml").read_text()
    error = await refusal(invitation, tmp_path, control)
    assert error.reason == "enrolment-refused"
    assert "it was used" in str(error)
    assert (tmp_path / "contexts.toml").read_text() == before


async def test_an_expired_invitation_is_refused_with_both_times(control: Control, tmp_path: Path) -> None:
    invitation = await invited(control)
    later = ManualClock(control.clock.unix_ns() + 2 * 86_400 * 10**9)
    with pytest.raises(NotAllowed, match="this machine's clock says") as refused:
        await join(invitation, file=ContextFile(tmp_path), clock=later)
    assert refused.value.reason == "invitation-expired"
    assert await living(control) == 0


async def test_an_invitation_whose_token_ended_at_the_mesh_is_refused(
    control: Control, tmp_path: Path
) -> None:
    invitation = await invited(control)
    control.clock.advance(seconds=86_401)
    behind = ManualClock(invitation.expires_unix_s * 10**9 - 1)
    with pytest.raises(NotAllowed) as refused:
        await join(invitation, file=ContextFile(tmp_path), clock=behind)
    assert refused.value.reason == "enrolment-refused"


async def test_an_invitation_of_another_mesh_is_refused_before_anything_is_sent(
    control: Control, tmp_path: Path
) -> None:
    async with control_plane(tmp_path / "other", fresh=True) as other:
        foreign = await invited(other)
        sent = replace(foreign, addresses={"enrolment": door(control)})
        error = await refusal(sent, tmp_path / "config", control)
        assert error.reason == "wrong-ca"
        assert "nothing was sent" in str(error)
        # The token was not spent: it is still good where it belongs.
        await accept(foreign, tmp_path / "config", other)


async def test_a_wrong_fingerprint_is_refused_before_anything_is_sent(
    control: Control, tmp_path: Path
) -> None:
    invitation = await invited(control)
    wrong = replace(invitation, token=Token(bytes(32), invitation.token.secret))
    with overheard(door(control)) as (address, heard):
        error = await refusal(replace(wrong, addresses={"enrolment": address}), tmp_path, control)
    assert error.reason == "wrong-ca"
    # A ClientHello, a Finished and an alert, and not a byte of a request.
    assert sum(map(len, heard)) < 2048
    assert await living(control) == 0


async def test_a_port_of_the_same_mesh_is_named_as_a_wrong_port(control: Control, tmp_path: Path) -> None:
    invitation = await invited(control)
    wrong = replace(invitation, addresses={"enrolment": control.mesh.signer})
    error = await refusal(wrong, tmp_path, control)
    assert (type(error), error.reason) == (BadRequest, "wrong-port")
    assert f"{control.mesh.signer} is Signer, not the door for newcomers" in str(error)


async def test_an_address_where_nobody_answers_is_named(control: Control, tmp_path: Path) -> None:
    invitation = await invited(control)
    with socket.create_server(("127.0.0.1", 0)) as silent:
        address = f"127.0.0.1:{silent.getsockname()[1]}"
    error = await refusal(replace(invitation, addresses={"enrolment": address}), tmp_path, control)
    assert (type(error), error.reason) == (Unavailable, "no-enrolment")
    assert address in str(error)


@pytest.mark.parametrize("minutes", [10, -10])
async def test_a_clock_ten_minutes_off_is_said(
    minutes: int, control: Control, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    off = SimpleNamespace(time_ns=lambda: time.time_ns() + minutes * 60 * 10**9)
    monkeypatch.setattr(enrolment, "time", off)
    joined = await accept(await invited(control), tmp_path, control)
    assert abs(joined.clock_off_s - minutes * 60) < 30


async def test_a_certificate_of_the_mesh_that_is_not_good_yet_tells_of_the_clock(
    control: Control, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Behind(datetime):
        @classmethod
        def now(cls, tz: Any = None) -> Any:
            return datetime.now(UTC) - timedelta(days=1)

    invitation = await invited(control)
    monkeypatch.setattr(enrolment, "datetime", Behind)
    error = await refusal(invitation, tmp_path, control)
    assert (type(error), error.reason) == (Unauthenticated, "clock-wrong")
    assert "This machine's clock is behind" in str(error)


@pytest.mark.parametrize(
    "forbid", [lambda folder: folder.write_text(""), lambda folder: folder.symlink_to("/proc")]
)
async def test_a_folder_that_cannot_be_written_is_said_before_the_token_is_spent(
    control: Control, tmp_path: Path, forbid: Callable[[Path], object]
) -> None:
    invitation = await invited(control)
    forbid(tmp_path / "config")
    error = await refusal(invitation, tmp_path / "config", control)
    assert (type(error), error.reason) == (StateError, "folder-unwritable")
    await accept(invitation, tmp_path / "good", control)


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write everywhere")
async def test_a_read_only_home_is_said_before_the_token_is_spent(control: Control, tmp_path: Path) -> None:
    invitation = await invited(control)
    (tmp_path / "home").mkdir(mode=0o500)
    error = await refusal(invitation, tmp_path / "home" / "config", control)
    assert (type(error), error.reason) == (StateError, "folder-unwritable")
    await accept(invitation, tmp_path / "good", control)


async def test_two_joins_at_once_with_one_invitation_make_one_principal(
    control: Control, tmp_path: Path
) -> None:
    invitation = await invited(control)
    both = await asyncio.gather(
        *(accept(invitation, tmp_path, control) for _ in range(2)), return_exceptions=True
    )
    (joined,) = [each for each in both if isinstance(each, JoinResult)]
    (refused,) = [each for each in both if isinstance(each, NotAllowed)]
    assert refused.reason == "enrolment-refused"
    joined.context.require_ca()
    assert await living(control) == 1


async def test_two_joins_at_once_with_two_invitations_both_end_with_a_usable_folder(
    control: Control, tmp_path: Path
) -> None:
    one, other = await invited(control), await invited(control)
    both = await asyncio.gather(accept(one, tmp_path, control), accept(other, tmp_path, control))
    # Key and certificate of one and the same join.
    assert CertificateFiles.in_folder(both[0].context.identity).read().serial in {
        each.enrolled.serial for each in both
    }


async def test_two_principals_who_join_at_once_have_a_context_each(control: Control, tmp_path: Path) -> None:
    some = [await invited(control, principal=name) for name in ("ci", "ops", "dev")]
    await asyncio.gather(*(accept(each, tmp_path, control) for each in some))
    assert set(ContextFile(tmp_path).read().by_name) == {"acme-ci", "acme-ops", "acme-dev"}


async def test_a_context_of_another_mesh_is_not_taken_away(control: Control, tmp_path: Path) -> None:
    async with control_plane(tmp_path / "other", fresh=True) as other:
        await accept(await invited(other), tmp_path / "config", other)
        invitation = await invited(control)
        error = await refusal(invitation, tmp_path / "config", control)
        assert (type(error), error.reason) == (Conflict, "context-taken")
        await accept(invitation, tmp_path / "config", control, name="acme-two")


@pytest.mark.parametrize("name", ["ünï", "x" * 10_000, "a\x1b[2J", "../../etc", "A", " "])
async def test_a_name_that_is_none_is_refused_and_shown_harmlessly(
    control: Control, tmp_path: Path, name: str
) -> None:
    open_one = await invited(control, principal="")
    error = await refusal(open_one, tmp_path, control, principal=name)
    assert (type(error), error.reason) == (BadRequest, "bad-name")
    assert str(error).isprintable()
    assert len(str(error)) < 300
    with pytest.raises(BadRequest):
        await accept(open_one, tmp_path, control, principal="ci", name=name)
    assert await living(control) == 0


async def test_an_open_invitation_wants_a_name_before_it_is_used(control: Control, tmp_path: Path) -> None:
    open_one = await invited(control, principal="")
    assert (await refusal(open_one, tmp_path, control)).reason == "no-name"
    named = await invited(control)
    assert (await refusal(named, tmp_path, control, principal="other")).reason == "wrong-name"
    await accept(open_one, tmp_path, control, principal="ci")


@contextmanager
def overheard(address: str) -> Iterator[tuple[str, list[bytes]]]:
    """A way to `address` on which everything that a client sends is kept."""
    host, _, port = address.rpartition(":")
    heard: list[bytes] = []
    listener = socket.create_server(("127.0.0.1", 0))

    def copy(source: socket.socket, sink: socket.socket, kept: list[bytes] | None) -> None:
        with suppress(OSError):
            while piece := source.recv(65_536):
                if kept is not None:
                    kept.append(piece)
                sink.sendall(piece)
        for end in (source, sink):
            with suppress(OSError):
                end.shutdown(socket.SHUT_RDWR)

    def serve() -> None:
        while True:
            try:
                client, _ = listener.accept()
            except OSError:
                return
            server = socket.create_connection((host, int(port)))
            for words in ((client, server, heard), (server, client, None)):
                threading.Thread(target=copy, args=words, daemon=True).start()

    threading.Thread(target=serve, daemon=True).start()
    try:
        yield f"127.0.0.1:{listener.getsockname()[1]}", heard
    finally:
        listener.close()
