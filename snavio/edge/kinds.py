"""The kinds of value: the text of a word becomes a typed value, or a sentence says why it does not.

Never quotes the text of a credential, and never takes time that grows faster than the text.
"""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, Final
from urllib.parse import urlsplit

from snavio.edge.findings import quoted
from snavio.edge.references import parse_reference
from snavio.errors import BadRequest

MOST_SIZE: Final = 1 << 40
MOST_PATH: Final = 2048
MOST_SECONDS: Final = 315_360_000
"""Ten years; `off` where the mailbox must have an end."""
SECOND_NS: Final = 1_000_000_000

_SIZE: Final = re.compile(r"(\d{1,20})(b|kb|mb|gb)?", re.IGNORECASE | re.ASCII)
_SPAN: Final = re.compile(r"(\d{1,9}(?:\.\d{1,9})?)(ns|us|ms|s|m|h|d)", re.ASCII)
_UNITS: Final = {"b": 1, "kb": 1 << 10, "mb": 1 << 20, "gb": 1 << 30}
_SPANS: Final = {
    "ns": 1,
    "us": 1000,
    "ms": 10**6,
    "s": 10**9,
    "m": 60 * 10**9,
    "h": 3600 * 10**9,
    "d": 86400 * 10**9,
}
_TOKEN: Final = re.compile(r"[!#$%&'*+\-.^_`|~0-9A-Za-z]{1,256}")
_LABEL: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9._:\-]{0,127}")
_TENANT: Final = re.compile(r"[a-z0-9](?:[a-z0-9-]{0,61}[a-z0-9])?")
_VARIABLE: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,127}")
_NAME: Final = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.\-]{0,127}")
_HOST: Final = re.compile(
    r"(?=.{1,253}$)[A-Za-z0-9_](?:[A-Za-z0-9_\-]{0,62})(?:\.[A-Za-z0-9_][A-Za-z0-9_\-]{0,62}){0,126}\.?"
)
_CREDENTIAL_SCHEMES: Final = ("env:", "file:", "vault:", "raw:")
_PLAIN: Final = re.compile(r"%(2[dD]|3[0-9]|4[1-9a-fA-F]|5[0-9aAfF]|6[1-9a-fA-F]|7[0-9aAeE])")
_PATH: Final = re.compile(r"/[A-Za-z0-9\-._~!$&'()*+,;=:@/%]*")


class BadValue(ValueError):
    """A word that is no value of its kind; the message is one sentence without its end."""

    def __init__(self, sentence: str, reason: str = "bad-value", suggestion: str = "") -> None:
        super().__init__(sentence)
        self.reason = reason
        self.suggestion = suggestion


@dataclass(frozen=True, slots=True)
class SocketAddress:
    """Host and port as they are bound; an empty host is every address."""

    host: str
    port: int
    text: str

    @property
    def everywhere(self) -> bool:
        """True for every address of the machine."""
        return self.host in ("", "0.0.0.0", "::")  # noqa: S104

    @property
    def loopback(self) -> bool:
        """True when only this machine reaches it."""
        if self.host == "localhost":
            return True
        try:
            return ipaddress.ip_address(self.host).is_loopback
        except ValueError:
            return False


def size(text: str) -> int:
    """Bytes, such as `2mb`: units of 1,024."""
    found = _SIZE.fullmatch(text)
    if not found:
        raise BadValue("is no size such as `512kb` or `2mb`")
    value = int(found[1]) * _UNITS[(found[2] or "b").lower()]
    # A size that overflowed would wrap into a tiny limit, or into none.
    if value > MOST_SIZE:
        raise BadValue("is more than the largest size, 1024gb", "size-too-large")
    if not value:
        raise BadValue("is no size: nothing would fit")
    return value


def duration(text: str) -> int:
    """Nanoseconds of a duration such as `30s` or `1h30m`, above 0."""
    value = wait(text)
    if not value:
        raise BadValue("must be more than 0")
    return value


