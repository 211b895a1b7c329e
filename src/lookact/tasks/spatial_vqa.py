"""Task "spatial-vqa": look around a room, generated or recorded, and answer VSI-Bench's questions about it."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Literal

import numpy as np
from numpy.typing import NDArray

from lookact.envs.rooms.experts.demonstrate import demonstrate, random_move
from lookact.envs.rooms.generate import RoomStyle
from lookact.envs.rooms.motion import Limits
from lookact.envs.rooms.pretraining_images import LabelledImage, labelled_images
from lookact.envs.rooms.questions import ask, brief
from lookact.envs.rooms.render import Camera
from lookact.envs.rooms.scan_cache import keep_scans
from lookact.envs.rooms.scene_sources import BETWEEN, for_split, scene_id, scene_sources
from lookact.envs.rooms.simulator import recorded_scene
from lookact.envs.rooms.spatial_vqa import SpatialVQA, observe
from lookact.envs.rooms.vsi import Question, load_questions
from lookact.errors import ConfigError, DataError
from lookact.rollout.collect import make_specs
from lookact.rollout.samplers.random_actor import RandomActor
from lookact.seeding import derive, numpy_rng
from lookact.tasks.navigation import choose, floor_map_adder
from lookact.tasks.settings import SpatialVQAConfig
from lookact.text.actions import ANSWER_KEY, parse_json_object
from lookact.text.answers import score_answer
from lookact.training.distributed import gather
from lookact.training.vsi_scoring import compare_reports, vsi_metrics, vsi_report
from lookact.types import Demonstration, Episode, EpisodeSpec, Observation

LAST_TURN = "Last turn."
STEPS = {"object_size_estimation": 10.0, "object_abs_distance": 0.5}
"""To what numbers are rounded in demonstrations: centimetres, metres."""
ROOM_SIZES = (4, 5, 6, 7, 8, 10, 12, 14, 17, 20, 24, 29, 35, 42, 50, 60)
"""To what square metres are rounded: a fifth apart, since scores are by relative error."""
Rows = Sequence[tuple[Question, str]]
"""Questions, each with the name of its scene (`scene_sources`)."""
ROW_KEYS = ("id", "dataset", "scene_name", "question_type", "question", "options", "ground_truth", "prediction")


class AskingEnv:
    """The environment that `rollout.collect` drives; a brief question is asked again in every turn."""

    def __init__(self, env: SpatialVQA, prompts: Literal["vsi", "brief"], *, blind: bool = False) -> None:
        self.env, self.prompts, self.blind = env, prompts, blind

    def reset(self, *, seed: int, options: Mapping[str, Any]) -> tuple[Observation, Mapping[str, Any]]:
        shown, info = self.env.reset(seed=seed, options=dict(options))
        return self._observe(shown, info), info | self._row()

    def step(self, action: Any) -> tuple[Observation, float, bool, bool, Mapping[str, Any]]:
        shown, reward, terminated, truncated, info = self.env.step(action)
        return self._observe(shown, info), float(reward), terminated, truncated, info | self._row()

    def close(self) -> None:
        self.env.close()

    def _observe(self, shown: Mapping[str, Any], info: Mapping[str, Any]) -> Observation:
        text = prompt_of(self.env.task.question, info, self.prompts)
        seen = observe(shown, {**info, "prompt": text})
        return blanked(seen) if self.blind else seen

    def _row(self) -> dict[str, Any]:
        """The question as VSI-Bench's row, for predictions."""
        question = self.env.task.question
        return {
            "id": question.id,
            "dataset": question.dataset,
            "scene_name": question.scene_name,
            "question": question.question,
            "options": question.options,
        }


def blanked(observation: Observation) -> Observation:
    """The same with black images."""
    images = {name: np.zeros_like(image) for name, image in observation.images.items()}
    return replace(observation, images=images)


def prompt_of(question: Question, info: Mapping[str, Any], prompts: Literal["vsi", "brief"]) -> str:
    """A turn's text."""
    if prompts == "vsi":
        return str(info["prompt"])
    last = info["turn"] + 1 >= info["max_turns"]
    return f"{brief(question)} {LAST_TURN}" if last else brief(question)


