from snavio.domain.verdict import Verdict
from snavio.v1 import batch_pb2

# Zero has the wire's customary name there and the domain's word here.
WIRE = {
    number: "UNDECIDED" if number == 0 else name.removeprefix("VERDICT_")
    for name, number in batch_pb2.Verdict.items()
}


def test_verdicts_have_the_wires_numbers_and_names() -> None:
    assert {verdict.value: verdict.name for verdict in Verdict} == WIRE


def test_every_verdict_fits_the_byte_it_travels_in() -> None:
    assert all(0 <= verdict < 128 for verdict in Verdict)


def test_every_verdict_is_either_undecided_good_invalid_or_failed() -> None:
    for verdict in Verdict:
        kinds = [verdict is Verdict.UNDECIDED, verdict.delivered, verdict.invalid, verdict.failed]
        assert kinds.count(True) == 1, verdict


def test_reasons_are_distinct_and_lower_case() -> None:
    reasons = [verdict.reason for verdict in Verdict]
    assert len(set(reasons)) == len(reasons)
    assert all(reason == reason.lower() and "_" not in reason for reason in reasons)
