"""Documents for programs: numbers are numbers, however wide."""

from __future__ import annotations

from snavio.admin.documents import message_document
from snavio.admin.explain import Explanation
from snavio.v1.explain_pb2 import Trace, TraceStep
from snavio.v1.registry_pb2 import AclEntry, Difference, Entry


def test_numbers_of_64_bits_are_numbers() -> None:
    entry = Entry(acl=AclEntry(source="acme/billing", target="bot", name="Ping"))
    told = message_document(Difference(after=entry, version=2**63))
    assert (told["version"], told["after"]["acl"]["source"]) == (2**63, "acme/billing")


def test_explanation_has_its_times_as_numbers_and_its_facts_as_texts() -> None:
    settled = 1_794_823_200_000_001_000
    trace = Trace(settled_unix_ns=settled, step=[TraceStep(step="attempts", fact={"msg_id": "7"})])
    found = Explanation(command_id="", traces=(trace, trace), oldest_unix_ns={"shield": 3}, away=())
    document = found.document()
    for told in (document["trace"], *document["earlier"]):
        assert (told["settled_unix_ns"], told["sent_unix_ns"]) == (settled, 0)
        assert told["step"][0]["fact"] == {"msg_id": "7"}
