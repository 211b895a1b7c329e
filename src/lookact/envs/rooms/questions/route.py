"""Route-planning questions: which turns lead a robot from one thing past others to a last one.

A turn counts as left, right or back when it is within 30 degrees of 90, -90 or 180. Things are numbered by their
place in `facts.unique`. A robot stands beside its first thing, heads for the middle of the next, and stops where
the free space ends: if that is beside the thing, it has arrived. Turns are looked up in tables over the plan first,
then checked by driving through the room's free space.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from lookact.envs.rooms.obstacles import footprint_distance
from lookact.envs.rooms.questions.facts import Draft, Facts, choose, wrap_degrees
from lookact.envs.rooms.scene import Array
from lookact.envs.rooms.space import ROUNDING, FreeSpace, advance, cells_of

TRIES = 20
BLANK = "[please fill in]"

# does the robot face its first stop, and how many stops are there
SHAPES = ((False, 1), (True, 2), (False, 2), (True, 3))
Turns = NDArray[np.intp]
Mask = NDArray[np.bool_]

TURNS = ("Turn Left", "Turn Right", "Turn Back")
MIDDLES = (90.0, -90.0, 180.0)
SLACK = 30.0
UNCLEAR = -1
BESIDE = 0.5
"""Metres from a thing within which a robot counts as being at it."""
SHORTEST_LEG = 0.5


def route_planning(facts: Facts, rng: np.random.Generator, count: int) -> list[Draft]:
    """Fill in the turns. A scene without a mesh has no true floor plan, and so no routes."""
    if not len(facts.scene.faces) or len(facts.unique) < 3:
        return []
    stands = standing_places(facts)
    tables = turn_tables(facts, stands)
    drafts: dict[Route, Draft] = {}
    for _ in range(2 * count):
        faces_first, stops = SHAPES[rng.integers(len(SHAPES))]
        # the answer is drawn first, so that rare turns are asked for as often as common ones
        wanted = tuple(int(turn) for turn in rng.integers(len(TURNS), size=stops - faces_first))
        chains = _chains(tables, wanted, faces_first)
        for pick in rng.permutation(len(chains))[:TRIES]:
            start, faced, *rest = (int(place) for place in chains[pick])
            route = Route(start, faced, (faced, *rest) if faces_first else tuple(rest))
            if route not in drafts and drive(facts, stands, route) == wanted:
                drafts[route] = _draft(facts, rng, route, wanted)
                break
        if len(drafts) == count:
            break
    return list(drafts.values())


def _chains(tables: TurnTables, wanted: tuple[int, ...], faces_first: bool) -> NDArray[np.intp]:
    """Every sequence of places (k, 3 or 4), the thing faced second, that may make the wanted turns."""
    first = tables.passing if faces_first else tables.starting
    if len(wanted) == 1:
        return np.argwhere(first == wanted[0])
    # facing its first stop the robot goes on from j past k; otherwise it comes from i past k
    second = tables.onward[None] if faces_first else tables.passing[:, None]
    found = np.argwhere((first[..., None] == wanted[0]) & (second == wanted[1]))
    distinct = (np.diff(np.sort(found, axis=1), axis=1) > 0).all(axis=1)
    return found[distinct]


def _draft(facts: Facts, rng: np.random.Generator, route: Route, turns: tuple[int, ...]) -> Draft:
    names = {place: facts.name(facts.unique[place]) for place in (route.start, route.faced, *route.stops)}
    steps = []
    for number, stop in enumerate(route.stops):
        steps += [BLANK] * (number > 0 or stop != route.faced) + [f"Go forward until the {names[stop]}"]
    listed = " ".join(f"{number}. {step}" for number, step in enumerate(steps, start=1))
    ends = {"start": names[route.start], "faced": names[route.faced], "goal": names[route.stops[-1]]}
    others = [_spell(other) for other in np.ndindex((len(TURNS),) * len(turns)) if other != turns]
    kept = [others[place] for place in rng.permutation(len(others))[:3]]
    options, letter = choose(rng, _spell(turns), kept)
    return Draft({**ends, "actions": listed}, letter, options)


def _spell(turns: tuple[int, ...]) -> str:
    return ", ".join(TURNS[turn] for turn in turns)


@dataclass(frozen=True)
class Route:
    """Where the robot starts, what it faces, and where it stops."""

    start: int
    faced: int
    stops: tuple[int, ...]


@dataclass(frozen=True)
class TurnTables:
    """Turns (n, n, n) as indices into TURNS, -1 where a turn is unclear or a leg is blocked."""

    starting: Turns
    """At i, facing j, towards k, with the leg from i to k."""
    passing: Turns
    """Coming from i, at j, towards k, with both legs."""
    onward: Turns
    """The same on the things' middles alone, without driving."""


def turn_of(angle: Array) -> Turns:
    """Index into TURNS of angles in degrees, left positive; -1 where no name fits clearly."""
    turns = np.full(np.shape(angle), UNCLEAR)
    for turn, middle in enumerate(MIDDLES):
        turns[np.abs(wrap_degrees(angle - middle)) <= SLACK + ROUNDING] = turn
    return turns


