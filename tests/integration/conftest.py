"""A control plane for tests of Signer and Registry.

`WITH_REGISTRY = True` in a file starts Registry beside Signer; `async def furnish(control)` prepares both.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from tests.support.control import Control


@pytest.fixture
async def control(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Control]:
    """Signer, and Registry where the file wants it, in this process and on a clock of their own."""
    from tests.support.control import control_plane

    module = request.module
    async with control_plane(tmp_path, registry=getattr(module, "WITH_REGISTRY", False)) as running:
        if (furnish := getattr(module, "furnish", None)) is not None:
            await furnish(running)
        yield running