@dataclass(frozen=True)
class SpatialVQATask:
    """A `Task`: questions about generated rooms, or about `rows` of recorded scenes."""

    env: SpatialVQAConfig
    rows: Rows | None = None
    in_order: bool = False
    """Evaluation asks each row once, in order; training draws rows."""
    guess_fraction: float = 0.0
    """Share of demonstrations that answer at the first turn, by a guess where that shows too little."""
    outcome: ClassVar[dict[str, str]] = {"score": "answer_reward", "answered": "answered", "seen_share": "seen_share"}
    best: ClassVar[str] = "score"

    @property
    def image_size(self) -> int:
        return self.env.image_size

    def make_env(self) -> AskingEnv:
        env = SpatialVQA(
            rows=self.rows,
            types=self.env.types,
            style=self._style(),
            image_size=self.env.image_size,
            fov_degrees=self.env.fov_degrees,
            max_turns=self.env.max_turns,
            paraphrase=self.env.paraphrase,
            distance_choices=self.env.distance_choices,
            start_as_asked=self.env.start_as_asked,
        )
        return AskingEnv(env, self.env.prompts, blind=self.env.blind)

    def specs(self, seed: int, split: str, *, groups: int, group_size: int = 1, step: int = 0) -> list[EpisodeSpec]:
        if self.rows is None:
            return make_specs(seed, split, groups=groups, size=group_size, step=step)
        kept = self._rows_of(split)
        if not self.in_order:
            specs = make_specs(seed, split, groups=groups, size=group_size, step=step)
            if len(kept) == len(self.rows):
                return specs
            return [choose(spec, scene_seed=kept[spec.options["scene_seed"] % len(kept)]) for spec in specs]
        return [
            EpisodeSpec(
                id=f"{self.rows[number][0].dataset}-{self.rows[number][0].id}",
                group=number,
                seed=derive(seed, "episode", split, number),
                options={"scene_seed": number, "start_seed": derive(seed, "start", split, number)},
            )
            for number in kept[:groups]
        ]

    def _rows_of(self, split: str) -> list[int]:
        """The rows of a split, by number: those of its scenes."""
        env, rows = self.env, self.rows or ()
        sources = tuple(dict.fromkeys(source for _, source in rows))
        chosen = set(for_split(sources, split, held_out=env.held_out_scenes, train_on_test=env.train_on_test))
        return [number for number, (_, source) in enumerate(rows) if source in chosen]

    def demonstrations(self, specs: Sequence[EpisodeSpec], *, noise: float) -> Iterator[Demonstration]:
        """An expert's that looks around until it can answer, but for the guesses."""
        env, prompts, max_turns = self.make_env(), self.env.prompts, self.env.max_turns
        coarse = rounded if prompts == "brief" else lambda reply, _: reply
        sight = blanked if self.env.blind else lambda seen: seen
        for spec in specs:
            # its only turn is the last one for the expert, while the prompt speaks of a first one
            env.env.max_turns = 1 if numpy_rng(spec.seed, "haste").random() < self.guess_fraction else max_turns
            steps = demonstrate(env.env, spec.seed, dict(spec.options), noise=noise)
            question = env.env.task.question
            infos = [
                {"prompt": step.observation.text, "turn": turn, "max_turns": max_turns}
                for turn, step in enumerate(steps)
            ]
            yield Demonstration(
                # a chat policy sees no depth, and demonstrations are held by the thousand
                observations=tuple(
                    replace(sight(step.observation), text=prompt_of(question, info, prompts), depth=None)
                    for step, info in zip(steps, infos)
                ),
                replies=tuple(coarse(step.executed, question.question_type) for step in steps),
                imitate=tuple(step.executed == step.label for step in steps),
            )

    def corpus(self) -> list[str]:
        """Every kind of prompt and reply."""
        generated = replace(self, rows=None, guess_fraction=0.2)
        demos = generated.demonstrations(make_specs(0, "corpus", groups=60), noise=0.2)
        return [text for demo in demos for text in (*(seen.text for seen in demo.observations), *demo.replies)]

    def pretraining_images(self, seed: int, *, rooms: Iterable[int], per_room: int) -> Iterator[LabelledImage]:
        camera = Camera.square(self.env.image_size, self.env.fov_degrees)
        return labelled_images(seed, rooms=rooms, per_room=per_room, style=self._style(), camera=camera)

    def report(self, episodes: Sequence[Episode]) -> dict[str, Any]:
        """Scores by VSI-Bench's rules, per type, per task and overall, with intervals."""
        return vsi_report(prediction_rows(episodes))

    def report_metrics(self, report: Mapping[str, Any]) -> dict[str, float]:
        return vsi_metrics(report)

    def compare(self, before: Mapping[str, Any], after: Mapping[str, Any]) -> dict[str, Any]:
        return compare_reports(before, after)

    def histograms(self, episodes: Sequence[Episode]) -> dict[str, NDArray[np.float64]]:
        return {}

    def random_actor(self) -> RandomActor:
        """Moves, and now and then an answer, drawn uniformly: the baseline where the question is not known."""
        return RandomActor(random_move_or_answer)

    def add_floor_map(self, specs: Sequence[EpisodeSpec]) -> Callable[[Episode], Episode]:
        return floor_map_adder(self.make_env().env, specs)

    def _style(self) -> RoomStyle:
        """Rooms in which things may occur twice, to be counted."""
        env = self.env
        return RoomStyle(objects=env.objects, classes=env.classes, side=env.side, shapes=env.shapes, distinct=False)


