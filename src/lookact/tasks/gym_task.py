"""A task made of a Gymnasium environment and what is known about it: an expert, and what its picture shows where.

TASK = GymTask(make_env=make_frozen_lake, image_size=128, expert=expert_actions, labels=cell_classes)
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from lookact.data.quality import episode_numbers
from lookact.envs.rooms.pretraining_images import PATCH, LabelledImage
from lookact.envs.wrappers.gym_chat import CAMERA, KEY, GymChat, GymEnv
from lookact.errors import EnvError
from lookact.rollout.collect import make_specs
from lookact.rollout.samplers.random_actor import RandomActor
from lookact.seeding import derive, numpy_rng
from lookact.training.evaluation import flat_metrics, gather_numbers, make_report
from lookact.types import Demonstration, Episode, EpisodeSpec, FramePair

REPORTED = ("success_rate", "return", "turns", "valid_action_rate")
CORPUS_EPISODES = 40
WALK = 12
"""Random steps at most before a pretraining image is taken."""

Expert = Callable[[GymEnv], "list[str] | None"]
"""The words of the actions to take from the environment's present state; None where it knows no way."""
Labels = Callable[[GymEnv], NDArray[np.float32]]
"""(rows, columns, classes) what each cell of the picture shows."""
LABELS = "labels"
"""Where an environment's info may hold the same, from a coarse grid down to single pixels (a segmentation, one-hot)."""
HELD_OUT = ("validate", "test")
HELD_OUT_SHARE = 4
"""One layout in so many is met in held-out splits, and there alone."""


