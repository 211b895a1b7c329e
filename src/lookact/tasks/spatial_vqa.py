"""The world of vqa-ppo: rooms or recorded scenes, the questions about them, and how both are shown to a model."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Literal

from lookact.data.demos import Demo
from lookact.envs.rooms.experts.demonstrate import demonstrate
from lookact.envs.rooms.generate import RoomStyle
from lookact.envs.rooms.places import recorded_place
from lookact.envs.rooms.questions import ask
from lookact.envs.rooms.questions.brief import brief
from lookact.envs.rooms.spatial_vqa import SpatialVQA, observe
from lookact.envs.rooms.vsi import Question, format_prompt, load_questions
from lookact.errors import ConfigError, DataError
from lookact.rollout.episode_specs import make_specs
from lookact.seeding import derive, numpy_rng
from lookact.tasks.navigation import drawer_in
from lookact.tasks.settings import SpatialVQAConfig
from lookact.text.actions import ANSWER_KEY, parse_json_object
from lookact.types import Episode, EpisodeSpec, Observation

LAST_TURN = "Last turn."
STEPS = {"object_size_estimation": 10.0, "object_abs_distance": 0.5, "room_size_estimation": 4.0}
"""To what numbers are rounded in demonstrations: centimetres, metres, square metres."""
Rows = Sequence[tuple[Question, str]]
"""Questions, each with the ARKitScenes folder of its scene."""


class AskingEnv:
    """The environment that `rollout.collect` drives; a brief question is asked again in every turn."""

    def __init__(self, env: SpatialVQA, prompts: Literal["vsi", "brief"]) -> None:
        self.env, self.prompts = env, prompts

    def reset(self, *, seed: int, options: Mapping[str, Any]) -> tuple[Observation, Mapping[str, Any]]:
        shown, info = self.env.reset(seed=seed, options=dict(options))
        return self._observe(shown, info), info | self._row()

    def step(self, action: Any) -> tuple[Observation, float, bool, bool, Mapping[str, Any]]:
        shown, reward, terminated, truncated, info = self.env.step(action)
        return self._observe(shown, info), float(reward), terminated, truncated, info | self._row()

    def close(self) -> None:
        self.env.close()

    def _observe(self, shown: Mapping[str, Any], info: Mapping[str, Any]) -> Observation:
        text = prompt_of(self.env.inquiry.question, info, self.prompts)
        return observe(shown, {**info, "prompt": text})

    def _row(self) -> dict[str, Any]:
        """The question as VSI-Bench's row, for predictions."""
        question = self.env.inquiry.question
        return {
            "id": question.id,
            "dataset": question.dataset,
            "scene_name": question.scene_name,
            "question": question.question,
            "options": question.options,
        }


def prompt_of(question: Question, info: Mapping[str, Any], prompts: Literal["vsi", "brief"]) -> str:
    """What a turn says beside its picture."""
    if prompts == "vsi":
        return str(info["prompt"])
    last = info["turn"] + 1 >= info["max_turns"]
    return f"{brief(question)} {LAST_TURN}" if last else brief(question)


def asked(question: Question, prompts: Literal["vsi", "brief"]) -> str:
    """The question alone, without a word about turns."""
    return format_prompt(question) if prompts == "vsi" else f"{brief(question)} {LAST_TURN}"


def make_env(world: SpatialVQAConfig, rows: Rows | None = None) -> AskingEnv:
    """One environment that asks about `rows`, or about generated rooms."""
    env = SpatialVQA(
        rows=rows,
        types=world.types,
        style=room_style(world),
        image_size=world.image_size,
        fov_degrees=world.fov_degrees,
        max_turns=world.max_turns,
    )
    return AskingEnv(env, world.prompts)


def map_drawer(
    world: SpatialVQAConfig, plans: Sequence[EpisodeSpec], rows: Rows | None = None
) -> Callable[[Episode], Episode]:
    """Gives an episode of one of the plans the map of its room."""
    return drawer_in(make_env(world, rows).env, plans)


def room_style(world: SpatialVQAConfig) -> RoomStyle:
    """Rooms in which things may occur twice, to be counted."""
    return RoomStyle(objects=world.objects, classes=world.classes, side=world.side, shapes=world.shapes, distinct=False)


def training_rows(world: SpatialVQAConfig, seed: int) -> Rows | None:
    """Questions of our own about the world's recorded scenes, or None where rooms are generated."""
    if not world.scenes:
        return None
    rows = [
        (question, folder)
        for folder in world.scenes
        for question in ask(
            recorded_place(folder).scene, seed=derive(seed, "ask"), types=world.types, per_type=world.per_type
        )
    ]
    if not rows:
        raise ConfigError(f"no question of the types {world.types} fits any of world.scenes: add types or scenes")
    return rows


def benchmark_rows(path: str, scenes: Sequence[str]) -> Rows:
    """A file's questions whose scenes are among the folders, for evaluation only."""
    folders = {Path(folder).name: folder for folder in scenes}
    rows = [(q, folders[q.scene_name]) for q in load_questions(path, purpose="test") if q.scene_name in folders]
    if not rows:
        raise DataError(f"{path}: none of its scenes is among evaluation.scenes: give the folders named like them")
    return rows


def make_corpus(world: SpatialVQAConfig) -> list[str]:
    """Texts in which the tiny tokenizer finds its pieces: every kind of prompt and reply."""
    demos = make_demos(world, make_specs(0, "corpus", groups=60), noise=0.2, haste=0.2)
    return [text for demo in demos for text in (*(seen.text for seen in demo.observations), *demo.replies)]


def make_demos(
    world: SpatialVQAConfig, plans: Sequence[EpisodeSpec], *, noise: float, haste: float = 0.0, rows: Rows | None = None
) -> Iterator[Demo]:
    """The looking-around expert's episodes; with probability `noise` a random move takes the place of its own.

    A share `haste` of them answers at the first look, by a guess where that shows too little.
    """
    env = make_env(world, rows)
    for plan in plans:
        # its only turn is the last one for the expert, while the prompt speaks of a first one
        env.env.max_turns = 1 if numpy_rng(plan.seed, "haste").random() < haste else world.max_turns
        steps = demonstrate(env.env, plan.seed, dict(plan.options), noise=noise)
        question = env.env.inquiry.question
        coarse = rounded if world.prompts == "brief" else lambda reply, _: reply
        texts = [
            prompt_of(
                question, {"prompt": step.observation.text, "turn": turn, "max_turns": world.max_turns}, world.prompts
            )
            for turn, step in enumerate(steps)
        ]
        yield Demo(
            # a chat policy sees no depth, and demonstrations are held by the thousand
            observations=tuple(replace(s.observation, text=t, depth=None) for s, t in zip(steps, texts)),
            replies=tuple(coarse(step.executed, question.question_type) for step in steps),
            imitate=tuple(step.executed == step.label for step in steps),
        )


def rounded(reply: str, question_type: str) -> str:
    """A reply whose numeric answer is told no finer than `STEPS` says: few numbers are learned sooner than many."""
    found = parse_json_object(reply)
    if question_type not in STEPS or ANSWER_KEY not in found:
        return reply
    step = STEPS[question_type]
    number = max(step, step * round(float(found[ANSWER_KEY]) / step))
    return reply[: reply.rindex("{")] + json.dumps({ANSWER_KEY: f"{number:g}"})
