"""Contexts: which mesh, and under which identity. Kept by name in one file of the user's configuration folder.

Never holds a secret: the private key stays in the identity's folder, and the file only names it. Never leaves a half
written file behind: two commands that change it at once do so one after the other.
"""

from __future__ import annotations

import fcntl
import os
import re
import tomllib
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from difflib import get_close_matches
from hashlib import sha256
from pathlib import Path
from ssl import PEM_cert_to_DER_cert
from typing import Any, Final

from snavio.domain.identity import DEFAULT_TRUST_DOMAIN
from snavio.domain.invitation import SERVICES
from snavio.errors import BadRequest, StateError
from snavio.pki import CA_FILE
from snavio.sdk.settings import Endpoints

FILE: Final = "contexts.toml"
IDENTITIES: Final = "identities"
CERTIFICATES: Final = "certs"
FOLDER_VARIABLE: Final = "SNAVIO_CONFIG_DIR"
NAME_VARIABLE: Final = "SNAVIO_CONTEXT"
_NAME: Final = re.compile(r"[a-z0-9][a-z0-9._-]{0,62}")
_TEXTS: Final = ("tenant", "identity", "ca_sha256", "trust_domain")
_MOST_BYTES: Final = 1 << 20


@dataclass(frozen=True, slots=True)
class Context:
    """One mesh as one identity reaches it."""

    name: str
    identity: Path
    """Folder with key, certificate and CA."""
    tenant: str = ""
    """Empty for an operator."""
    ca_sha256: str = ""
    """Fingerprint of the CA, as the invitation gave it; hex. A folder with another CA is refused."""
    trust_domain: str = DEFAULT_TRUST_DOMAIN
    addresses: Mapping[str, str] = field(default_factory=dict)
    """Where each service is called, by its name; the default where one is missing."""

    def __post_init__(self) -> None:
        if not _NAME.fullmatch(self.name):
            raise BadRequest(
                f"{self.name[:80]!r} is no name of a context: 1 to 63 lower-case letters, digits, '.', '_' and '-'.",
                reason="bad-context-name",
            )
        if unknown := sorted(set(self.addresses) - set(SERVICES)):
            raise BadRequest(
                f"The context {self.name} has an address for {unknown[0]!r}, which is no service; there are "
                f"{', '.join(SERVICES)}.",
                reason="bad-context",
            )

    @property
    def home(self) -> Path:
        """Folder that holds `certs`, with the identity's and those of the services that are had through it."""
        return self.identity.parent.parent if self.identity.parent.name == CERTIFICATES else self.identity

    def service_folder(self, service: str) -> Path:
        """Where the certificate of one of the tenant's services lies."""
        return self.home / CERTIFICATES / f"{self.tenant}-{service}"

    def require_ca(self) -> None:
        """StateError unless the identity's folder is there, with the CA that the invitation named."""
        try:
            text = (self.identity / CA_FILE).read_text("ascii")
            shown = sha256(PEM_cert_to_DER_cert(text.strip())).hexdigest()
        except OSError as error:
            raise StateError(
                f"The context {self.name} has no identity to act under: {error.filename} cannot be read "
                f"({error.strerror}). Join again with a new invitation, or `snavio context add` another.",
                reason="no-identity",
            ) from None
        except ValueError:
            raise StateError(
                f"{self.identity / CA_FILE} is no certificate.", reason="bad-certificate"
            ) from None
        if self.ca_sha256 and shown != self.ca_sha256:
            raise StateError(
                f"{self.identity / CA_FILE} is not the CA that the context {self.name} was made for: nothing was sent. "
                "Join again with a new invitation if the mesh was made anew.",
                reason="wrong-ca",
            )

    def endpoints(self) -> Endpoints:
        """The addresses that producers and consumers need."""
        known = {
            name: self.addresses[name] for name in ("shield", "signer", "mailbox") if name in self.addresses
        }
        return Endpoints(**known, trust_domain=self.trust_domain)


@dataclass(frozen=True, slots=True)
class Contexts:
    """All contexts of a user, and the name of the one in use; empty if none is."""

    current: str = ""
    by_name: Mapping[str, Context] = field(default_factory=dict)

    def named(self, name: str) -> Context:
        """BadRequest `no-context` when there is none of that name, with the closest one."""
        if (found := self.by_name.get(name)) is not None:
            return found
        close = get_close_matches(name, self.by_name, n=1)
        have = (
            f"did you mean {close[0]}?"
            if close
            else f"there are {', '.join(sorted(self.by_name)) or 'none yet'}."
        )
        raise BadRequest(f"No context is called {name[:80]!r}: {have}", reason="no-context")


def config_folder(environment: Mapping[str, str] = os.environ) -> Path:
    """The user's configuration folder; StateError `no-home` when nothing tells where it is."""
    if own := environment.get(FOLDER_VARIABLE):
        return Path(own).expanduser().absolute()
    if (shared := environment.get("XDG_CONFIG_HOME", "")) and Path(shared).is_absolute():
        return Path(shared) / "snavio"
    home = environment.get("HOME", "")
    if not home or not Path(home).is_absolute():
        raise StateError(
            f"There is no home folder to keep contexts in: set HOME, or {FOLDER_VARIABLE} to a folder of yours.",
            reason="no-home",
        )
    return Path(home) / ".config" / "snavio"


