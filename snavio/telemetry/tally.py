"""Counts commands by verdict, as their senders received them.

Never looks at a single command when a whole batch was delivered: then one count in C suffices.
"""

from __future__ import annotations

from collections import Counter

from snavio.domain.verdict import Verdict

_DELIVERED = int(Verdict.DELIVERED)


class VerdictCounts:
    """Counts per verdict since start; 256 numbers at most."""

    def __init__(self) -> None:
        self._counts: Counter[int] = Counter()

    def add(self, codes: bytes) -> None:
        """One verdict byte per command of a batch."""
        delivered = codes.count(_DELIVERED)
        self._counts[_DELIVERED] += delivered
        if delivered != len(codes):
            self._counts.update(codes.replace(bytes([_DELIVERED]), b""))

    def read(self) -> dict[str, int]:
        """Commands by reason, such as `acl-deny`."""
        return {_reason(code): count for code, count in sorted(self._counts.items()) if count}


def _reason(code: int) -> str:
    try:
        return Verdict(code).reason
    except ValueError:
        return f"verdict-{code}"
