"""Finds the route of a request: the first one in the file whose path and conditions all hold.

Never takes time that grows with the number of routes: only those on the way from the request's path to `/` count.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

from snavio.edge.plan import EdgeRoute, RequestConditions, RouteChannel
from snavio.edge.requests import EdgeRequest, Network, matched_path, within

MOST_NOTES: Final = 16


@dataclass(frozen=True, slots=True)
class CompiledConditions:
    """Conditions, with their networks parsed."""

    said: RequestConditions
    networks: tuple[Network, ...]

    def fault(self, request: EdgeRequest) -> str:
        """The first condition that does not hold, or empty."""
        said = self.said
        if said.hosts and not any(_host_holds(each, request.host) for each in said.hosts):
            return "host"
        for name, value in said.headers:
            if value not in request.values(name.lower()):
                return f"header {name.lower()}"
        for name in said.headers_present:
            if not request.has(name.lower()):
                return f"header_exists {name.lower()}"
        if said.queries or said.queries_present:
            fields = request.fields()
            for name, value in said.queries:
                if (name, value) not in fields:
                    return f"query {name}"
            for name in said.queries_present:
                if not any(each == name for each, _ in fields):
                    return f"query_exists {name}"
        if self.networks and (request.remote is None or not within(request.remote, self.networks)):
            return "remote_ip"
        return ""


def _host_holds(pattern: str, host: str) -> bool:
    if pattern == "*":
        return True
    if pattern.startswith("*."):
        return host.endswith(pattern[1:]) and len(host) >= len(pattern)
    return host == pattern


@dataclass(frozen=True, slots=True)
class RouteMatch:
    """The outcome of a search. Without a route, `methods` are those that another method would have had."""

    place: int | None
    methods: frozenset[str] = frozenset()
    passed: tuple[tuple[str, str], ...] = ()
    """Routes on the way that did not take it, each with the condition that did not hold."""


class RouteTable:
    """The inbound routes of a plan."""

    def __init__(self, routes: Iterable[EdgeRoute]) -> None:
        self.routes = tuple(routes)
        self._by_path: dict[str, int] = {}
        self._conditions: list[tuple[CompiledConditions, ...]] = []
        self._deepest = 0
        for place, route in enumerate(self.routes):
            self._conditions.append(
                tuple(
                    CompiledConditions(each, tuple(ipaddress.ip_network(net) for net in each.networks))
                    for each in route.conditions
                )
            )
            if route.channel is RouteChannel.INBOUND:
                path = matched_path(route.path)
                self._by_path.setdefault(path, place)
                self._deepest = max(self._deepest, path.count("/"))

    def find(self, request: EdgeRequest) -> RouteMatch:
        """The first route that takes the request."""
        path = matched_path(request.path)
        by_path, found = self._by_path, []
        # From the beginning of the path: what is deeper than the deepest route needs no look.
        end = 0
        for _ in range(self._deepest + 1):
            end = path.find("/", end + 1)
            place = by_path.get(path if end < 0 else path[:end])
            if place is not None:
                found.append(place)
            if end < 0:
                break
        if path != "/" and (place := by_path.get("/")) is not None:
            found.append(place)
        if not found:
            return RouteMatch(None)
        if len(found) > 1:
            found.sort()
        return self._first(request, found)

    def _first(self, request: EdgeRequest, places: list[int]) -> RouteMatch:
        methods: set[str] = set()
        passed: list[tuple[str, str]] = []
        for place in places:
            route = self.routes[place]
            fault = next(
                (fault for each in self._conditions[place] if (fault := each.fault(request))),
                "",
            )
            if not fault:
                if request.method in route.methods:
                    return RouteMatch(place, frozenset(), tuple(passed))
                methods |= route.methods
                fault = "method"
            if len(passed) < MOST_NOTES:
                passed.append((route.path, fault))
        return RouteMatch(None, frozenset(methods), tuple(passed))
