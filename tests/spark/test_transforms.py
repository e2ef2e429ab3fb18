"""The pure steps, on rows small enough to count by hand, and against DuckDB on larger data."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import duckdb
import pytest
from pyspark.sql import DataFrame, SparkSession

from services.slow.limits import SOURCE_QUOTA
from snavio.audit.proposals import read_lines
from snavio.domain.verdict import Verdict
from spark import verdicts
from spark.policy import DetectionPolicy
from spark.schema import event_schema
from spark.transforms.abuse import proposals
from spark.transforms.base import BUCKETS, KEYS, OWN_LIMIT, base, counters, merged
from spark.transforms.fairness import fairness
from tests.support.telemetry_rows import ACL_CODE, HMAC_CODE, RATE_CODE, bulk, row, write

DEFAULT = DetectionPolicy()
ROUTES_SCHEMA = (
    "target string, command_name string, min_dominant_share double, min_competing_share double, "
    "min_competitors double, min_minimum_volume double"
)


def read(spark: SparkSession, *paths: Path) -> DataFrame:
    return spark.read.schema(event_schema()).parquet(*map(str, paths))


def routes(spark: SparkSession, *rows: tuple[Any, ...]) -> DataFrame:
    return spark.createDataFrame(list(rows), ROUTES_SCHEMA)


def told(frame: DataFrame) -> list[dict[str, Any]]:
    return [found.asDict() for found in frame.collect()]


def test_verdicts_are_the_meshs_own() -> None:
    assert OWN_LIMIT == SOURCE_QUOTA
    for name in vars(verdicts):
        if name.isupper() and hasattr(Verdict, name):
            assert getattr(verdicts, name) == getattr(Verdict, name)
    assert (verdicts.SCHEMA_FIRST, verdicts.SCHEMA_LAST) == (Verdict.MALFORMED, Verdict.INVALID_TRACEPARENT)
    assert verdicts.KEYS == (Verdict.UNKNOWN_KEY_VERSION, Verdict.KEY_EXPIRED, Verdict.KEY_REVOKED)
    assert verdicts.CERTIFICATES == (Verdict.CERTIFICATE_EXPIRED, Verdict.CERTIFICATE_REVOKED)


def test_the_base_counts_commands_and_not_rows(spark: SparkSession, tmp_path: Path) -> None:
    rows = [
        row(),
        row(path="slow", escalation="cache_miss", service="slow"),
        row(verdict=RATE_CODE, path="slow", dispatch_latency_ms=None),
        row(verdict=HMAC_CODE, count=700, path=None, dispatch_latency_ms=None, command_id=None),
        row(event="snavio.telemetry.journal_gap", source=None, verdict=None),
        row(event="snavio.somebody.elses", verdict=None),
    ]
    counted = counters(base(read(spark, write(rows, tmp_path / "a.parquet"))))
    (found,) = told(counted.groupBy("source").sum())
    assert {name[4:-1]: found[name] for name in found if name.startswith("sum(") and found[name]} == {
        "sent": 703,
        "offered": 3,
        "competing": 3,
        "warm": 1,
        "delivered": 2,
        "taken": 2,
        "hurt": 1,
        "rate_limited": 1,
        "invalid_hmac": 700,
        "escalated_cache_miss": 1,
        "latency_03": 2,
    }


@pytest.mark.parametrize(
    ("latency_ms", "bucket"),
    [(0.0, 0), (0.1, 0), (0.25, 0), (0.26, 1), (1.0, 2), (1.1, 3), (1e9, BUCKETS - 1)],
)
def test_a_latency_is_in_the_bucket_that_its_power_of_two_ends(
    spark: SparkSession, tmp_path: Path, latency_ms: float, bucket: int
) -> None:
    path = write([row(dispatch_latency_ms=latency_ms)], tmp_path / "a.parquet")
    (found,) = told(counters(base(read(spark, path))))
    assert [at for at in range(BUCKETS) if found[f"latency_{at:02d}"]] == [bucket]


def test_windows_begin_where_they_are_aligned(spark: SparkSession, tmp_path: Path) -> None:
    rows = [row(after_s=second) for second in (0, 29.999, 30, 59.9, 60)]
    counted = counters(base(read(spark, write(rows, tmp_path / "a.parquet")))).orderBy("window_start")
    assert [found["delivered"] for found in told(counted)] == [2, 2, 1]


def test_bases_of_two_files_add_up_to_the_base_of_both(spark: SparkSession, tmp_path: Path) -> None:
    one, two = (write(bulk(2000, seed=seed, minutes=3), tmp_path / f"{seed}.parquet") for seed in (1, 2))
    together = merged(base(read(spark, one, two)))
    apart = merged(base(read(spark, one)).unionByName(base(read(spark, two))))
    assert together.exceptAll(apart).count() == apart.exceptAll(together).count() == 0


def test_the_base_agrees_with_duckdb(spark: SparkSession, tmp_path: Path) -> None:
    path = write(bulk(20_000, seed=7), tmp_path / "a.parquet")
    ours = {
        (found["target"], found["source"]): (found["offered"], found["warm"], found["invalid_hmac"])
        for found in told(
            counters(base(read(spark, path)))
            .groupBy("target", "source")
            .sum("offered", "warm", "invalid_hmac")
            .toDF("target", "source", "offered", "warm", "invalid_hmac")
        )
    }
    query = f"""
        select target, source,
          sum(case when verdict = 1 or (verdict >= 64 and verdict not in (65, 66)) then count else 0 end),
          sum(case when verdict = 1 and path = 'fast' then count else 0 end),
          sum(case when verdict = 38 then count else 0 end)
        from read_parquet('{path}') group by 1, 2"""
    theirs = {
        (target, source): tuple(map(int, sums)) for target, source, *sums in duckdb.sql(query).fetchall()
    }
    assert ours == theirs


# -- fairness ------------------------------------------------------------------------------------------


def shares(
    spark: SparkSession, folder: Path, rows: list[dict[str, Any]], *given: tuple[Any, ...]
) -> list[Any]:
    counted = base(read(spark, write(rows, folder / "a.parquet")))
    return sorted(told(fairness(counted, routes(spark, *given))), key=lambda found: found["source"])


def test_a_source_that_takes_most_of_a_contended_route_is_dominant(
    spark: SparkSession, tmp_path: Path
) -> None:
    rows = [row(source="acme/big") for _ in range(90)] + [row(source="acme/small") for _ in range(10)]
    rows += [row(source="acme/small", verdict=RATE_CODE, path="slow") for _ in range(5)]
    big, small = shares(spark, tmp_path, rows)
    assert (big["dominant"], small["dominant"]) == (True, False)
    assert big["warm_share"] == pytest.approx(0.9)
    # A share of the offered commands, not of the dispatched ones.
    assert big["competing_share"] == pytest.approx(15 / 105)
    assert big["jain"] == pytest.approx(100 * 100 / (2 * (90 * 90 + 10 * 10)))
    assert (big["volume"], big["competitors"]) == (100, 1)


def test_a_banned_source_does_not_make_a_dominant_one_of_its_victim(
    spark: SparkSession, tmp_path: Path
) -> None:
    rows = [row(source="acme/victim") for _ in range(100)]
    rows += [row(source="acme/banned", path="slow", escalation="warm_banned") for _ in range(900)]
    rows += [row(source="acme/cold", path="slow", escalation="cold_only") for _ in range(900)]
    found = {one["source"]: one for one in shares(spark, tmp_path, rows)}
    assert not any(one["dominant"] for one in found.values())
    assert (found["acme/victim"]["competing_share"], found["acme/victim"]["competitors"]) == (0.0, 0)
    assert found["acme/banned"]["offered"] == 900


def test_a_single_sender_is_never_dominant(spark: SparkSession, tmp_path: Path) -> None:
    (alone,) = shares(spark, tmp_path, [row() for _ in range(500)])
    assert not alone["dominant"]
    assert alone["warm_share"] == 1.0


def test_refused_traffic_does_not_make_competition(spark: SparkSession, tmp_path: Path) -> None:
    rows = [row() for _ in range(100)]
    rows += [row(source="acme/framer", verdict=ACL_CODE, path="slow") for _ in range(500)]
    rows += [row(source="acme/framer", verdict=HMAC_CODE, path=None) for _ in range(500)]
    (only,) = shares(spark, tmp_path, rows)
    assert (only["source"], only["dominant"]) == ("acme/shop", False)


def test_a_route_has_its_own_thresholds(spark: SparkSession, tmp_path: Path) -> None:
    rows = [row(source="acme/big") for _ in range(70)] + [row(source="acme/small") for _ in range(30)]
    assert not shares(spark, tmp_path, rows)[0]["dominant"]
    assert shares(spark, tmp_path, rows, ("bot", "say", 0.6, None, None, None))[0]["dominant"]
    assert not shares(spark, tmp_path, rows, ("bot", "go", 0.6, None, None, None))[0]["dominant"]
    assert not shares(spark, tmp_path, rows, ("bot", "say", 0.6, None, None, 101.0))[0]["dominant"]


# -- abuse ---------------------------------------------------------------------------------------------


def contended(
    target: str = "bot", *, windows: int, big: int = 90, small: int = 10, hurt: int = 10, start: int = 0
) -> list[dict[str, Any]]:
    """One source holds most of a route, and of another's offers half or so are refused."""
    rows = []
    for window in range(start, start + windows):
        given = {"target": target, "after_s": window * 30}
        rows += [row(source="acme/big", count=big, **given), row(source="acme/small", count=small, **given)]
        if hurt:
            rows.append(row(source="acme/small", verdict=RATE_CODE, path="slow", count=hurt, **given))
    return rows


