"""Episode specs, and the one loop that runs them: environments meet actors."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field

from lookact.errors import EnvError
from lookact.protocols import Actor, Env
from lookact.seeding import derive
from lookact.types import Decision, Episode, EpisodeSpec, Observation, Turn

log = logging.getLogger(__name__)


def make_specs(seed: int, split: str, *, groups: int, size: int = 1, step: int = 0) -> list[EpisodeSpec]:
    """`groups` starts with `size` episodes each; splits of other names share no room."""
    specs = []
    for group in range(groups):
        path = (split, step, group)
        options = {"scene_seed": derive(seed, "scene", *path), "start_seed": derive(seed, "start", *path)}
        for copy in range(size):
            name = f"{split}-{step:05d}-{group:04d}-{copy:02d}"
            specs.append(EpisodeSpec(id=name, group=group, seed=derive(seed, "episode", *path, copy), options=options))
    return specs


@dataclass
class _Running:
    spec: EpisodeSpec
    env: Env
    observation: Observation | None = None
    turns: list[Turn] = field(default_factory=list)
    error: str | None = None

    @property
    def over(self) -> bool:
        return self.error is not None or (bool(self.turns) and (self.turns[-1].terminated or self.turns[-1].truncated))


def collect(
    specs: Sequence[EpisodeSpec],
    envs: Sequence[Env],
    actor: Actor,
    *,
    finished: Callable[[Episode], None] | None = None,
) -> list[Episode]:
    """Runs an episode per spec, as many at a time as there are environments; `finished` is called as each ends.

    An environment that raises ends its episode with `Episode.error` set; the others go on.
    """
    if specs and not envs:
        raise EnvError(f"{len(specs)} specs and no environment to run them in: give at least one")
    episodes: list[Episode] = []
    for wave in _waves(specs, max(1, len(envs))):
        running = [_Running(spec, env) for spec, env in zip(wave, envs)]
        for row, slot in enumerate(running):
            _reset(slot)
            actor.begin(row, slot.spec.seed)
        while active := [row for row, slot in enumerate(running) if not slot.over]:
            observations = [slot.observation for row in active if (slot := running[row]).observation is not None]
            for row, decision in zip(active, actor.act(active, observations)):
                _step(running[row], decision)
        for row, slot in enumerate(running):
            actor.end(row)
            episodes.append(_episode(slot, actor.version))
            if finished is not None:
                finished(episodes[-1])
    return episodes


def _waves(specs: Sequence[EpisodeSpec], size: int) -> Iterator[Sequence[EpisodeSpec]]:
    for start in range(0, len(specs), size):
        yield specs[start : start + size]


def _reset(slot: _Running) -> None:
    try:
        slot.observation, _ = slot.env.reset(seed=slot.spec.seed, options=slot.spec.options)
    except Exception as error:
        _fail(slot, error)


def _step(slot: _Running, decision: Decision) -> None:
    assert slot.observation is not None
    try:
        seen, reward, terminated, truncated, info = slot.env.step(decision.action)
    except Exception as error:
        _fail(slot, error)
        return
    slot.turns.append(Turn(slot.observation, decision, float(reward), terminated, truncated, info))
    slot.observation = seen


def _fail(slot: _Running, error: Exception) -> None:
    slot.error = f"{type(error).__name__}: {error}"
    log.warning("episode %s ended early: %s", slot.spec.id, slot.error)


def _episode(slot: _Running, version: int) -> Episode:
    return Episode(
        id=slot.spec.id,
        group=slot.spec.group,
        seed=slot.spec.seed,
        turns=tuple(slot.turns),
        last=slot.observation,
        policy_version=version,
        error=slot.error,
    )
