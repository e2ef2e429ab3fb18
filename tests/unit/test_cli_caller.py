"""The command line's connection to a running mesh: with any call, a principal's certificate is renewed when due."""

from __future__ import annotations

from pathlib import Path

import pytest

from snavio.cli import caller as callers
from snavio.cli.caller import Caller, OperatorCaller
from snavio.config import MeshSettings
from tests.support.pki import Authority

MESH = MeshSettings()


@pytest.mark.parametrize(
    ("caller", "renews"), [(Caller(by="acme-admin"), True), (Caller(), True), (OperatorCaller(), False)]
)
def test_principals_certificate_is_renewed_before_the_question(
    caller: OperatorCaller, renews: bool, authority: Authority, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = authority.principal("acme", "admin").certificate.parent
    told: list[Path] = []

    async def renew(folder: Path, _mesh: MeshSettings) -> None:
        told.append(folder)

    async def question(mesh: MeshSettings, certificates: Path) -> str:
        assert (mesh, certificates, told) == (MESH, folder, [folder] if renews else [])
        return "answer"

    monkeypatch.setattr(callers, "_renew_if_due", renew)
    monkeypatch.setattr(type(caller), "attached", lambda _self: (MESH, folder))
    assert caller.answer(question) == "answer"
