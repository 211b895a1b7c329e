"""Questions about scenes of shapes, with their answers: colours, shapes, places, counts, directions."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from lookact.envs.shapes.scene import COLOURS, SHAPES, ShapeScene, Thing, draw_scene
from lookact.envs.wrappers.gym_chat import CAMERA, KEY
from lookact.types import Demonstration, Observation

MOST_TURNS = 4
QA = tuple[str, str]
"""A question and its reply."""


def conversation(rng: np.random.Generator) -> Demonstration:
    """A few turns, each with a scene of its own, a question about it and the right reply."""
    turns = int(rng.integers(1, MOST_TURNS + 1))
    observations, replies = [], []
    for turn in range(turns):
        scene = draw_scene(rng)
        question, reply = ask(scene, rng)
        # as an environment's turns are counted, so that it does not matter
        text = f"{question} Turn {turn + 1} of {turns}." if rng.random() < 0.5 else question
        observations.append(Observation(text=text, images={CAMERA: scene.image.rgb}))
        replies.append(reply)
    return Demonstration(tuple(observations), tuple(replies), (True,) * turns)


def ask(scene: ShapeScene, rng: np.random.Generator) -> QA:
    """A question of a random kind that this scene has one answer to."""
    while (asked := KINDS[rng.integers(len(KINDS))](scene, rng)) is None:
        pass
    return asked


def action(word: str) -> str:
    return f'{{"{KEY}": "{word}"}}'


def answer(word: str) -> str:
    return f'{{"answer": "{word}"}}'


def place(scene: ShapeScene, rng: np.random.Generator) -> QA | None:
    thing = _nameable(scene, rng)
    return None if thing is None else (f"Where is the {thing.name}?", action(_third(thing.x, "left middle right")))


def height(scene: ShapeScene, rng: np.random.Generator) -> QA | None:
    thing = _nameable(scene, rng)
    return None if thing is None else (f"How high is the {thing.name}?", action(_third(thing.y, "top middle bottom")))


def direction(scene: ShapeScene, rng: np.random.Generator) -> QA | None:
    """Which way one thing lies from another, where that is clear."""
    named = [thing for thing in scene.things if _count(scene, thing.name) == 1]
    if len(named) < 2:
        return None
    start, goal = (named[i] for i in rng.permutation(len(named))[:2])
    x, y = goal.x - start.x, goal.y - start.y
    if 0.67 < abs(x) / (abs(y) + 1e-6) < 1.5:
        return None
    word = ("right" if x > 0 else "left") if abs(x) > abs(y) else ("down" if y > 0 else "up")
    return f"Go from the {start.name} to the {goal.name}.", action(word)


def colour(scene: ShapeScene, rng: np.random.Generator) -> QA | None:
    thing = scene.things[rng.integers(len(scene.things))]
    one = sum(other.shape == thing.shape for other in scene.things) == 1
    return (f"What colour is the {thing.shape}?", answer(thing.colour)) if one else None


def shape(scene: ShapeScene, rng: np.random.Generator) -> QA | None:
    thing = scene.things[rng.integers(len(scene.things))]
    one = sum(other.colour == thing.colour for other in scene.things) == 1
    return (f"What shape is {thing.colour}?", answer(thing.shape)) if one else None


def count(scene: ShapeScene, rng: np.random.Generator) -> QA | None:
    thing = scene.things[rng.integers(len(scene.things))]
    if rng.random() < 0.5:
        return "How many things are there?", answer(str(len(scene.things)))
    same = sum(other.colour == thing.colour for other in scene.things)
    return f"How many things are {thing.colour}?", answer(str(same))


def presence(scene: ShapeScene, rng: np.random.Generator) -> QA | None:
    thing = scene.things[rng.integers(len(scene.things))]
    name = thing.name if rng.random() < 0.5 else f"{rng.choice([*COLOURS])} {rng.choice(SHAPES)}"
    return f"Is there a {name}?", answer("yes" if _count(scene, name) else "no")


KINDS: tuple[Callable[[ShapeScene, np.random.Generator], QA | None], ...] = (
    place,
    height,
    direction,
    colour,
    shape,
    count,
    presence,
)


def _nameable(scene: ShapeScene, rng: np.random.Generator) -> Thing | None:
    thing = scene.things[rng.integers(len(scene.things))]
    return thing if _count(scene, thing.name) == 1 else None


def _count(scene: ShapeScene, name: str) -> int:
    return sum(thing.name == name for thing in scene.things)


def _third(part: float, words: str) -> str:
    return words.split()[min(2, int(3 * part))]
