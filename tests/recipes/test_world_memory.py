"""A thing that is hidden for longer than the history reaches back: who has a memory foresees it, who has none can't."""

from dataclasses import replace

import pytest
import torch

from lookact.recipes.world_data import World, record_random, tokenise
from lookact.recipes.world_duel import PRESETS
from lookact.recipes.world_learn import Learner, learn_film, remember_all, scenes, to_film
from lookact.recipes.world_model import Model, Tokens, learn_tokens, open_world
from lookact.train.optim import NonFiniteGuard, build_adamw

OPENS = 6
CONFIG = replace(
    PRESETS["debug"],
    world=World(env="hidden", image_size=16, rows=64, steps_per_episode=OPENS + 1),
    model=Model(width=32, layers=1, heads=2, memory=64, members=1),
    tokens=Tokens(codes=32, latent=8, width=16, scales=(1, 2), steps=60, batch=32),
)


def foreseen_opening(cfg, folder):
    """Share of held-out tokens imagined right one step before the curtain opens for the second time."""
    world = open_world(cfg)
    recordings = record_random(cfg.world, folder, seed=0, split="random", episodes=64)
    held = record_random(cfg.world, folder, seed=0, split="held", episodes=64)
    learn_tokens(world, recordings, cfg, folder / "tokens")
    sequences, unseen = tokenise(world, recordings), to_film(world, tokenise(world, held))
    learner = Learner(build_adamw({"world": world}, lr=3e-3), NonFiniteGuard(), 1.0)
    film, folds = to_film(world, sequences), torch.zeros(64, dtype=torch.long)
    options = {"length": OPENS + 1, "stride": 1, "sequential": True, "action_weight": 0.0}
    for step in range(250):
        learn_film(world, film, folds, learner, seed=step, **options)
    now = torch.tensor([OPENS - 1])
    scene, action = scenes(world, unseen, now, remember_all(world, unseen)[:, now], stride=1)
    return float((world.imagine(scene, action) == unseen.ids[:, OPENS]).float().mean())


@pytest.mark.learn
def test_only_memory_foresees_what_is_hidden(tmp_path):
    remembering = foreseen_opening(CONFIG, tmp_path)
    forgetful = foreseen_opening(replace(CONFIG, model=replace(CONFIG.model, memory=0)), tmp_path)
    assert remembering > 0.9
    assert forgetful < 0.6
