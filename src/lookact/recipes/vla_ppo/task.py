"""The world of vla-ppo: a table, its variants in and out of distribution, and which episodes are run on it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial

from lookact.envs.tabletop.env import Tabletop
from lookact.envs.tabletop.language import TARGET_NAMES, WORDINGS
from lookact.envs.tabletop.randomise import HELD_OUT_PAIRS, Randomisation
from lookact.envs.tabletop.scene import COLOURS, SHAPES
from lookact.recipes.vla_ppo.config import World

OUTSIDE = ("vision", "semantics", "execution")
"""Ways in which an evaluation leaves what training shows."""


def make_table(world: World, *, shift: str = "none", image_size: int | None = None) -> Tabletop:
    """One environment; `shift` says which side of its episodes training never shows."""
    return Tabletop(
        task=world.task,
        control=world.control,
        cameras=world.cameras,
        image_size=image_size or world.image_size,
        max_steps=world.max_steps,
        reward=world.reward,
        randomise=Randomisation(world.appearance, world.background, world.light, world.camera, world.clutter),
        shift=shift,
        distractors=world.distractors,
    )


def table_maker(world: World, *, shift: str = "none") -> Callable[[], Tabletop]:
    """What a worker process calls to make its environments."""
    return partial(make_table, world, shift=shift)


def make_corpus(world: World) -> Iterator[str]:
    """Every instruction that training may give: a tiny tokenizer finds its pieces in them."""
    objects = [f"{c} {s}" for c in COLOURS for s in SHAPES if (c, s) not in HELD_OUT_PAIRS]
    for wording in WORDINGS[world.task]:
        for thing in objects:
            for colour in COLOURS:
                yield wording.format(object=thing, target=f"{colour} {TARGET_NAMES.get(world.task, 'mark')}")
