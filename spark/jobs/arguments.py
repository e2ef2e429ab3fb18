"""The command line of every job, and its exit when the command line is wrong.

Never shows a traceback for a user's mistake: one sentence on stderr, exit code 2.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from spark.policy import DetectionPolicy
from spark.session import ConnectAway, JavaMissing, session


def parser(about: str) -> argparse.ArgumentParser:
    """The options that all jobs share."""
    made = argparse.ArgumentParser(description=about)
    made.add_argument(
        "--index", type=Path, required=True, help="JSON lines of verified files, or a folder of them"
    )
    made.add_argument("--out", type=Path, required=True, help="folder for results; replaced as a whole")
    made.add_argument("--routes", type=Path, help="JSON lines of the routes' fairness parameters")
    made.add_argument("--policy", type=Path, help="JSON of thresholds; the defaults if not given")
    made.add_argument("--since", type=moment, help="first event time, RFC 3339")
    made.add_argument("--until", type=moment, help="end of event times, RFC 3339")
    made.add_argument("--master", default="local[*]", help="local[*], spark://host:port or k8s://…")
    made.add_argument("--remote", default="", help="a Spark Connect address, sc://host:port")
    made.add_argument("--driver-memory", default="2g")
    made.add_argument("--short", action="store_true", help="start sooner, run slower")
    made.add_argument(
        "--conf", action="append", type=setting, default=[], metavar="KEY=VALUE", help="a setting of Spark"
    )
    return made


def moment(text: str) -> datetime:
    """A time of the command line; without a zone it is UTC."""
    try:
        found = datetime.fromisoformat(text)
    except ValueError:
        raise argparse.ArgumentTypeError(
            f"{text!r} is no RFC 3339 time such as 2026-11-16T10:00:00Z"
        ) from None
    return found if found.tzinfo is not None else found.replace(tzinfo=UTC)


def setting(text: str) -> tuple[str, str]:
    """A setting of Spark."""
    key, equals, value = text.partition("=")
    if not key or not equals:
        raise argparse.ArgumentTypeError(f"{text!r} is no KEY=VALUE such as spark.executor.memory=4g")
    return key, value


def policy_of(given: argparse.Namespace) -> DetectionPolicy:
    """The policy that was named; ValueError says what is wrong with it."""
    return DetectionPolicy.read(given.policy.read_text("utf-8")) if given.policy else DetectionPolicy()


def open_session(name: str, given: argparse.Namespace) -> SparkSession:
    """The session that was asked for."""
    return session(
        name,
        master=given.master,
        remote=given.remote,
        driver_memory=given.driver_memory,
        short=given.short,
        settings=dict(given.conf),
    )


def told(**facts: Any) -> None:
    """Print one line of progress for the process that started the job."""
    sys.stdout.write(json.dumps(facts, default=str) + "\n")
    sys.stdout.flush()


def run(work: Callable[[argparse.Namespace], None], options: argparse.ArgumentParser) -> None:
    """Run a job to its end; mistakes and a missing Java become a sentence."""
    given = options.parse_args()
    try:
        work(given)
    except JavaMissing as missing:
        sys.exit(_sentence(str(missing), 3))
    except ConnectAway as away:
        sys.exit(_sentence(str(away), 4))
    except (ValueError, OSError, KeyError) as mistake:
        sys.exit(_sentence(str(mistake), 2))
    except PySparkException as fault:
        sys.exit(_sentence(str(fault).splitlines()[0][:500], 1))


def _sentence(text: str, code: int) -> int:
    sys.stderr.write(text.rstrip() + "\n")
    return code
