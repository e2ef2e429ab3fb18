"""The command line's connection to a running mesh: with any call, a principal's certificate is renewed when due."""

from __future__ import annotations

from pathlib import Path

import pytest

from snavio.cli import caller as callers
from snavio.cli.caller import Caller, OperatorCaller
from snavio.config import MeshSettings

MESH = MeshSettings()
FOLDER = Path("certs/acme-admin")


@pytest.mark.parametrize(
    ("caller", "renewed"), [(Caller(by="acme-admin"), [FOLDER]), (Caller(), []), (OperatorCaller(), [])]
)
def test_certificate_that_as_names_is_renewed_before_the_question(
    caller: OperatorCaller, renewed: list[Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    told: list[Path] = []

    async def renew(folder: Path, _mesh: MeshSettings) -> None:
        told.append(folder)

    async def question(mesh: MeshSettings, certificates: Path) -> str:
        assert (mesh, certificates, told) == (MESH, FOLDER, renewed)
        return "answer"

    monkeypatch.setattr(callers, "_renew_if_due", renew)
    monkeypatch.setattr(type(caller), "attached", lambda _self: (MESH, FOLDER))
    assert caller.answer(question) == "answer"
