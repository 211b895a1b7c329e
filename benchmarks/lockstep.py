"""The rollout loop that LookAct does without: all environments step one after another, all rows take their turns
together, and a batch waits for its longest episode. It stands here as the rival of `lookact.rollout.collect`."""

from __future__ import annotations

from collections.abc import Sequence

from lookact.protocols import Actor, Env
from lookact.types import Episode, EpisodeSpec, Turn


def collect_in_lockstep(specs: Sequence[EpisodeSpec], envs: Sequence[Env], actor: Actor) -> list[Episode]:
    """An episode per spec, as many at a time as there are environments."""
    episodes = []
    for start in range(0, len(specs), len(envs)):
        batch = specs[start : start + len(envs)]
        shown = [env.reset(seed=spec.seed, options=spec.options)[0] for spec, env in zip(batch, envs)]
        turns: list[list[Turn]] = [[] for _ in batch]
        for row, spec in enumerate(batch):
            actor.begin(row, spec.seed)
        active = list(range(len(batch)))
        while active:
            for row, decision in zip(active, actor.act(active, [shown[row] for row in active])):
                seen, reward, terminated, truncated, info = envs[row].step(decision.action)
                turns[row].append(Turn(shown[row], decision, float(reward), terminated, truncated, info))
                shown[row] = seen
            active = [row for row in active if not (turns[row][-1].terminated or turns[row][-1].truncated)]
        for row, spec in enumerate(batch):
            actor.end(row)
            episodes.append(Episode(spec.id, spec.group, spec.seed, tuple(turns[row]), last=shown[row]))
    return episodes
