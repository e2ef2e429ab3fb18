"""Settings from one TOML file, overridden by `SNAVIO_SECTION__KEY`; every mistake is reported at once, at start.

Never fills in a value that the operator misspelled: an unknown section or key is an error with a suggestion.
"""

from __future__ import annotations

import difflib
import os
import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Any, TypeVar

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from snavio.domain.identity import DEFAULT_TRUST_DOMAIN
from snavio.errors import BadRequest

ENVIRONMENT_PREFIX = "SNAVIO_"


class Section(BaseModel):
    """Base of every section: unknown keys are refused, values do not change after start."""

    model_config = ConfigDict(extra="forbid", frozen=True)


class MeshSettings(Section):
    """What every process of one installation agrees on."""

    trust_domain: str = Field(DEFAULT_TRUST_DOMAIN, description="Trust domain of every certificate.")
    state_dir: Path = Field(Path(".snavio"), description="Folder of certificates and embedded stores.")
    shield: str = Field("127.0.0.1:7401", description="Address of Shield, the ingress.")
    fast: str = Field("127.0.0.1:7402", description="Address of Fast.")
    slow: str = Field("127.0.0.1:7403", description="Address of Slow.")
    signer: str = Field("127.0.0.1:7404", description="Address of Signer.")
    registry: str = Field("127.0.0.1:7405", description="Address of Registry.")
    mailbox: str = Field("127.0.0.1:7406", description="Address of the mailbox.")
    budget_ms: int = Field(5000, ge=100, le=60_000, description="Time for a command's whole journey.")
    pull_interval_ms: int = Field(1000, ge=50, le=60_000, description="Pause between pulls of changes.")

    def certificates(self, name: str) -> Path:
        """Folder of one identity's certificate files."""
        return self.state_dir / "certs" / name


S = TypeVar("S", bound=Section)
_SERVICES = ("shield", "fast", "slow", "signer", "registry", "mailbox")


def load(
    section: type[S], name: str, *, config: Path | None, environment: Mapping[str, str] = os.environ
) -> tuple[MeshSettings, S]:
    """The `[mesh]` section and the one called `name`, validated together; BadRequest lists every mistake."""
    document = _read(config) if config is not None else {}
    for key, text in environment.items():
        if key.startswith(ENVIRONMENT_PREFIX) and "__" in key:
            place, _, setting = key.removeprefix(ENVIRONMENT_PREFIX).lower().partition("__")
            document.setdefault(place, {})[setting] = text
    mistakes: list[str] = []
    known = ("mesh", *_SERVICES)
    mistakes += [
        f"[{found}] is not a section{_suggest(found, known)}." for found in document if found not in known
    ]
    mesh = _validate(MeshSettings, "mesh", document, mistakes)
    chosen = _validate(section, name, document, mistakes)
    if mistakes or mesh is None or chosen is None:
        where = config if config is not None else "the environment"
        raise BadRequest(f"{where}: " + " ".join(mistakes), reason="bad-configuration")
    return mesh, chosen


def _read(config: Path) -> dict[str, dict[str, Any]]:
    try:
        document = tomllib.loads(config.read_text("utf-8"))
    except FileNotFoundError:
        raise BadRequest(f"{config} does not exist.", reason="bad-configuration") from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise BadRequest(f"{config} is not TOML: {error}.", reason="bad-configuration") from None
    loose = [key for key, value in document.items() if not isinstance(value, dict)]
    if loose:
        raise BadRequest(f"{config}: {loose[0]!r} stands outside of any section.", reason="bad-configuration")
    return document


def _validate(
    model: type[S], name: str, document: dict[str, dict[str, Any]], mistakes: list[str]
) -> S | None:
    try:
        return model.model_validate(document.get(name, {}))
    except ValidationError as error:
        for fault in error.errors():
            key = ".".join(str(part) for part in fault["loc"])
            if fault["type"] == "extra_forbidden":
                mistakes.append(f"[{name}] has no key {key!r}{_suggest(key, model.model_fields)}.")
            else:
                mistakes.append(f"[{name}] {key}: {fault['msg']}.")
        return None


def _suggest(word: str, known: Any) -> str:
    close = difflib.get_close_matches(word, list(known), n=1)
    return f"; did you mean {close[0]!r}?" if close else ""