@dataclass(frozen=True)
class GymTask:
    """A `Task` over any environment that `GymChat` wraps. What must cross processes pickles: give named functions."""

    make_env: Callable[[], GymChat]
    image_size: int
    """Pixels a side of the picture, a multiple of 32."""
    actions: tuple[str, ...]
    """The words of the actions, for random play and for the tokenizer."""
    expert: Expert | None = None
    labels: Labels | None = None
    layout: Callable[[int], bytes] | None = None
    """What a start's seed draws; given, no layout of a held-out split is ever trained on, however few there are."""

    outcome: ClassVar = {"success_rate": "success"}
    best: ClassVar = "success_rate"

    def specs(self, seed: int, split: str, *, groups: int, group_size: int = 1, step: int = 0) -> list[EpisodeSpec]:
        specs = make_specs(seed, split, groups=groups, size=group_size, step=step)
        if self.layout is None:
            return specs
        starts = {spec.group: spec.options["start_seed"] for spec in specs}
        starts = {group: self.own_start(start, held_out=split in HELD_OUT) for group, start in starts.items()}
        return [replace(spec, options={**spec.options, "start_seed": starts[spec.group]}) for spec in specs]

    def own_start(self, start: int, *, held_out: bool) -> int:
        """The first start from `start` on whose layout is of the held-out share, or of the others."""
        if self.layout is None:
            return start
        while (derive(0, "layout", self.layout(start % 2**31).hex()) % HELD_OUT_SHARE == 0) != held_out:
            start = derive(start, "another")
        return start

    def demonstrations(self, specs: Sequence[EpisodeSpec], *, noise: float) -> Iterator[Demonstration]:
        """The expert plans anew in every turn, so that it knows the way back from a random action."""
        if self.expert is None:
            raise EnvError("this task has no expert to imitate: set --sft.demonstrations 0, or give it one")
        env = self.make_env()
        for spec in specs:
            seen, info = env.reset(seed=spec.seed, options=spec.options)
            rng, over = numpy_rng(spec.seed, "noise"), False
            observations, replies, imitate = [], [], []
            while not over and (plan := self.expert(env.env)):
                astray = rng.random() < noise
                word = self.actions[rng.integers(len(self.actions))] if astray else plan[0]
                observations.append(seen)
                replies.append(reply(word))
                imitate.append(not astray)
                seen, _, terminated, truncated, info = env.step(replies[-1])
                over = terminated or truncated
            if replies:
                yield Demonstration(tuple(observations), tuple(replies), tuple(imitate))
        env.close()

    def corpus(self) -> list[str]:
        """Every action, and what the environment says in a few episodes of random play."""
        env, texts = self.make_env(), [reply(word) for word in self.actions] * 20
        for spec in self.specs(0, "corpus", groups=CORPUS_EPISODES):
            seen, _ = env.reset(seed=spec.seed, options=spec.options)
            rng, over = numpy_rng(spec.seed, "corpus"), False
            texts.append(seen.text)
            while not over:
                word = self.actions[rng.integers(len(self.actions))]
                seen, _, terminated, truncated, _ = env.step(reply(word))
                texts.append(seen.text)
                over = terminated or truncated
        env.close()
        return texts

    def pretraining_images(
        self, seed: int, *, rooms: Iterable[int], per_room: int
    ) -> Iterator[LabelledImage | FramePair]:
        """Pictures after a few random steps, with what their patches show: by `labels`, else by the info's "labels".

        Where neither tells, the pictures before and after the last step, and its action.
        """
        env = self.make_env()
        for room in rooms:
            for image in range(per_room):
                start, rng = derive(seed, "room", room, image), numpy_rng(seed, "walk", room, image)
                seen, info = env.reset(seed=self.own_start(start, held_out=False), options={})
                before, action = seen, 0
                for _ in range(rng.integers(1, WALK + 1)):
                    action = int(rng.integers(len(self.actions)))
                    before, (seen, _, terminated, truncated, info) = seen, env.step(reply(self.actions[action]))
                    if terminated or truncated:
                        break
                cells = self.labels(env.env) if self.labels else info.get(LABELS)
                pictures = before.images[CAMERA], seen.images[CAMERA]
                yield FramePair(*pictures, action) if cells is None else labelled(pictures[1], cells)
        env.close()

    def report(self, episodes: Sequence[Episode]) -> dict[str, Any]:
        numbers = gather_numbers(episode_numbers(episodes, self.outcome))
        return make_report({name: numbers[name] for name in REPORTED}, rates=("success_rate",)).plain()

    def report_metrics(self, report: Mapping[str, Any]) -> dict[str, float]:
        return flat_metrics({name: report[name] for name in REPORTED})

    def compare(self, before: Mapping[str, Any], after: Mapping[str, Any]) -> dict[str, Any]:
        return {"before": before, "after": after}

    def histograms(self, episodes: Sequence[Episode]) -> dict[str, NDArray[np.float64]]:
        return {}

    def add_floor_map(self, specs: Sequence[EpisodeSpec]) -> Callable[[Episode], Episode]:
        return without_map

    def random_actor(self) -> RandomActor:
        """Actions drawn uniformly: the baseline."""
        return RandomActor(lambda rng: reply(self.actions[rng.integers(len(self.actions))]))


def reply(word: str) -> str:
    """An action as a policy says it."""
    return f'{{"{KEY}": "{word}"}}'


def without_map(episode: Episode) -> Episode:
    """The episode as it is: its pictures show all there is."""
    return episode


def labelled(picture: NDArray[np.uint8], cells: NDArray[np.float32]) -> LabelledImage:
    """A picture whose patches have the classes of the cells they lie in, or the mean of the finer cells in them."""
    rows, columns = picture.shape[0] // PATCH, picture.shape[1] // PATCH
    for axis, patches in enumerate((rows, columns)):
        count = cells.shape[axis]
        if patches % count == 0:
            cells = cells.repeat(patches // count, axis=axis)
        elif count % patches == 0:
            cells = cells.reshape(*cells.shape[:axis], patches, -1, *cells.shape[axis + 1 :]).mean(axis=axis + 1)
        else:
            raise EnvError(f"{count} cells and {patches} patches of {PATCH} pixels do not divide each other evenly")
    return LabelledImage(picture, cells.astype(np.float32), np.zeros((rows, columns), dtype=np.float32))
