"""A task's own methods, called for a client: starts, demonstrations, texts, pictures, reports."""

from __future__ import annotations

from typing import Any

import numpy as np

from lookact.envs.remote import schema
from lookact.envs.remote.codec import decode, encode
from lookact.protocols import Task
from lookact.types import Decision, Episode, EpisodeSpec, Observation, Turn

NOTHING = Decision("", np.zeros(0, dtype=np.float32), np.zeros(0, dtype=np.bool_))


def perform(task: Task, call: Any) -> Any:
    """What the call's method returns, encoded."""
    match call:
        case schema.SpecsCall():
            if call.groups * call.group_size > schema.MAX_SPECS:
                raise ValueError(f"{call.groups} groups of {call.group_size} are more than {schema.MAX_SPECS} specs")
            size = {"groups": call.groups, "group_size": call.group_size}
            result: Any = list(task.specs(call.seed, call.split, **size, step=call.step))
        case schema.DemonstrationsCall():
            result = list(task.demonstrations([make_spec(spec) for spec in call.specs], noise=call.noise))
        case schema.CorpusCall():
            result = list(task.corpus())
        case schema.ImagesCall():
            images = task.pretraining_images(call.seed, rooms=call.rooms, per_room=call.per_room)
            result = [vars(image) for image in images]
        case schema.EpisodesCall():
            episodes = [checked_episode(decode(episode)) for episode in call.episodes]
            result = task.report(episodes) if call.method == "report" else task.histograms(episodes)
        case schema.MetricsCall():
            result = task.report_metrics(decode(call.report))
        case schema.CompareCall():
            result = task.compare(decode(call.before), decode(call.after))
        case schema.MapCall():
            spec = make_spec(call.spec)
            began = Episode(spec.id, spec.group, spec.seed, (Turn(Observation(), NOTHING, 0.0, False, False),))
            result = task.add_floor_map([spec])(began).floor_map
        case schema.ActionsCall():
            result = random_actions(task, call.seed, call.count)
    return encode(result)


def make_spec(spec: schema.Spec) -> EpisodeSpec:
    return EpisodeSpec(spec.id, spec.group, spec.seed, decode(spec.options))


def checked_episode(value: Any) -> Episode:
    if not isinstance(value, Episode) or not all(isinstance(turn, Turn) for turn in value.turns):
        raise ValueError("not an episode")
    return value


def random_actions(task: Task, seed: int, count: int) -> list[Any]:
    """The first `count` actions of the random baseline on an episode with this seed."""
    actor = task.random_actor()
    actor.begin(0, seed)
    return [actor.act([0], [Observation()])[0].action for _ in range(count)]
