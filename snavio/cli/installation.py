"""The options that name an installation, and the form of the answer: the same for every command that needs one.

Never starts anything, and never looks for an installation before the command does.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from snavio.cli.options import Config, Context, Json, StateDir
from snavio.cli.render import Block, show

if TYPE_CHECKING:
    from snavio.launch.installation import Installation


@dataclass(frozen=True, slots=True)
class InstallationOptions:
    """Which installation, and whether a program reads the answer."""

    state_dir: StateDir = None
    config: Config = None
    json: Json = False

    def find(self, *, whole: bool = False) -> Installation:
        """The installation, whether or not its mesh runs; with `whole`, all of its configuration is validated."""
        from snavio.launch.installation import find

        return find(state_dir=self.state_dir, config=self.config, whole=whole)

    def show(self, document: Any, *blocks: Block) -> None:
        """Print `document` as JSON, or `blocks` for people."""
        show(document, *blocks, json=self.json)


@dataclass(frozen=True, slots=True)
class MeshOptions(InstallationOptions):
    """The same for a mesh that runs here or elsewhere."""

    context: Context = None

    def attach(self) -> Installation:
        """The mesh that the options mean, a context, or a state folder."""
        from snavio.launch.installation import attach

        return attach(state_dir=self.state_dir, config=self.config, context=self.context)
