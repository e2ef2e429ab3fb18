"""Entries of the denylist in the key store: adding, merging several into a wider one, and dropping expired ones.

Pure. Never drops an entry unless another entry covers it, or every certificate that it covers has expired.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace

from snavio.adapters.embedded.keystore_document import Contents
from snavio.domain.lineage import tenant_of_spiffe, tenant_subject
from snavio.errors import Saturated
from snavio.host.shares import MESH, ShareLimit
from snavio.ports.keystore import Revocation

MAX_REVOCATIONS = 50_000
_OPEN = ShareLimit(MAX_REVOCATIONS, MAX_REVOCATIONS)

Entries = dict[str, tuple[int, Revocation]]


def with_revocations(
    contents: Contents, revocations: Sequence[Revocation], *, now_ns: int, limit: ShareLimit | None = None
) -> tuple[Contents, int]:
    """The contents with those revocations and without expired ones; and the version that has all of them."""
    news = [entry for entry in revocations if not _covered(contents.revocations, entry)]
    if not news:
        return contents, max((contents.revocations[entry.subject][0] for entry in revocations), default=0)
    kept = {
        subject: entry for subject, entry in contents.revocations.items() if entry[1].forget_at_ns > now_ns
    }
    held = holders_of(entry for _, entry in kept.values())
    # A version each: a page of the denylist ends at a version, and must not end inside of one.
    version = contents.version
    for revocation in news:
        version += 1
        version = _add(kept, held, revocation, version, limit or _OPEN)
    return replace(contents, version=version, revocations=kept), version


def holders_of(entries: Iterable[Revocation]) -> Counter[str]:
    """Entries that count against a share, by holder."""
    return Counter(entry.holder for entry in entries if entry.counted)


def _covered(entries: Entries, revocation: Revocation) -> bool:
    there = entries.get(revocation.subject)
    return (
        there is not None
        and there[1].before_ns >= revocation.before_ns
        and there[1].forget_at_ns >= revocation.forget_at_ns
    )


def _add(kept: Entries, held: Counter[str], revocation: Revocation, version: int, limit: ShareLimit) -> int:
    """Append an entry, under `version` or the next one; the version that has it."""
    if revocation.subject not in kept and revocation.counted:
        while not _room(held, revocation.holder, limit):
            wider = _widened(kept, held, _who_yields(held, revocation.holder, limit))
            kept[wider.subject] = (version, wider)
            version += 1
    _put(kept, held, revocation, version)
    return version


def _put(kept: Entries, held: Counter[str], revocation: Revocation, version: int) -> None:
    _, before = kept.pop(revocation.subject, (0, None))
    if before is not None:
        held[before.holder] -= before.counted
        revocation = replace(
            revocation,
            before_ns=max(before.before_ns, revocation.before_ns),
            forget_at_ns=max(before.forget_at_ns, revocation.forget_at_ns),
            holder=before.holder,
        )
    held[revocation.holder] += revocation.counted
    kept[revocation.subject] = (version, revocation)


def _room(held: Counter[str], holder: str, limit: ShareLimit) -> bool:
    used = sum(held.values())
    if holder == MESH:
        return used < limit.total
    return held[holder] < limit.per_tenant and used < limit.total - limit.reserve


def _who_yields(held: Counter[str], holder: str, limit: ShareLimit) -> str:
    """The holder whose entries are merged: `holder` itself beyond its share, otherwise the tenant with most entries."""
    if holder == MESH or held[holder] >= limit.per_tenant:
        return holder
    return max((each for each in held if each != MESH), key=lambda each: held[each], default=holder)


def _widened(kept: Entries, held: Counter[str], holder: str) -> Revocation:
    """One entry in place of several of one holder (any holder for the mesh), which are removed.

    Entries of one identity are merged first; where each identity has one, those of one tenant. The holder with most
    entries bears the loss of precision.
    """
    pool = [entry for _, entry in kept.values() if entry.counted and holder in (MESH, entry.holder)]
    for subject_of in (_identity_subject, _tenant_subject):
        found = _largest(pool, subject_of)
        if found is None:
            continue
        subject, several = found
        latest = max(several, key=lambda entry: entry.before_ns)
        for entry in several:
            del kept[entry.subject]
            held[entry.holder] -= 1
        wider = replace(latest, subject=subject, forget_at_ns=max(entry.forget_at_ns for entry in several))
        held[wider.holder] += 1
        return wider
    raise Saturated("The certificate denylist is full.", retry_after_ms=60_000)


def _largest(
    pool: Iterable[Revocation], subject_of: Callable[[Revocation], str]
) -> tuple[str, list[Revocation]] | None:
    groups: dict[str, list[Revocation]] = {}
    for entry in pool:
        subject = subject_of(entry)
        if subject:
            groups.setdefault(subject, []).append(entry)
    if not groups:
        return None
    subject = max(groups, key=lambda each: len(groups[each]))
    return (subject, groups[subject]) if len(groups[subject]) > 1 else None


def _identity_subject(entry: Revocation) -> str:
    return entry.identity


def _tenant_subject(entry: Revocation) -> str:
    tenant = tenant_of_spiffe(entry.identity)
    return tenant_subject(tenant) if tenant else ""