def wait(text: str) -> int:
    """Nanoseconds of a duration, 0 included."""
    if text == "0":
        return 0
    place, total = 0, 0.0
    while place < len(text) and (found := _SPAN.match(text, place)):
        total += float(found[1]) * _SPANS[found[2]]
        place = found.end()
    if not text or place != len(text):
        raise BadValue("is no duration such as `500ms`, `30s`, `5m`, `24h` or `7d`")
    if total > MOST_SECONDS * SECOND_NS:
        raise BadValue("is longer than ten years", "duration-too-long")
    return int(total)


def span(text: str) -> int:
    """Nanoseconds of a window of ids: 1 s to 7 d."""
    value = duration(text)
    if not SECOND_NS <= value <= 7 * 86400 * SECOND_NS:
        raise BadValue("must be from 1s to 7d")
    return value


def limit(text: str) -> int | None:
    """Nanoseconds, or None for `off` and 0."""
    return (wait(text) or None) if text.lower() != "off" else None


def switch(text: str) -> bool:
    """`on` or `off`."""
    match text.lower():
        case "on" | "true":
            return True
        case "off" | "false":
            return False
    raise BadValue("must be `on` or `off`")


def rate(text: str) -> float:
    """Requests per second."""
    if not re.fullmatch(r"\d{1,9}(\.\d{1,6})?", text, re.ASCII) or not float(text):
        raise BadValue("is no rate: a number above 0, such as `100` or `0.5`")
    if float(text) > 1_000_000:
        raise BadValue("is more than 1000000 per second")
    return float(text)


def share(text: str) -> float:
    """A part, from 0 to 1."""
    if not re.fullmatch(r"[01](\.\d{1,9})?", text, re.ASCII) or float(text) > 1:
        raise BadValue("must be from 0 to 1")
    return float(text)


def address(text: str) -> SocketAddress:
    """Host and port."""
    host, colon, port = text.rpartition(":")
    if not colon or not re.fullmatch(r"\d{1,5}", port, re.ASCII) or not 1 <= int(port) <= 65535:
        raise BadValue("is no address such as `:8080`, `127.0.0.1:8080` or `[::1]:8080`")
    if host.startswith("[") and host.endswith("]"):
        host = host[1:-1]
        if not _is_ip(host) or ":" not in host:
            raise BadValue("has no IPv6 address between its brackets")
    elif ":" in host:
        raise BadValue("holds an IPv6 address without brackets; write `[::1]:8080`")
    elif host and not (_is_ip(host) or _HOST.fullmatch(host)):
        raise BadValue("has no host before its port")
    return SocketAddress(str(ipaddress.ip_address(host)) if _is_ip(host) else host.lower(), int(port), text)


def path(text: str) -> str:
    """A path of URLs in the form in which requests are compared: no empty segment, no `.` and no `..`."""
    if not text.startswith("/"):
        raise BadValue("must begin with `/`", "bad-path")
    if len(text) > MOST_PATH:
        raise BadValue(f"is longer than {MOST_PATH} characters", "bad-path")
    if not _PATH.fullmatch(text):
        raise BadValue(
            "holds a character that a path cannot have; write it as `%` and two digits", "bad-path"
        )
    if re.search(r"%(?![0-9A-Fa-f]{2})", text):
        raise BadValue("has a `%` without two hexadecimal digits", "bad-path")
    # A request's path is normalised before it is compared: a route in another form would never match.
    segments = text.rstrip("/").split("/")[1:]
    if any(each in ("", ".", "..") for each in segments):
        raise BadValue("has an empty segment, `.` or `..`, and no request would match it", "bad-path")
    if re.search(r"%(2[fF]|2[eE]|00|5[cC])", text):
        raise BadValue(
            "hides a `/`, `.`, `\\` or NUL behind a `%`, and no request would match it", "bad-path"
        )
    if re.search(r"%([01][0-9A-Fa-f]|7[fF])", text):
        raise BadValue("hides a control character behind a `%`, and no request would match it", "bad-path")
    if _PLAIN.search(text):
        # Ingress refuses such requests: they are a second name of the path without the `%`.
        raise BadValue(
            "hides letters or digits behind a `%`, and no request would match it",
            "bad-path",
            _PLAIN.sub(lambda found: chr(int(found[1], 16)), text),
        )
    return "/" + "/".join(segments)


