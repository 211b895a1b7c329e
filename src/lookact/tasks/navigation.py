"""Task "navigation": walk through a room to the object that is asked for."""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from functools import lru_cache
from itertools import islice
from typing import Any, ClassVar, Protocol

import numpy as np
from numpy.typing import NDArray

from lookact.data.quality import episode_numbers
from lookact.envs.rooms.experts.demonstrate import demonstrate, random_move
from lookact.envs.rooms.generate import RoomStyle
from lookact.envs.rooms.goals import Difficulty, find_task
from lookact.envs.rooms.motion import Limits
from lookact.envs.rooms.navigation import GENERATED, Navigation, observe
from lookact.envs.rooms.pretraining_images import LabelledImage, labelled_images
from lookact.envs.rooms.render import Camera
from lookact.envs.rooms.routes import RouteWalk
from lookact.envs.rooms.scene import label_text
from lookact.envs.rooms.scene_sources import EVALUATION_SPLITS, for_split, scene_id, scene_sources
from lookact.envs.rooms.simulator import recorded_simulator
from lookact.envs.rooms.vsi import load_questions
from lookact.envs.wrappers.chat_env import ChatEnv
from lookact.errors import ConfigError, DataError, EnvError, ParseError
from lookact.rollout.collect import make_specs
from lookact.rollout.samplers.random_actor import RandomActor
from lookact.seeding import numpy_rng
from lookact.tasks.settings import NavigationConfig
from lookact.text.actions import parse_action
from lookact.training.evaluation import flat_metrics, gather_numbers, make_report
from lookact.types import Demonstration, Episode, EpisodeSpec, FloorMap, Observation

log = logging.getLogger(__name__)
REPORTED = ("success_rate", "spl", "turns", "valid_action_rate", "collisions")
ACTION_PARTS = ("rotation_angle_degrees", "forward_meters")


class Mapped(Protocol):
    """An environment that can be drawn from above."""

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> Any: ...
    def floor_map(self) -> FloorMap: ...


