"""A task made of a Gymnasium environment and what is known about it: an expert, and what its picture shows where.

TASK = GymTask(make_env=make_frozen_lake, image_size=128, expert=expert_actions, labels=cell_classes)
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from lookact.envs.rooms.pretraining_images import PATCH, LabelledImage
from lookact.envs.wrappers.gym_chat import CAMERA, KEY, GymChat, GymEnv
from lookact.errors import EnvError
from lookact.rollout.collect import make_specs
from lookact.rollout.samplers.random_actor import RandomActor
from lookact.seeding import derive, numpy_rng
from lookact.training.evaluation import episode_numbers, flat_metrics, gather_numbers, make_report
from lookact.types import Demonstration, Episode, EpisodeSpec

REPORTED = ("success_rate", "return", "turns", "valid_action_rate")
CORPUS_EPISODES = 40
WALK = 12
"""Random steps at most before a pretraining image is taken."""

Expert = Callable[[GymEnv], "list[str] | None"]
"""The words of the actions to take from the environment's present state; None where it knows no way."""
Labels = Callable[[GymEnv], NDArray[np.float32]]
"""(rows, columns, classes) what each cell of the picture shows."""


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

    outcome: ClassVar = {"success_rate": "success"}
    best: ClassVar = "success_rate"

    def specs(self, seed: int, split: str, *, groups: int, group_size: int = 1, step: int = 0) -> list[EpisodeSpec]:
        return make_specs(seed, split, groups=groups, size=group_size, step=step)

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

    def pretraining_images(self, seed: int, *, rooms: Iterable[int], per_room: int) -> Iterator[LabelledImage]:
        """Pictures after a few random steps, each patch with the classes of the cell it lies in."""
        if self.labels is None:
            raise EnvError("this task has no labels for vision pretraining: set --vision_pretraining.rooms 0")
        env = self.make_env()
        for room in rooms:
            for image in range(per_room):
                start, rng = derive(seed, "room", room, image), numpy_rng(seed, "walk", room, image)
                seen, _ = env.reset(seed=start, options={})
                for _ in range(rng.integers(WALK + 1)):
                    after, _, terminated, truncated, _ = env.step(reply(self.actions[rng.integers(len(self.actions))]))
                    if terminated or truncated:
                        break
                    seen = after
                yield labelled(seen.images[CAMERA], self.labels(env.env))
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
    """A picture whose patches have the classes of the cells they lie in; the grid must divide the patches evenly."""
    rows, columns = picture.shape[0] // PATCH, picture.shape[1] // PATCH
    if rows % cells.shape[0] or columns % cells.shape[1]:
        raise EnvError(f"{cells.shape[:2]} cells do not divide {rows} x {columns} patches of {PATCH} pixels evenly")
    coverage = cells.repeat(rows // cells.shape[0], axis=0).repeat(columns // cells.shape[1], axis=1)
    return LabelledImage(picture, coverage, np.zeros((rows, columns), dtype=np.float32))
