"""A task on environment servers: environments, starts, demonstrations, texts and reports all come from there."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from lookact.envs.remote.client import MAX_PER_CALL, RemoteEnv, ServerSpec, servers_of
from lookact.envs.remote.codec import encode
from lookact.envs.rooms.pretraining_images import LabelledImage
from lookact.tasks.remote_settings import RemoteConfig
from lookact.training.distributed import gather
from lookact.types import Decision, Demonstration, Episode, EpisodeSpec, Observation, Turn

NO_UNITS = np.zeros(0, dtype=np.float32)


@dataclass(frozen=True)
class RemoteTask:
    """A `Task` of which this process knows nothing but where it is served."""

    servers: ServerSpec
    seed: int
    outcome: Mapping[str, str]
    best: str
    image_size: int

    def make_env(self) -> RemoteEnv:
        return RemoteEnv(self.servers, self.seed)

    def specs(self, seed: int, split: str, *, groups: int, group_size: int = 1, step: int = 0) -> list[EpisodeSpec]:
        size = {"groups": groups, "group_size": group_size}
        specs: list[EpisodeSpec] = self._call("specs", seed=seed, split=split, **size, step=step)
        return specs

    def demonstrations(self, specs: Sequence[EpisodeSpec], *, noise: float) -> Iterator[Demonstration]:
        for start in range(0, len(specs), MAX_PER_CALL):
            some = [told(spec) for spec in specs[start : start + MAX_PER_CALL]]
            yield from self._call("demonstrations", specs=some, noise=noise)

    def corpus(self) -> list[str]:
        texts: list[str] = self._call("corpus")
        return texts

    def pretraining_images(self, seed: int, *, rooms: Iterable[int], per_room: int) -> Iterator[LabelledImage]:
        numbers = list(rooms)
        for start in range(0, len(numbers), MAX_PER_CALL):
            some = numbers[start : start + MAX_PER_CALL]
            for image in self._call("pretraining_images", seed=seed, rooms=some, per_room=per_room):
                yield LabelledImage(**image)

    def report(self, episodes: Sequence[Episode]) -> dict[str, Any]:
        everyone = [episode for part in gather([for_report(episode) for episode in episodes]) for episode in part]
        report: dict[str, Any] = self._call("report", episodes=encode(everyone))
        return report

    def report_metrics(self, report: Mapping[str, Any]) -> dict[str, float]:
        metrics: dict[str, float] = self._call("report_metrics", report=encode(report))
        return metrics

    def compare(self, before: Mapping[str, Any], after: Mapping[str, Any]) -> dict[str, Any]:
        both: dict[str, Any] = self._call("compare", before=encode(before), after=encode(after))
        return both

    def histograms(self, episodes: Sequence[Episode]) -> dict[str, NDArray[np.float64]]:
        found: dict[str, NDArray[np.float64]] = self._call(
            "histograms", episodes=encode([for_report(episode) for episode in episodes])
        )
        return found

    def add_floor_map(self, specs: Sequence[EpisodeSpec]) -> Callable[[Episode], Episode]:
        by_id = {spec.id: spec for spec in specs}

        def add(episode: Episode) -> Episode:
            if not episode.turns:
                return episode
            return replace(episode, floor_map=self._call("floor_map", spec=told(by_id[episode.id])))

        return add

    def random_actor(self) -> RemoteRandomActor:
        return RemoteRandomActor(self)

    def _call(self, method: str, **arguments: Any) -> Any:
        return servers_of(self.servers).call(method, self.seed, **arguments)


class RemoteRandomActor:
    """The task's random baseline: its actions, drawn by the server."""

    version = 0

    def __init__(self, task: RemoteTask, ahead: int = 64) -> None:
        self.task, self.ahead = task, ahead
        self._rows: dict[int, tuple[int, int, list[Any]]] = {}
        """Row to its seed, the number of actions taken, and those drawn."""

    def begin(self, row: int, seed: int) -> None:
        self._rows[row] = (seed, 0, [])

    def act(self, rows: Sequence[int], observations: Sequence[Observation]) -> list[Decision]:
        return [Decision(self._next(row), NO_UNITS, NO_UNITS.astype(bool)) for row in rows]

    def end(self, row: int) -> None:
        del self._rows[row]

    def _next(self, row: int) -> Any:
        seed, taken, drawn = self._rows[row]
        if taken == len(drawn):
            drawn = self.task._call("random_actions", seed=seed, count=len(drawn) + self.ahead)
        self._rows[row] = (seed, taken + 1, drawn)
        return drawn[taken]


def make_remote(env: RemoteConfig, seed: int) -> RemoteTask:
    facts = env.facts
    return RemoteTask(env.servers, seed, facts["outcome"], facts["best"], facts["image_size"])


def told(spec: EpisodeSpec) -> dict[str, Any]:
    return {"id": spec.id, "group": spec.group, "seed": spec.seed, "options": encode(dict(spec.options), "options")}


def for_report(episode: Episode) -> Episode:
    """An episode without what no report reads: observations, token ids, log-probs."""
    turns = tuple(
        Turn(Observation(), shortened(turn.decision), turn.reward, turn.terminated, turn.truncated, turn.info)
        for turn in episode.turns
    )
    return Episode(episode.id, episode.group, episode.seed, turns, None, episode.policy_version, episode.error)


def shortened(decision: Decision) -> Decision:
    return Decision(decision.action, NO_UNITS, NO_UNITS.astype(bool), mask_method=decision.mask_method)
