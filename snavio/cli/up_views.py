"""The faces of `snavio up`: a live screen, plain lines, or JSON lines. All are told the same things.

Never decides anything about the mesh.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from types import TracebackType
from typing import Any, Protocol, Self

from rich.console import Console, Group
from rich.live import Live
from rich.text import Text

from snavio.cli.mesh_views import mesh_view
from snavio.cli.output import count, line, print_json
from snavio.launch.processes import SERVICES
from snavio.launch.readings import MeshReading


class UpView(AbstractContextManager["UpView"], Protocol):
    """The output of `snavio up`."""

    reading_every_s: float
    """Seconds between two readings; each costs every service a call."""

    def preparing(self, what: str) -> None:
        """A step before the services start."""

    def healthy(self, service: str) -> None:
        """One service serves."""

    def ready(self, facts: Mapping[str, Any], suggestions: Sequence[str]) -> None:
        """All of them do, and the demo tenant is there."""

    def say(self, sentence: str) -> None:
        """Something happened to a service."""

    def show(self, reading: MeshReading, phases: Mapping[str, str]) -> None:
        """A reading."""

    def stopping(self) -> None:
        """The end has begun."""

    def stopped(self) -> None:
        """Everything has ended."""


class UpLines(UpView):
    """One sentence per line, for pipes, logs and narrow terminals."""

    reading_every_s = 10.0

    def __init__(self) -> None:
        self._told = -1

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        return None

    def preparing(self, what: str) -> None:
        line(f"{what} ...")

    def healthy(self, service: str) -> None:
        line(f"{service} serves")

    def ready(self, facts: Mapping[str, Any], suggestions: Sequence[str]) -> None:
        line(f"ready in {facts['seconds']:.1f} s, state in {facts['state_dir']}")
        line("try, in another terminal:")
        for suggestion in suggestions:
            line(f"  {suggestion}")
        line("Ctrl-C stops everything.")

    def say(self, sentence: str) -> None:
        line(sentence)

    def show(self, reading: MeshReading, phases: Mapping[str, str]) -> None:
        refused = sum(reading.refused.values())
        # Silence while nothing happens: a log of an idle night should be short.
        if reading.delivered + refused not in (self._told, 0):
            line(
                f"{count(reading.in_per_s)} commands/s; so far {count(reading.delivered)} delivered, "
                f"{count(refused)} refused"
            )
        self._told = reading.delivered + refused

    def stopping(self) -> None:
        line("stopping, the ingress first ...")

    def stopped(self) -> None:
        line("stopped")


class UpJson(UpLines):
    """One JSON document per line, each with its `event`."""

    def preparing(self, what: str) -> None:
        print_json({"event": "preparing", "what": what})

    def healthy(self, service: str) -> None:
        print_json({"event": "healthy", "service": service})

    def ready(self, facts: Mapping[str, Any], suggestions: Sequence[str]) -> None:
        print_json({"event": "ready", **facts, "try": list(suggestions)})

    def say(self, sentence: str) -> None:
        print_json({"event": "note", "message": sentence})

    def show(self, reading: MeshReading, phases: Mapping[str, str]) -> None:
        print_json({"event": "reading", **reading.document()})

    def stopping(self) -> None:
        print_json({"event": "stopping"})

    def stopped(self) -> None:
        print_json({"event": "stopped"})


class UpScreen(UpLines):
    """A live view of the mesh."""

    reading_every_s = 2.0

    def __init__(self, out: Console) -> None:
        super().__init__()
        self._out = out
        self._live = Live(console=out, auto_refresh=False, transient=True)
        self._waiting = list(SERVICES)
        self._step = ""
        self._suggestions: Sequence[str] = ()

    def __enter__(self) -> Self:
        self._live.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._live.stop()

    def preparing(self, what: str) -> None:
        self._step = what
        self._draw_start()

    def healthy(self, service: str) -> None:
        self._waiting.remove(service)
        self._draw_start()

    def ready(self, facts: Mapping[str, Any], suggestions: Sequence[str]) -> None:
        self._suggestions = suggestions
        self._out.print(
            f"[bold green]Snavio is up[/] after {facts['seconds']:.1f} s, "
            f"with its state in {_short(facts['state_dir'])}"
        )

    def say(self, sentence: str) -> None:
        self._out.print(sentence, style="yellow")

    def show(self, reading: MeshReading, phases: Mapping[str, str]) -> None:
        tries = [Text(f"  {suggestion}", style="cyan") for suggestion in self._suggestions]
        heading = Text.assemble(("try, in another terminal", "bold"), ("  (Ctrl-C stops everything)", "dim"))
        view = Group(mesh_view(reading, phases=phases), Text(), heading, *tries)
        self._live.update(view, refresh=True)

    def stopping(self) -> None:
        self._live.update(Text("stopping, the ingress first ..."), refresh=True)

    def stopped(self) -> None:
        self._live.update(Text(""), refresh=True)
        self._out.print("[bold]stopped[/]")

    def _draw_start(self) -> None:
        rows = [Text(f"{self._step} ...", style="bold")]
        for service in SERVICES:
            serves = service not in self._waiting
            rows.append(Text(f"  {'✓' if serves else '·'} {service}", style="green" if serves else "dim"))
        self._live.update(Group(*rows), refresh=True)


def _short(folder: str) -> str:
    """The folder, relative to the working directory where it lies below it."""
    path = Path(folder)
    return str(path.relative_to(Path.cwd())) if path.is_relative_to(Path.cwd()) else folder
