"""Episode specs: which starts, in groups that share a baseline, by seed, split and step."""

from __future__ import annotations

from lookact.seeding import derive
from lookact.types import EpisodeSpec


def make_specs(seed: int, split: str, *, groups: int, size: int = 1, step: int = 0) -> list[EpisodeSpec]:
    """`groups` starts with `size` episodes each; splits of other names share no room."""
    plans = []
    for group in range(groups):
        path = (split, step, group)
        options = {"scene_seed": derive(seed, "scene", *path), "start_seed": derive(seed, "start", *path)}
        for copy in range(size):
            name = f"{split}-{step:05d}-{group:04d}-{copy:02d}"
            plans.append(EpisodeSpec(id=name, group=group, seed=derive(seed, "episode", *path, copy), options=options))
    return plans
