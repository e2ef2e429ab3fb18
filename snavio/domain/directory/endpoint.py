"""A route that a tenant's gateway runs: known to the directory for its history, and to whoever asks what listens where.

Never holds a secret: neither the path of a URL, where tokens hide, nor anything of a route's authentication.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from enum import IntEnum
from typing import ClassVar, Final

from snavio.domain.directory.rules import require, require_name
from snavio.domain.directory.topic_rule import TOPIC_NAME

MOST_LISTED: Final = 64
MAX_ROUTE_LENGTH: Final = 1024
_ROUTE = re.compile(r"/[\x21-\x7e]*")
_LABEL = re.compile(r"[A-Za-z0-9][A-Za-z0-9._:-]{0,127}")
_TARGET = re.compile(r"[\x21-\x7e]{1,320}")
_FINGERPRINT = re.compile(r"[\x21-\x7e]{1,128}")


class EndpointMode(IntEnum):
    """The fate of its messages; same numbers as the wire's."""

    PULL = 1
    DELIVER = 2
    COMMAND = 3


@dataclass(frozen=True, slots=True)
class Endpoint:
    """One route of one tenant's gateway."""

    kind: ClassVar[str] = "endpoint"
    tenant: str
    route: str
    mode: EndpointMode
    targets: tuple[str, ...] = ()
    """Hosts that it delivers to, or `<target>:<command>`."""
    application: str = ""
    endpoint_name: str = ""
    publish: bool = False
    publish_direct: bool = False
    publish_managed: bool = False
    topics: tuple[str, ...] = ()
    fingerprint: str = ""

    def __post_init__(self) -> None:
        require_name(self.tenant, "endpoint.tenant")
        require(
            _ROUTE.fullmatch(self.route) is not None and len(self.route) <= MAX_ROUTE_LENGTH,
            "endpoint.route",
            f"a path that begins with '/', of visible ASCII characters, at most {MAX_ROUTE_LENGTH}",
        )
        require(len(self.targets) <= MOST_LISTED, "endpoint.target", f"at most {MOST_LISTED}")
        for target in self.targets:
            fits = _TARGET.fullmatch(target) is not None and not {"/", "@", "?", "#"} & set(target)
            require(
                fits, "endpoint.target", "a host with its port, or <target>:<command>; no path and no user"
            )
        labels = (self.application, self.endpoint_name)
        require(
            labels == ("", "") or all(_LABEL.fullmatch(label) for label in labels),
            "endpoint.application",
            "given together with endpoint_name, each of letters, digits, '.', '_', ':' and '-', at most 128",
        )
        require(len(self.topics) <= MOST_LISTED, "endpoint.topic", f"at most {MOST_LISTED}")
        for topic in self.topics:
            tenant, _, name = topic.partition("/")
            require(
                tenant == self.tenant and TOPIC_NAME.fullmatch(name) is not None,
                "endpoint.topic",
                "`<tenant>/own/<name>` of its own tenant",
            )
        require(
            not self.fingerprint or _FINGERPRINT.fullmatch(self.fingerprint) is not None,
            "endpoint.fingerprint",
            "at most 128 visible ASCII characters",
        )

    @property
    def key(self) -> tuple[str, ...]:
        return (self.tenant, self.route)

    @property
    def parent(self) -> str:
        return self.tenant
