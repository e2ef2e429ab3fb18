"""The routes' own fairness parameters, from Registry, as JSON lines for Spark.

Never mixes two versions of the directory: all pages are of one.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any, Final

import orjson

from snavio.audit.index_file import write_whole
from snavio.rpc.channel import MeshChannel
from snavio.v1.registry_pb2 import DumpRequest, DumpResponse, Route

CALL_SECONDS: Final = 10.0
PARAMETERS: Final = ("dominant_share", "competing_share", "competitors", "minimum_volume")


async def read_routes(registry: MeshChannel) -> list[dict[str, Any]]:
    """Routes that have parameters of their own, with those."""
    found: list[dict[str, Any]] = []
    request = DumpRequest()
    while True:
        page = await registry.call("/snavio.v1.Registry/Dump", request, DumpResponse, timeout_s=CALL_SECONDS)
        for change in page.entry:
            if change.WhichOneof("value") == "route" and (own := parameters(change.route)):
                found.append({"target": change.route.target, "command_name": change.route.name, **own})
        if not page.next_page_token:
            return found
        request = DumpRequest(
            version=page.version, directory_epoch=page.directory_epoch, page_token=page.next_page_token
        )


def parameters(route: Route) -> dict[str, float]:
    """Those that the route has; a parameter that is absent has its default."""
    if not route.HasField("fairness"):
        return {}
    return {name: getattr(route.fairness, name) for name in PARAMETERS if route.fairness.HasField(name)}


def write_routes(routes: list[dict[str, Any]], path: Path) -> None:
    """As `spark/read.py` reads them."""
    write_whole(path, b"".join(orjson.dumps(route, option=orjson.OPT_APPEND_NEWLINE) for route in routes))
