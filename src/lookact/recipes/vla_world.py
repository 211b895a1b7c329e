"""The world of vla-ppo: a table, its variants in and out of distribution, and which episodes are run on it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from typing import Any, Literal

from lookact.envs.tabletop.control import ACTION_SIZES
from lookact.envs.tabletop.env import STATE_SIZE, Tabletop
from lookact.envs.tabletop.language import TARGET_NAMES, WORDINGS
from lookact.envs.tabletop.randomise import HELD_OUT_PAIRS, Randomisation
from lookact.envs.tabletop.scene import COLOURS, SHAPES
from lookact.envs.vector import PlanEpisode
from lookact.seeding import derive
from lookact.train.config import setting

OUTSIDE = ("vision", "semantics", "execution")
"""Ways in which an evaluation leaves what training shows."""


@dataclass(frozen=True)
class World:
    """Which task, how it looks, and what is paid."""

    task: Literal["reach", "push", "pick_place"] = setting("pick_place", help="what the arm is asked to do")
    control: Literal["ee_delta", "delta_qpos"] = setting("ee_delta", help="actions move the tool, or the joints")
    cameras: tuple[Literal["head", "wrist"], ...] = setting(("head", "wrist"), help="who looks")
    image_size: int = setting(64, help="pixels a side, an even number", least=16)
    max_steps: int = setting(40, help="steps until an episode is cut off", least=1)
    reward: Literal["dense", "sparse"] = setting("dense", help="progress made in a step, or 1 where the task is done")
    distractors: int = setting(0, help="further objects, and as many further targets, on the table", least=0, most=3)
    appearance: bool = setting(True, help="colours and shapes differ from episode to episode")
    background: bool = setting(False, help="table, floor and wall differ")
    light: bool = setting(False, help="lights differ")
    camera: bool = setting(False, help="the head camera's place differs")
    clutter: bool = setting(False, help="things at the rim that are only seen")

    @property
    def state_size(self) -> int:
        return STATE_SIZE

    @property
    def action_size(self) -> int:
        return ACTION_SIZES[self.control]


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


def plan_split(seed: int, split: str) -> PlanEpisode:
    """Every row's episodes of a split; splits of other names share no scene and no start."""

    def plan(row: int, episode: int) -> tuple[int, dict[str, Any]]:
        return derive(seed, split, row, episode), {}

    return plan


def make_corpus(world: World) -> Iterator[str]:
    """Every instruction that training may give: a tiny tokenizer finds its pieces in them."""
    objects = [f"{c} {s}" for c in COLOURS for s in SHAPES if (c, s) not in HELD_OUT_PAIRS]
    for wording in WORDINGS[world.task]:
        for thing in objects:
            for colour in COLOURS:
                yield wording.format(object=thing, target=f"{colour} {TARGET_NAMES.get(world.task, 'mark')}")