def scene_questions(env: SpatialVQAConfig, seed: int) -> Rows | None:
    """Questions of our own about recorded scenes, or None where rooms are generated."""
    if not env.scenes:
        return None
    sources = scene_sources(env.scenes, env.scene_ids)
    keep_scans([source for source in sources if BETWEEN not in source])
    rows = [
        (question, source)
        for source in sources
        for question in ask(
            recorded_scene(source)[0],
            seed=derive(seed, "ask"),
            types=tuple(dict.fromkeys(env.types)),
            per_type=env.per_type,
            paraphrase=env.paraphrase,
            distance_choices=env.distance_choices,
        )
    ]
    if not rows:
        raise ConfigError(f"no question of the types {env.types} fits any of env.scenes: add types or scenes")
    return rows


def benchmark_rows(path: str, scenes: Sequence[str]) -> Rows:
    """A file's questions whose scenes are among the given, for evaluation only."""
    places = {scene_id(source): source for source in scene_sources(scenes)}
    rows = [(q, places[q.scene_name]) for q in load_questions(path, purpose="test") if q.scene_name in places]
    if not rows:
        raise DataError(f"{path}: none of its scenes is among evaluation.scenes: give folders or notes that hold them")
    return rows


def prediction_row(episode: Episode) -> dict[str, Any] | None:
    """The episode's question and answer, as VSI-Bench's harness reads them; None if it never began."""
    if not episode.turns:
        return None
    info = episode.turns[-1].info
    row = {key: info[key] for key in ROW_KEYS}
    score = score_answer(info["question_type"], info["prediction"], info["ground_truth"])
    return {"episode_id": episode.id, **row, "score": score, "turns": len(episode.turns)}


def prediction_rows(episodes: Sequence[Episode]) -> list[dict[str, Any]]:
    """Of all processes, in the order of their episodes' ids."""
    mine = [row for episode in episodes if (row := prediction_row(episode)) is not None]
    return sorted((row for part in gather(mine) for row in part), key=lambda row: str(row["episode_id"]))


def rounded(reply: str, question_type: str) -> str:
    """A reply whose numeric answer is no finer than `STEPS` or `ROOM_SIZES`: few are learned sooner than many."""
    found = parse_json_object(reply)
    if ANSWER_KEY not in found or question_type not in (*STEPS, "room_size_estimation"):
        return reply
    told = float(found[ANSWER_KEY])
    if question_type in STEPS:
        step = STEPS[question_type]
        number = max(step, step * round(told / step))
    else:
        number = min(ROOM_SIZES, key=lambda size: max(size / told, told / size))
    return reply[: reply.rindex("{")] + json.dumps({ANSWER_KEY: f"{number:g}"})


def make_spatial_vqa(env: SpatialVQAConfig, seed: int) -> SpatialVQATask:
    """In generated rooms, or with questions of our own about recorded scenes."""
    return SpatialVQATask(env, scene_questions(env, seed))


def random_move_or_answer(rng: np.random.Generator) -> str:
    """A move, or in one of three replies a letter or a number."""
    if rng.random() < 2 / 3:
        return str(random_move(rng, Limits()).json())
    answer = "ABCD"[rng.integers(4)] if rng.random() < 0.5 else str(rng.integers(1, 10))
    return f'{{"answer": "{answer}"}}'