def url(text: str) -> str:
    """An absolute http or https URL."""
    if len(text) > 4096 or not text.isprintable() or " " in text:
        raise BadValue("is no URL", "bad-url")
    try:
        parts = urlsplit(text)
        port = parts.port
    except ValueError:
        raise BadValue("is no URL", "bad-url") from None
    if parts.scheme not in ("http", "https"):
        raise BadValue("must begin with `https://` or `http://`", "bad-url")
    if not parts.hostname or port == 0:
        raise BadValue("has no host", "bad-url")
    if not (_is_ip(parts.hostname) or _HOST.fullmatch(parts.hostname)):
        raise BadValue("has a host that is no name and no address", "bad-url")
    if parts.username is not None or parts.password is not None:
        raise BadValue("holds a user or password, which would be logged; use a header", "bad-url")
    if parts.fragment:
        raise BadValue("has a fragment, which is never sent", "bad-url")
    return text


def reference(text: str) -> Any:
    """A reference to a secret."""
    try:
        return parse_reference(text)
    except BadRequest as error:
        raise BadValue(str(error), error.reason) from None


def credential(text: str) -> str:
    """A user or a password, taken literally."""
    if text.startswith(_CREDENTIAL_SCHEMES):
        # Taken literally, the reference itself would be the password, and everybody could read it in the file.
        raise BadValue(
            "is compared as it stands, so a reference would itself be the password; write `{env.NAME}`",
            "literal-reference",
        )
    if not text or not text.isprintable() or len(text) > 1024:
        raise BadValue("must be text of 1 to 1024 printable characters")
    return text


def header(text: str) -> str:
    """The name of a header."""
    if not _TOKEN.fullmatch(text):
        raise BadValue("is no name of a header", "bad-header")
    return text


def header_value(text: str) -> str:
    """The value of a header: a line break in it would be a header of somebody else's choice."""
    if len(text) > 8192 or not all(each == "\t" or (each.isprintable() and ord(each) < 256) for each in text):
        raise BadValue("is no value of a header", "bad-header")
    return text


def network(text: str) -> str:
    """An address or a network."""
    try:
        return str(ipaddress.ip_network(text, strict=False))
    except ValueError:
        raise BadValue("is no address and no network, such as `203.0.113.7` or `203.0.113.0/24`") from None


def host_pattern(text: str) -> str:
    """A host, `*`, or `*.` and a host."""
    name = text.lower().rstrip(".")
    if name == "*" or _is_ip(name.strip("[]")) or _HOST.fullmatch(name.removeprefix("*.")):
        return name
    raise BadValue("is no host, `*` or `*.example.com`")


def host_rule(text: str) -> str:
    """A host, a pattern of hosts, an address or a network."""
    try:
        return network(text)
    except BadValue:
        pass
    if "/" in text:
        raise BadValue("is no host, address or network")
    return host_pattern(text)


def time(text: str) -> int:
    """Unix nanoseconds of an RFC 3339 time."""
    if not re.fullmatch(r"\d{4}-\d\d-\d\d[Tt]\d\d:\d\d:\d\d(\.\d{1,9})?([Zz]|[+-]\d\d:\d\d)", text, re.ASCII):
        raise BadValue("is no time such as `2026-01-31T12:00:00Z`", "bad-time")
    try:
        moment = datetime.fromisoformat(re.sub(r"\.\d+", "", text.upper()).replace("Z", "+00:00"))
        seconds = moment.astimezone(UTC).timestamp()
    except (ValueError, OverflowError):
        raise BadValue("is no time that exists", "bad-time") from None
    fraction = re.search(r"\.(\d+)", text)
    nanoseconds = int(fraction[1].ljust(9, "0")) if fraction else 0
    if seconds < 0:
        raise BadValue("is before 1970", "bad-time")
    return int(seconds) * SECOND_NS + nanoseconds


