"""The output of `snavio up`: a live screen, plain lines, or JSON lines; each is told the same things.

Never decides anything about the mesh.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from snavio.cli.mesh_views import mesh_blocks
from snavio.cli.output import count
from snavio.cli.render import BLANK, Block, Screen, Styled
from snavio.launch.processes import SERVICES
from snavio.launch.readings import MeshReading


class UpView:
    """Tells a screen what happens to a mesh, from its certificates to its end."""

    def __init__(self, screen: Screen) -> None:
        self._screen = screen
        self.reading_every_s = 2.0 if screen.live else 10.0
        """Seconds between two readings; each costs every service a call."""
        self._step = ""
        self._serving: set[str] = set()
        self._suggestions: Sequence[str] = ()
        self._shown = 0

    def preparing(self, what: str) -> None:
        """A step before the services start."""
        self._step = f"{what} ..."
        self._starting({"event": "preparing", "what": what}, self._step)

    def healthy(self, service: str) -> None:
        """One service serves."""
        self._serving.add(service)
        self._starting({"event": "healthy", "service": service}, f"{service} serves")

    def ready(self, facts: Mapping[str, Any], suggestions: Sequence[str]) -> None:
        """All of them do, and the demo tenant is there."""
        self._suggestions = suggestions
        up = f"Snavio is up after {facts['seconds']:.1f} s, with its state in {_short(facts['state_dir'])}"
        tries = () if self._screen.live else self._tries()
        document = {"event": "ready", **facts, "try": list(suggestions)}
        self._screen.say(document, Styled(up, "bold green"), *tries)

    def say(self, sentence: str) -> None:
        """Something happened to a service."""
        self._screen.say({"event": "note", "message": sentence}, Styled(sentence, "yellow"))

    def show(self, reading: MeshReading, phases: Mapping[str, str]) -> None:
        """A reading."""
        document = {"event": "reading", **reading.document()}
        if self._screen.live:
            self._screen.show(document, *mesh_blocks(reading, phases=phases), BLANK, *self._tries())
            return
        refused = sum(reading.refused.values())
        so_far = f"so far {count(reading.delivered)} delivered, {count(refused)} refused"
        # Silence while nothing happens: a log of an idle night should be short.
        news = reading.delivered + refused != self._shown
        self._shown = reading.delivered + refused
        self._screen.show(document, f"{count(reading.in_per_s)} commands/s; {so_far}" if news else None)

    def stopping(self) -> None:
        """The end has begun."""
        self._screen.show({"event": "stopping"}, "stopping, the ingress first ...")

    def stopped(self) -> None:
        """Everything has ended."""
        self._screen.show({"event": "stopped"}, Styled("stopped", "bold"))

    def _starting(self, document: dict[str, str], sentence: str) -> None:
        rows: Sequence[Block] = (sentence,)
        if self._screen.live:
            serving = ((name, name in self._serving) for name in SERVICES)
            marked = (
                Styled(f"  {'✓' if up else '·'} {name}", "green" if up else "dim") for name, up in serving
            )
            rows = (Styled(self._step, "bold"), *marked)
        self._screen.show(document, *rows)

    def _tries(self) -> list[Block]:
        heading = Styled("try, in another terminal (Ctrl-C stops everything):", "bold")
        return [heading, *(Styled(f"  {suggestion}", "cyan") for suggestion in self._suggestions)]


def _short(folder: str) -> str:
    """The folder, relative to the working directory where it lies below it."""
    path = Path(folder)
    return str(path.relative_to(Path.cwd())) if path.is_relative_to(Path.cwd()) else folder
