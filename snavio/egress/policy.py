"""Rules of where requests may go: hosts and networks that are denied or allowed, and the schemes.

Deny comes first; an allow list, if there is one, must match. Never lets a name open this machine or its link: that
takes a rule for the address, because the owner of a name decides where it points.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Final

from yarl import URL

from snavio.egress.addresses import Address, Network, Reach, address_of, forms, opens_sealed, reach
from snavio.errors import BadRequest, NotAllowed

LONGEST_URL: Final = 2048
_OWN_NAMES: Final = ("localhost",)


@dataclass(frozen=True, slots=True)
class HostRules:
    """Rules by name (`example.com`, `*.example.com`, `*`) and by network (`10.0.0.0/8`, `192.0.2.1`)."""

    exact: frozenset[str]
    suffixes: tuple[str, ...]
    networks: tuple[Network, ...]
    everything: bool

    @classmethod
    def parse(cls, rules: Iterable[str]) -> HostRules:
        """BadRequest for a rule that is neither a name nor a network."""
        exact, suffixes, networks, everything = set(), [], [], False
        for rule in rules:
            text = rule.strip().lower()
            text = text if text == "*." else text.removesuffix(".")
            if text == "*":
                everything = True
            elif (network := _network(text)) is not None:
                networks.append(network)
            elif text.startswith("*.") and _is_name(text[2:]):
                suffixes.append(text[1:])
            elif _is_name(text):
                exact.add(text)
            else:
                raise BadRequest(
                    f"{rule!r} is no host, no *.domain and no network such as 10.0.0.0/8.",
                    reason="egress-rule",
                )
        return cls(frozenset(exact), tuple(suffixes), tuple(networks), everything)

    def __bool__(self) -> bool:
        return bool(self.exact or self.suffixes or self.networks or self.everything)

    def names(self, host: str) -> bool:
        """True if a rule by name fits `host`."""
        return self.everything or host in self.exact or host.endswith(self.suffixes)

    def covers(self, address: Address) -> bool:
        """True if a rule by network has `address`."""
        return any(network.version == address.version and address in network for network in self.networks)


@dataclass(frozen=True, slots=True)
class EgressPolicy:
    """Where requests may go. The default: https to public addresses."""

    allow: Sequence[str] = ()
    deny: Sequence[str] = ()
    https_only: bool = True
    redirects: bool = False
    check_private: bool = True
    """Refuse private addresses behind names that no rule allows."""
    _allow: HostRules = field(init=False, repr=False)
    _deny: HostRules = field(init=False, repr=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "_allow", HostRules.parse(self.allow))
        object.__setattr__(self, "_deny", HostRules.parse(self.deny))

    def check_url(self, url: URL) -> None:
        """BadRequest or NotAllowed for what no address could make right: form, scheme, name, literal address."""
        if len(str(url)) > LONGEST_URL:
            raise BadRequest(f"The URL is longer than {LONGEST_URL} characters.", reason="egress-url")
        if url.scheme not in ("https", "http") or not url.host:
            raise BadRequest("The URL needs https:// and a host.", reason="egress-url")
        if url.user is not None or url.password is not None:
            raise BadRequest("The URL must not contain a user or a password.", reason="egress-url")
        if url.scheme != "https" and self.https_only:
            raise NotAllowed(f"{url.host} is not asked without TLS: use https://.", reason="egress-scheme")
        host = _host(url)
        if self._deny.names(host):
            raise NotAllowed(f"{host} is denied by a rule.", reason="egress-denied")
        if (literal := address_of(host)) is not None:
            self.check_addresses(host, [literal])
        elif self._allow and not self._allow.networks and not self._allow.names(host):
            raise NotAllowed(f"{host} is on no allow list.", reason="egress-not-allowed")

    def check_addresses(self, host: str, addresses: Iterable[Address]) -> None:
        """NotAllowed unless every one of them may be dialled for `host`."""
        host = host.lower().rstrip(".")
        for address in addresses:
            self._check(host, address)

    def _check(self, host: str, address: Address) -> None:
        if any(self._deny.covers(form) for form in forms(address)):
            raise NotAllowed(f"{host} leads to {address}, which is denied by a rule.", reason="egress-denied")
        by_network = self._allow.covers(address)
        by_name = self._allow.names(host)
        if self._allow and not by_network and not by_name:
            raise NotAllowed(
                f"{host} leads to {address}, which is on no allow list.", reason="egress-not-allowed"
            )
        how_far = reach(address)
        if how_far is Reach.SEALED and not self._opened(host, address):
            raise NotAllowed(
                f"{host} leads to {address}, which is this machine, its link, metadata or no host.",
                reason="egress-address",
            )
        if how_far is Reach.PRIVATE and not (by_network or by_name or not self.check_private):
            raise NotAllowed(f"{host} leads to {address}, a private address.", reason="egress-address")

    def _opened(self, host: str, address: Address) -> bool:
        # A name leads wherever its owner likes, so only names that nobody owns count here.
        if host in _OWN_NAMES and host in self._allow.exact:
            return True
        opened = [network for network in self._allow.networks if opens_sealed(network)]
        return all(
            reach(form) is not Reach.SEALED
            or any(network.version == form.version and form in network for network in opened)
            for form in forms(address)
        )


def _host(url: URL) -> str:
    return (url.raw_host or "").lower().rstrip(".")


def _network(text: str) -> Network | None:
    try:
        return ipaddress.ip_network(text.strip("[]"), strict=False)
    except ValueError:
        return None


def _is_name(text: str) -> bool:
    return 0 < len(text) <= 253 and all(
        0 < len(label) <= 63 and all(each.isalnum() or each in "-_" for each in label)
        for label in text.split(".")
    )