def found(
    spark: SparkSession,
    folder: Path,
    rows: list[dict[str, Any]],
    policy: DetectionPolicy = DEFAULT,
    own: tuple[tuple[Any, ...], ...] = (),
) -> list[Any]:
    counted = base(read(spark, write(rows, folder / "a.parquet"))).localCheckpoint()
    made = proposals(counted, routes(spark, *own), policy)
    return sorted(made, key=lambda proposal: (proposal["kind"], proposal["source"]))


def test_dominance_that_harms_others_is_proposed_once_with_its_evidence(
    spark: SparkSession, tmp_path: Path
) -> None:
    (proposal,) = found(spark, tmp_path, contended(windows=5))
    assert (proposal["kind"], proposal["source"]) == ("dominance-single-target", "acme/big")
    assert (proposal["affected_targets"], proposal["total_violations"]) == (["bot"], 4)
    told = json.loads(proposal["evidence"])
    assert (told["source_share"], told["suffered"]) == (0.9, {"acme/small": 40})
    assert (told["others_offered"], told["others_refused"]) == (80, 40)
    assert (proposal["window_end"] - proposal["window_start"]).total_seconds() == 120
    assert (proposal["ban_applied_until"] - proposal["window_end"]).total_seconds() == 600


def no_harm() -> list[dict[str, Any]]:
    return contended(windows=20, hurt=0)