def spiffe(text: str) -> str:
    """An identity in a client certificate."""
    if not re.fullmatch(r"spiffe://[a-z0-9.\-_]{1,255}/[A-Za-z0-9./\-_]{1,1024}", text):
        raise BadValue("is no identity such as `spiffe://snavio.local/tenant/acme/service/ci`")
    return text


def plain(text: str) -> str:
    """Text as it stands."""
    return text


def method(text: str) -> str:
    """A method of HTTP."""
    if not re.fullmatch(r"[A-Za-z]{1,32}", text):
        raise BadValue("is no method of HTTP")
    return text.upper()


def backend(text: str) -> str:
    """A store of messages."""
    if text == "postgres":
        raise BadValue("is not there: messages wait in the mailbox, which keeps them in `sqlite`", "refused")
    if text not in ("sqlite", "memory"):
        raise BadValue("must be `sqlite` or `memory`")
    return text


def file(text: str) -> str:
    """A path of the file system."""
    if not text or "\x00" in text or len(text) > 4096:
        raise BadValue("is no path of a file")
    return text


def matcher(text: str) -> str:
    """The name of a matcher, after its `@`."""
    if not text.startswith("@") or not _NAME.fullmatch(text[1:]):
        raise BadValue("must be `@` and a name", "bad-name")
    return text[1:]


def _named(pattern: re.Pattern[str], sentence: str) -> Callable[[str], str]:
    def read(text: str) -> str:
        if not pattern.fullmatch(text):
            raise BadValue(sentence, "bad-name")
        return text

    return read


def _is_ip(text: str) -> bool:
    try:
        ipaddress.ip_address(text)
    except ValueError:
        return False
    return "%" not in text


KINDS: Final[dict[str, Callable[[str], Any]]] = {
    **{
        each.__name__: each for each in (size, duration, wait, span, limit, switch, rate, share, address, url)
    },
    **{
        each.__name__: each
        for each in (credential, header, header_value, network, host_pattern, host_rule, time)
    },
    **{each.__name__: each for each in (spiffe, method, backend, file, matcher)},
    "ref": reference,
    "route": path,
    "prefix": path,
    "text": plain,
    "private": plain,
    "host": _named(_HOST, "is no host"),
    "label": _named(
        _LABEL, "must begin with a letter or a digit and have at most 128 letters, digits, `.`, `_`, `:`, `-`"
    ),
    "tenant": _named(_TENANT, "is no name of a tenant: small letters, digits and `-`, at most 63"),
    "variable": _named(_VARIABLE, "is no name of a variable: letters, digits and `_`"),
    "name": _named(_NAME, "is no name: letters, digits, `_`, `-` and `.`"),
}
"""Every kind by its name; `count` and `choice` take the bounds of their argument."""

SECRET_KINDS: Final = frozenset({"ref", "credential", "header_value", "private"})
"""Kinds whose text is never shown."""


def count(text: str, bounds: str) -> int:
    """A whole number within bounds such as `1-100`."""
    low, high = (int(each) for each in bounds.split("-"))
    if not re.fullmatch(r"\d{1,15}", text, re.ASCII) or not low <= int(text) <= high:
        raise BadValue(f"must be a whole number from {low:,} to {high:,}")
    return int(text)


def shown(kind: str, raw: str) -> str:
    """A word in a sentence; a credential only by its kind."""
    return "The value" if kind in SECRET_KINDS else quoted(raw.strip('"'))
