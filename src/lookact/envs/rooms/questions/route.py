"""Questions about the turns that lead a robot from one thing past others to a last one."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from lookact.envs.rooms.questions.driving import TURNS, Route, TurnTables, drive, standing_places, turn_tables
from lookact.envs.rooms.questions.facts import Draft, Facts, choose

TRIES = 20
BLANK = "[please fill in]"

# does the robot face its first stop, and how many stops are there
SHAPES = ((False, 1), (True, 2), (False, 2), (True, 3))


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
        steps += [BLANK] * (number > 0 or stop != route.faced) + [f"Go forward until the {names[stop]}."]
    listed = " ".join(f"{number}. {step}" for number, step in enumerate(steps, start=1))
    goal = names[route.stops[-1]]
    text = (
        f"You are a robot that begins at the {names[route.start]} and faces the {names[route.faced]}. You want to "
        f"navigate to the {goal}. These are your actions, and each blank is one of turn back, turn left and turn "
        f"right: {listed} Then you have reached the {goal}."
    )
    others = [_spell(other) for other in np.ndindex((len(TURNS),) * len(turns)) if other != turns]
    kept = [others[place] for place in rng.permutation(len(others))[:3]]
    options, letter = choose(rng, _spell(turns), kept)
    return Draft(text, letter, options)


def _spell(turns: tuple[int, ...]) -> str:
    return ", ".join(TURNS[turn] for turn in turns)