def a_little_harm() -> list[dict[str, Any]]:
    """Four commands are no harm, however many windows have them."""
    return contended(windows=20, hurt=4)


def a_small_part() -> list[dict[str, Any]]:
    """Nor are five of a hundred and two."""
    return contended(windows=20, big=900, small=97, hurt=5)


def probes() -> list[dict[str, Any]]:
    """Two who ask now and then are no rivals, and a main producer that is limited harms nobody."""
    rows = []
    for window in range(20):
        given = {"after_s": window * 30}
        for probe in ("one", "two"):
            rows.append(row(source=f"acme/{probe}", **given))
            rows.append(row(source=f"acme/{probe}", verdict=RATE_CODE, path="slow", count=3, **given))
        rows.append(row(source="acme/big", count=1000, **given))
        rows.append(row(source="acme/big", verdict=RATE_CODE, path="slow", count=500, **given))
    return rows


def framed() -> list[dict[str, Any]]:
    """A refusal by the ACL, or of somebody who is banned, is no harm: it would frame a rival."""
    rows = contended(windows=20, hurt=0)
    for window in range(20):
        given = {"source": "acme/framer", "path": "slow", "count": 500, "after_s": window * 30}
        # As many as anybody may have.
        rows.append(row(verdict=ACL_CODE, **{**given, "count": 20}))
        rows.append(row(verdict=RATE_CODE, escalation="warm_banned", **given))
        # By its own limit: it may flood that as it likes.
        rows.append(row(verdict=RATE_CODE, detail=OWN_LIMIT, **given))
    return rows


@pytest.mark.parametrize("traffic", [no_harm, a_little_harm, a_small_part, probes, framed])
def test_without_harm_to_rivals_that_count_nobody_is_proposed(
    spark: SparkSession, tmp_path: Path, traffic: Any
) -> None:
    assert found(spark, tmp_path, traffic()) == []


def test_a_route_says_how_much_of_it_one_source_may_have(spark: SparkSession, tmp_path: Path) -> None:
    rows = contended(windows=5)
    for share, number in ((0.8, 1), (0.95, 1), (1.0, 0)):
        own = (("bot", "say", share, None, None, None),)
        # 0.9 is more than the usual 0.7, and than 0.85 where the route allows 0.15 more.
        assert len(found(spark, tmp_path / str(share), rows, own=own)) == number, share
    busy = (("bot", "say", None, None, None, 101.0),)
    assert found(spark, tmp_path / "busy", rows, own=busy) == []


