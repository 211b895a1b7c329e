"""A thing that is hidden for longer than the history reaches back: who has a memory foresees it, who has none can't."""

from dataclasses import replace

import pytest
import torch

from lookact.recipes.world_duel.config import PRESETS, Model, Tokens, World
from lookact.recipes.world_duel.data import record_random, tokenise
from lookact.recipes.world_duel.model import learn_tokens, open_world
from lookact.recipes.world_duel.update import Learner, learn_film, remember_all, scenes, to_film
from lookact.seeding import numpy_rng
from lookact.training.optim import NonFiniteGuard, build_adamw, set_learning_rate

OPENS, ROWS, EPISODES = 6, 64, 1024
CONFIG = replace(
    PRESETS["debug"],
    world=World(env="hidden", image_size=16, rows=ROWS, steps_per_episode=OPENS + 1),
    model=Model(width=32, layers=1, heads=2, memory=64, members=1),
    tokens=Tokens(codes=32, latent=8, width=16, scales=(1, 2), steps=300, batch=64),
)


def taught(cfg, folder, steps, *, rows=ROWS, episodes=EPISODES, lr=5e-3):
    """A world model after so many batches of so many rows, of episodes that show two openings each."""
    world = open_world(cfg)
    recordings = record_random(cfg.world, folder, seed=0, split="random", episodes=episodes)
    # the curtain is mostly drawn: tokens are learned from frames of which most are not
    shown = [replace(one, wrist=one.wrist[:, [0, 1]], head=one.wrist[:, [0, OPENS]]) for one in recordings]
    learn_tokens(world, shown, cfg, folder / "tokens")
    sequences = tokenise(world, recordings)
    learner = Learner(build_adamw({"world": world}, lr=lr), NonFiniteGuard(), 1.0)
    for step in range(steps):
        set_learning_rate(learner.optimizer, step + 1, total=steps, schedule="cosine", floor=0.02)
        batch = torch.from_numpy(numpy_rng(0, "rows", step).choice(episodes, rows, replace=False))
        learn_film(
            world, to_film(world, sequences[batch]), torch.zeros(rows, dtype=torch.long), learner,
            length=OPENS + 1, stride=1, sequential=True, action_weight=0.0, seed=step,
        )  # fmt: skip
    return world


def foreseen_opening(world, cfg, folder, *, blank=False):
    """Share of held-out tokens imagined right one step before the curtain opens for the second time."""
    unseen = to_film(world, tokenise(world, record_random(cfg.world, folder, seed=0, split="held", episodes=ROWS)))
    now = torch.tensor([OPENS - 1])
    scene, action = scenes(world, unseen, now, remember_all(world, unseen, blank=blank)[:, now], stride=1)
    return float((world.imagine(scene, action) == unseen.ids[:, OPENS]).float().mean())


@pytest.mark.slow
def test_after_a_short_lesson_already_memory_foresees_more_of_what_is_hidden(tmp_path):
    short = {"steps": 200, "rows": 32, "episodes": 256, "lr": 1e-2}
    remembering = replace(CONFIG, tokens=replace(CONFIG.tokens, codes=16, steps=120))
    forgetful = replace(remembering, model=replace(CONFIG.model, memory=0))
    world = taught(remembering, tmp_path, **short)
    found = foreseen_opening(world, remembering, tmp_path)
    assert found > foreseen_opening(taught(forgetful, tmp_path, **short), forgetful, tmp_path) + 0.15
    assert found > foreseen_opening(world, remembering, tmp_path, blank=True) + 0.15


@pytest.mark.learn
def test_only_memory_foresees_what_is_hidden(tmp_path):
    forgetful = replace(CONFIG, model=replace(CONFIG.model, memory=0))
    without = foreseen_opening(taught(forgetful, tmp_path, 150), forgetful, tmp_path)
    remembering = foreseen_opening(taught(CONFIG, tmp_path, 400), CONFIG, tmp_path)
    assert remembering > 0.9
    assert without < 0.5