def chosen(name: str | None = None, *, environment: Mapping[str, str] = os.environ) -> Context | None:
    """The context that `--context`, then SNAVIO_CONTEXT, then `snavio context use` names; None when none does."""
    wanted = name or environment.get(NAME_VARIABLE, "")
    try:
        folder = config_folder(environment)
    except StateError:
        if wanted:
            raise
        return None
    contexts = ContextFile(folder).read()
    if not (wanted := wanted or contexts.current):
        return None
    return contexts.named(wanted)


class ContextFile:
    """The file of one user's contexts."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.path = folder / FILE

    def read(self) -> Contexts:
        """Every context; StateError `bad-contexts` when the file is there and cannot be read."""
        try:
            with self.path.open("rb") as file:
                text = file.read(_MOST_BYTES + 1)
        except (FileNotFoundError, NotADirectoryError):
            return Contexts()
        except OSError as error:
            raise StateError(
                f"{self.path} cannot be read: {error.strerror}.", reason="bad-contexts"
            ) from None
        try:
            if len(text) > _MOST_BYTES:
                raise ValueError("it is larger than 1 MiB")
            return _parsed(tomllib.loads(text.decode("utf-8")))
        except (ValueError, BadRequest) as error:
            raise StateError(
                f"{self.path} cannot be read ({error}): mend it, or move it away and join again.",
                reason="bad-contexts",
            ) from None

    def check_writable(self) -> None:
        """StateError when a context could not be put."""
        with self._changing() as contexts:
            self._write(contexts)

    def put(self, context: Context, *, use: bool) -> None:
        """Add or replace a context; `use` makes it the one in use, as the first one is in any case."""
        with self._changing() as contexts:
            current = context.name if use or not contexts.current else contexts.current
            self._write(Contexts(current, {**contexts.by_name, context.name: context}))

    def use(self, name: str) -> Context:
        """Make a context the one in use."""
        with self._changing() as contexts:
            found = contexts.named(name)
            self._write(Contexts(name, contexts.by_name))
            return found

    def remove(self, name: str) -> Context:
        """Forget a context; its identity's folder stays."""
        with self._changing() as contexts:
            found = contexts.named(name)
            left = {other: context for other, context in contexts.by_name.items() if other != name}
            self._write(Contexts("" if contexts.current == name else contexts.current, left))
            return found

    @contextmanager
    def _changing(self) -> Iterator[Contexts]:
        try:
            self.folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            with (self.folder / f".{FILE}.lock").open("wb") as lock:
                fcntl.flock(lock, fcntl.LOCK_EX)
                yield self.read()
        except OSError as error:
            raise StateError(
                f"{self.folder} cannot be written ({error.strerror}): fix its permissions, or set "
                f"{FOLDER_VARIABLE} to a folder of yours.",
                reason="folder-unwritable",
            ) from None

    def _write(self, contexts: Contexts) -> None:
        fresh = self.folder / f".{FILE}.{os.getpid()}"
        descriptor = os.open(fresh, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
        with os.fdopen(descriptor, "w", encoding="utf-8") as file:
            file.write(_formatted(contexts))
            file.flush()
            os.fsync(file.fileno())
        fresh.replace(self.path)


def _parsed(document: Mapping[str, Any]) -> Contexts:
    found = {}
    if not isinstance(tables := document.get("contexts", {}), dict):
        raise ValueError("[contexts] is no table")
    for name, table in tables.items():
        if not isinstance(table, dict) or not isinstance(table.get("addresses", {}), dict):
            raise ValueError(f"[contexts.{name}] is no table of texts")
        texts = {key: table[key] for key in _TEXTS if key in table}
        addresses = table.get("addresses", {})
        if any(not isinstance(value, str) for value in (*texts.values(), *addresses.values())):
            raise ValueError(f"[contexts.{name}] has a value that is no text")
        if not texts.get("identity"):
            raise ValueError(f"[contexts.{name}] names no identity folder")
        found[name] = Context(name, **{**texts, "identity": Path(texts["identity"])}, addresses=addresses)
    current = document.get("current", "")
    return Contexts(current if isinstance(current, str) else "", found)


def _formatted(contexts: Contexts) -> str:
    lines = ["# Written by `snavio context` and `snavio join`.", f"current = {_text(contexts.current)}"]
    for name, context in sorted(contexts.by_name.items()):
        lines += ["", f"[contexts.{_text(name)}]"]
        lines += [f"{key} = {_text(str(value))}" for key in _TEXTS if (value := getattr(context, key))]
        if context.addresses:
            lines += [f"[contexts.{_text(name)}.addresses]"]
            lines += [f"{key} = {_text(value)}" for key, value in sorted(context.addresses.items())]
    return "\n".join(lines) + "\n"


def _text(value: str) -> str:
    """A basic string of TOML."""
    escaped = value.replace("\\", "\\\\").replace('"', '\\"')
    return '"' + re.sub(r"[\x00-\x1f\x7f]", lambda found: f"\\u{ord(found[0]):04X}", escaped) + '"'