def test_what_others_had_while_a_source_was_kept_off_does_not_dilute_its_share(
    spark: SparkSession, tmp_path: Path
) -> None:
    """A ban that begins within a window: as much of what the others had counts as of the abuser's offers competed."""
    rows = contended(windows=3)
    kept_off = {"path": "slow", "escalation": "warm_banned", "service": "slow"}
    rows += [
        row(source="acme/big", count=40, after_s=90),
        row(source="acme/big", count=50, after_s=92, **kept_off),
        row(source="acme/small", count=30, after_s=91),
        row(source="acme/small", verdict=RATE_CODE, path="slow", count=10, after_s=90),
    ]
    (proposal,) = found(spark, tmp_path, rows)
    told = json.loads(proposal["evidence"])
    # Forty of ninety offers competed: of the others' thirty that is thirteen.
    assert (told["permits"], told["of_permits"]) == (3 * 90 + 40, 3 * 100 + 53)


def test_a_proposals_id_does_not_depend_on_counts_or_order(spark: SparkSession, tmp_path: Path) -> None:
    rows = contended(windows=5)
    (first,) = found(spark, tmp_path / "1", rows)
    (later,) = found(spark, tmp_path / "2", list(reversed(rows)) + contended(windows=4))
    (other,) = found(spark, tmp_path / "3", rows, DetectionPolicy(version="3"))
    assert first["proposal_id"] == later["proposal_id"] != other["proposal_id"]


@pytest.mark.parametrize(
    ("kind", "verdict"),
    [("burst-invalid-hmac", 38), ("burst-replayed", 39), ("burst-schema", 16), ("burst-misrouted", 66)],
)
def test_a_burst_of_refused_commands_is_proposed_and_good_traffic_does_not_hide_it(
    spark: SparkSession, tmp_path: Path, kind: str, verdict: int
) -> None:
    flood = [row(verdict=verdict, count=1000, source="evil/bot", path=None) for _ in range(3)]
    honest = [row(source="evil/bot", count=20_000)]
    (proposal,) = found(spark, tmp_path, flood + honest)
    assert (proposal["kind"], proposal["source"], proposal["total_violations"]) == (kind, "evil/bot", 3000)


def test_an_empty_archive_proposes_nothing(spark: SparkSession, tmp_path: Path) -> None:
    assert found(spark, tmp_path, []) == []


def test_a_policy_with_a_misspelled_threshold_is_refused_by_name() -> None:
    with pytest.raises(
        ValueError, match=r"policy.ban_minute: there is no such threshold; there are .*ban_minutes"
    ):
        DetectionPolicy.read('{"ban_minute": 5}')
    with pytest.raises(ValueError, match="several_targets_share: must be over 0"):
        DetectionPolicy.read('{"several_targets_share": 1.5}')
    assert DetectionPolicy.read('{"ban_minutes": 5, "version": "3"}').ban_minutes == 5
    assert set(KEYS) >= {"window_start", "target", "command_name", "source"}


@pytest.mark.parametrize("given", ['{"burst_hmac": 100000}', '{"period_minutes": 60, "version": "2"}'])
def test_another_threshold_is_another_version(given: str) -> None:
    """Under the default's version its audit would withdraw every ban of the default policy."""
    with pytest.raises(ValueError, match=r"differs from policy 2; say a version of its own"):
        DetectionPolicy.read(given)
    assert DetectionPolicy.read('{"burst_hmac": 200}') == DEFAULT


@pytest.mark.parametrize(
    "version", ["V2", "2026.11", "a" * 32, "my policy", "2026/11", "", "a" * 33, "-1", "２"]
)
def test_a_version_that_a_policy_may_have_is_one_that_a_proposal_may_have(version: str) -> None:
    try:
        DetectionPolicy(version=version)
        allowed = True
    except ValueError as error:
        assert "policy.version: must be a text of 1 to 32 letters" in str(error)
        allowed = False
    line = {
        "proposal_id": "a" * 64,
        "policy_version": version,
        "kind": "burst-schema",
        "source": "acme/shop",
        "affected_targets": [],
        "total_violations": 1,
        **dict.fromkeys(("window_start", "window_end", "ban_applied_until"), "2026-11-16T10:00:00Z"),
        "evidence": "{}",
    }
    read = read_lines([json.dumps(line).encode()])
    assert (len(read.proposals), read.unreadable) == ((1, 0) if allowed else (0, 1))
