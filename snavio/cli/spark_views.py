"""A job's progress: a bar where a person looks, a line per step elsewhere, nothing under `--json`.

Never shows a job's raw words.
"""

from __future__ import annotations

from collections.abc import Sequence
from types import TracebackType
from typing import TYPE_CHECKING, Any, Final, Self

from snavio.cli.output import console, fancy, line, print_json
from snavio.cli.render import picked

if TYPE_CHECKING:
    from snavio.audit.archive_index import IndexStep

WORDS: Final = {
    "verifying": "checking signatures",
    "starting": "starting Spark",
    "reading": "counting events",
    "sharing": "who took how much",
    "table": "tables of the report",
    "hour": "hours",
    "batch": "watching",
    "watching": "watching",
    "failed": "starting again",
    "judged": "judged",
    "proposing": "telling Registry",
    "done": "done",
}


class View:
    """The progress of one job on a terminal."""

    def __init__(self, job: str, *, json: bool) -> None:
        self._job = job
        self._json = json
        self._bar: Any = None
        self._task: Any = None
        self._last = ""
        self._progress = ""

    def __enter__(self) -> Self:
        out = console()
        if not self._json and fancy(out):
            from rich.progress import BarColumn, Progress, SpinnerColumn, TextColumn, TimeElapsedColumn

            self._bar = Progress(
                SpinnerColumn(),
                TextColumn("{task.description:<22}"),
                BarColumn(),
                TextColumn("{task.fields[detail]}"),
                TimeElapsedColumn(),
                console=out,
                transient=True,
            )
            self._bar.start()
            self._task = self._bar.add_task(self._job, total=None, detail="")
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._bar is not None:
            self._bar.stop()

    def told(self, facts: dict[str, Any]) -> None:
        """One line of a job."""
        step = str(facts.get("step", ""))
        word = WORDS.get(step, step)
        known = ("files", "events", "table", "hour", "proposals")
        detail = ", ".join(f"{facts[name]} {name}" for name in known if name in facts and step != "done")
        if "done" in facts and "of" in facts:
            # Stays in sight while the next one is worked on.
            self._progress = f"{facts['done']} of {facts['of']}"
        if self._json:
            if self._job == "watch":
                print_json(facts)
            return
        if self._bar is None:
            if word != self._last or step in ("hour", "batch", "judged"):
                line(f"{word}: {detail}" if detail else word)
            self._last = word
            return
        detail = ", ".join(filter(None, (self._progress, detail)))
        if "done" in facts and "of" in facts:
            self._bar.update(
                self._task, description=word, detail=detail, completed=facts["done"], total=facts["of"]
            )
        else:
            self._bar.update(self._task, description=word, detail=detail, total=None)

    def seen(self, step: IndexStep) -> None:
        """Report one step of the archive's follower."""
        for finding in step.quarantined:
            self._say(
                {"step": "quarantined", "path": finding.path, "reason": finding.problem},
                f"left out, {finding.problem}: {finding.path}",
            )
        if step.events:
            self._say(
                {"step": "indexed", "files": step.files, "events": step.events},
                f"{step.events:,} new events in {step.files} files",
            )

    def answered(self, answers: Sequence[tuple[Any, Any]]) -> None:
        """Report Registry's answers."""
        for proposal, answer in answers:
            facts = picked(proposal, "proposal_id", "source", "kind") | picked(answer, "applied", "reason")
            said = "banned" if answer.applied else f"not banned, {answer.reason}"
            self._say({"step": "answered"} | facts, f"{proposal.source}: {said} ({proposal.kind})")

    def _say(self, facts: dict[str, Any], sentence: str) -> None:
        if self._json:
            print_json(facts)
        elif self._bar is not None:
            self._bar.console.print(sentence)
        else:
            line(sentence)