@dataclass(frozen=True)
class NavigationTask:
    """A `Task`: ObjectNav in generated rooms or ARKitScenes."""

    env: NavigationConfig
    outcome: ClassVar[dict[str, str]] = {"success_rate": "success", "spl": "spl", "collisions": "collisions"}
    best: ClassVar[str] = "success_rate"

    @property
    def image_size(self) -> int:
        return self.env.image_size

    def make_env(self) -> ChatEnv:
        env = self.env
        rooms = Navigation(
            scenes=self._sources() or None,
            style=self._style(),
            image_size=env.image_size,
            fov_degrees=env.fov_degrees,
            max_turns=env.max_turns,
            difficulty=self._difficulty(),
            questions=env.questions,
            progress_weight=env.progress_weight,
        )
        return ChatEnv(rooms, observe_nothing if env.blind else observe)

    def specs(self, seed: int, split: str, *, groups: int, group_size: int = 1, step: int = 0) -> list[EpisodeSpec]:
        specs = make_specs(seed, split, groups=groups, size=group_size, step=step)
        if not self.env.scenes:
            return specs
        env, sources = self.env, self._sources()
        pool = for_split(sources, split, held_out=env.held_out_scenes, train_on_test=env.train_on_test)
        if env.routes is not None:
            rows = self._routes(env.routes, pool, split)
            return [choose(spec, route=rows[_number(spec, split) % len(rows)]) for spec in specs]
        if pool == env.scenes and not env.generated_share:
            return specs
        names = startable(pool, self._difficulty(), groups if split in EVALUATION_SPLITS else len(pool))
        return [choose(spec, scene=self._scene_of(spec, split, names)) for spec in specs]

    def _scene_of(self, spec: EpisodeSpec, split: str, names: Sequence[str]) -> str:
        """One of the scenes, or, in a share of training, a generated room."""
        number = _number(spec, split)
        if split not in EVALUATION_SPLITS and numpy_rng(number, "generated").random() < self.env.generated_share:
            return GENERATED
        return names[number % len(names)]

    def _difficulty(self) -> Difficulty:
        env = self.env
        return Difficulty(env.success_distance, env.start_distance, env.classes)

    def _sources(self) -> tuple[str, ...]:
        return scene_sources(self.env.scenes, self.env.scene_ids)

    def _routes(self, path: str, pool: Sequence[str], split: str) -> list[dict[str, Any]]:
        """The rows of a file that can be walked in the scenes of `pool`; how many can't is logged."""
        purpose = "test" if split in EVALUATION_SPLITS else "train"
        asked = load_questions(path, purpose=purpose, train_on_test=self.env.train_on_test)
        rows = [question for question in asked if question.question_type == "route_planning"]
        places = {scene_id(source): source for source in pool}
        kept, reasons = [], Counter[str]()
        for question in rows:
            try:
                if question.scene_name not in places:
                    raise EnvError("its scene is not among env.scenes")
                RouteWalk(recorded_simulator(places[question.scene_name]), question, self.env.success_distance)
                kept.append(asdict(question))
            except EnvError as error:
                reasons[str(error)] += 1
        if not kept:
            why = reasons.most_common(1)[0][0] if reasons else "it has no route_planning rows"
            raise DataError(f"{path}: none of its {len(rows)} routes can be walked: {why}")
        if reasons:
            log.info("%s: %d of %d routes can't be walked: %s", path, len(rows) - len(kept), len(rows), dict(reasons))
        return kept

    def demonstrations(self, specs: Sequence[EpisodeSpec], *, noise: float) -> Iterator[Demonstration]:
        env = self.make_env().env
        for spec in specs:
            steps = demonstrate(env, spec.seed, dict(spec.options), noise=noise)
            yield Demonstration(
                # a chat policy sees no depth, and demonstrations are held by the thousand
                observations=tuple(replace(step.observation, depth=None) for step in steps),
                replies=tuple(step.executed for step in steps),
                imitate=tuple(step.executed == step.label for step in steps),
            )

    def corpus(self) -> list[str]:
        """Every question, every feedback, every action."""
        env = self.env
        turns = [
            f"{word} Turn {turn} of {env.max_turns}."
            for word in ("Moved.", "Blocked.", "Invalid.")
            for turn in range(1, env.max_turns + 1)
        ]
        questions = [
            f"{question.format(label=label_text(label))} Turn 1 of {env.max_turns}."
            for question in env.questions
            for label in env.classes
        ]
        generated = replace(self, env=replace(env, scenes=(), scene_ids=(), routes=None))
        demos = generated.demonstrations(generated.specs(0, "corpus", groups=40), noise=0.2)
        return turns + questions + [reply for demo in demos for reply in demo.replies]

    def pretraining_images(self, seed: int, *, rooms: Iterable[int], per_room: int) -> Iterator[LabelledImage]:
        env = self.env
        camera = Camera.square(env.image_size, env.fov_degrees)
        scenes: tuple[str, ...] = ()
        # vision encoders are made from generated rooms alone unless these are mixed with scenes
        if env.scenes and env.generated_share:
            scenes = for_split(self._sources(), "train", held_out=env.held_out_scenes, train_on_test=env.train_on_test)
        return labelled_images(
            seed,
            rooms=rooms,
            per_room=per_room,
            style=self._style(),
            camera=camera,
            scenes=scenes,
            generated_share=env.generated_share,
        )

    def report(self, episodes: Sequence[Episode]) -> dict[str, Any]:
        """Success rate, SPL (arXiv:1807.06757), turns, valid actions and collisions, each with its interval."""
        numbers = gather_numbers(episode_numbers(episodes, self.outcome))
        return make_report({name: numbers[name] for name in REPORTED}, rates=("success_rate",)).plain()

    def report_metrics(self, report: Mapping[str, Any]) -> dict[str, float]:
        return flat_metrics({name: report[name] for name in REPORTED})

    def compare(self, before: Mapping[str, Any], after: Mapping[str, Any]) -> dict[str, Any]:
        return {"before": before, "after": after}

    def histograms(self, episodes: Sequence[Episode]) -> dict[str, NDArray[np.float64]]:
        """Every rotation and step that was asked for."""
        actions = []
        for turn in (turn for episode in episodes for turn in episode.turns):
            try:
                actions.append(parse_action(str(turn.decision.action)))
            except ParseError:
                continue
        return {name: np.array([action[name] for action in actions]) for name in ACTION_PARTS}

    def add_floor_map(self, specs: Sequence[EpisodeSpec]) -> Callable[[Episode], Episode]:
        return floor_map_adder(self.make_env().env.unwrapped, specs)  # type: ignore[arg-type]

    def random_actor(self) -> RandomActor:
        """Moves drawn uniformly: the baseline."""
        return RandomActor(lambda rng: random_move(rng, Limits()).json())

    def _style(self) -> RoomStyle:
        return RoomStyle(objects=self.env.objects, classes=self.env.classes, side=self.env.side)


def make_navigation(env: NavigationConfig, seed: int) -> NavigationTask:
    if env.routes is not None and not env.scenes:
        raise ConfigError("env.routes are walked in scenes: give env.scenes, folders or scene notes, as well")
    return NavigationTask(env)


def observe_nothing(shown: Mapping[str, Any], info: Mapping[str, Any]) -> Observation:
    """What is said, with a blank picture."""
    return observe({**shown, "rgb": np.zeros_like(shown["rgb"])}, info)


def choose(spec: EpisodeSpec, **options: Any) -> EpisodeSpec:
    """The spec with further options."""
    return replace(spec, options={**spec.options, **options})


def _number(spec: EpisodeSpec, split: str) -> int:
    """Which of the scenes or rows an episode begins with: evaluation takes them in order, training draws."""
    return spec.group if split in EVALUATION_SPLITS else int(spec.options["scene_seed"])


@lru_cache(maxsize=16)
def startable(pool: tuple[str, ...], difficulty: Difficulty, count: int) -> list[str]:
    """The ids of the first `count` scenes in which an episode can start as far from a goal as it should."""
    found = (source for source in pool if find_task(recorded_simulator(source), 0, difficulty) is not None)
    names = [scene_id(source) for source in islice(found, count)]
    if not names:
        raise ConfigError(f"no start {difficulty.start_distance} m from a goal in {len(pool)} scenes: widen the range")
    return names


def floor_map_adder(env: Mapped, specs: Sequence[EpisodeSpec]) -> Callable[[Episode], Episode]:
    """Gives an episode the map of `env` at its start; one that never began has none."""
    by_id = {spec.id: spec for spec in specs}

    def add(episode: Episode) -> Episode:
        if not episode.turns:
            return episode
        spec = by_id[episode.id]
        env.reset(seed=spec.seed, options=dict(spec.options))
        return replace(episode, floor_map=env.floor_map())

    return add