def drive(facts: Facts, stands: Array, route: Route) -> tuple[int, ...] | None:
    """The turns the robot really makes, or None when it gets blocked or a turn has no clear name."""
    place = stands[route.start]
    if np.isnan(place).any():
        return None
    heading = facts.centres[facts.unique[route.faced]] - place
    turns: list[int] = []
    for number, stop in enumerate(route.stops):
        target = facts.centres[facts.unique[stop]]
        if number or stop != route.faced:
            turns.append(int(turn_of(bearing(target - place) - bearing(heading))))
        reached, _ = advance(facts.space, place, target)
        if UNCLEAR in turns or not _arrived(facts, stop, place, reached):
            return None
        place, heading = reached, target - place
    return tuple(turns)


def standing_places(facts: Facts) -> Array:
    """(n, 2) for each unique thing the free cell beside it that is nearest to its middle; NaN where there is none."""
    space = facts.space
    rows, columns = np.nonzero(space.free)
    cells = space.origin + (np.stack([columns, rows], axis=1) + 0.5) * space.cell
    stands = np.full((len(facts.unique), 2), np.nan)
    for place, index in enumerate(facts.unique):
        near = cells[footprint_distance(facts.scene.boxes[index], cells) <= BESIDE + ROUNDING]
        if len(near):
            away = np.hypot(*(near - facts.centres[index]).T)
            # of equally near ones the first
            stands[place] = near[(away <= away.min() + ROUNDING).argmax()]
    return stands


def turn_tables(facts: Facts, stands: Array) -> TurnTables:
    """Every turn at once; a turn must have the same name on paper and when driven."""
    middles = facts.centres[facts.unique]
    bearings = bearing(middles[None] - middles[:, None])
    starting = turn_of(bearings[:, None, :] - bearings[:, :, None])
    onward = turn_of(bearings[None, :, :] - bearings[:, :, None])
    places = np.arange(len(middles))
    for table in (starting, onward):
        table[places, places, :] = table[:, places, places] = table[places, :, places] = UNCLEAR
    way = bearing(middles[None] - stands[:, None])
    reached, arrived = _first_legs(facts, stands)
    starting[turn_of(way[:, None, :] - way[:, :, None]) != starting] = UNCLEAR
    starting[~np.broadcast_to(arrived[:, None, :], starting.shape)] = UNCLEAR
    passing = np.where(arrived[:, :, None], onward, UNCLEAR)
    first, second, third = np.nonzero(passing != UNCLEAR)
    driven = turn_of(bearing(middles[third] - reached[first, second]) - way[first, second])
    good = driven == passing[first, second, third]
    passing[first[~good], second[~good], third[~good]] = UNCLEAR
    first, second, third = first[good], second[good], third[good]
    begin = reached[first, second]
    end = march(facts.space, begin, middles[third])
    blocked = ~_arrivals(facts, third, begin, end)
    passing[first[blocked], second[blocked], third[blocked]] = UNCLEAR
    return TurnTables(starting, passing, onward)


def march(space: FreeSpace, starts: Array, ends: Array) -> Array:
    """Where straight motions (m, 2) to (m, 2) come to a stop, in steps of half a cell: a quick `advance` of many."""
    longest = float(np.hypot(*(ends - starts).T).max(initial=0.0))
    share = np.linspace(0.0, 1.0, max(2, int(np.ceil(2 * longest / space.cell)) + 1))
    points = starts[:, None] + share[:, None] * (ends - starts)[:, None]
    columns, rows = np.moveaxis(cells_of(points, space.origin, space.cell), -1, 0)
    height, width = space.free.shape
    inside = (rows >= 0) & (rows < height) & (columns >= 0) & (columns < width)
    free = inside & space.free[rows.clip(0, height - 1), columns.clip(0, width - 1)]
    steps = np.where(free.all(axis=1), len(share), free.argmin(axis=1)) - 1
    stops: Array = points[np.arange(len(points)), steps.clip(0)]
    return stops


def bearing(offset: Array) -> Array:
    """Degrees of vectors (..., 2), counter-clockwise from +X."""
    degrees: Array = np.degrees(np.arctan2(offset[..., 1], offset[..., 0]))
    return degrees


def _first_legs(facts: Facts, stands: Array) -> tuple[Array, Mask]:
    """Where the robot ends (n, n, 2) going from beside i to j, and whether that is at j."""
    count = len(stands)
    reached, arrived = np.full((count, count, 2), np.nan), np.zeros((count, count), dtype=bool)
    placed = ~np.isnan(stands[:, 0])
    first, second = np.nonzero(placed[:, None] & ~np.eye(count, dtype=bool))
    ends = march(facts.space, stands[first], facts.centres[facts.unique][second])
    reached[first, second] = ends
    arrived[first, second] = _arrivals(facts, second, stands[first], ends)
    return reached, arrived


def _arrivals(facts: Facts, things: NDArray[np.intp], starts: Array, ends: Array) -> Mask:
    """(m,) whether each leg ended beside its thing."""
    arrived = np.zeros(len(things), dtype=bool)
    for thing in np.unique(things):
        legs = things == thing
        arrived[legs] = _arrived(facts, int(thing), starts[legs], ends[legs])
    return arrived


def _arrived(facts: Facts, thing: int, starts: Array, ends: Array) -> Mask:
    box = facts.scene.boxes[facts.unique[thing]]
    moved = np.linalg.norm(ends - starts, axis=-1) >= SHORTEST_LEG - ROUNDING
    arrived: Mask = moved & (footprint_distance(box, ends) <= BESIDE + ROUNDING)
    return arrived
