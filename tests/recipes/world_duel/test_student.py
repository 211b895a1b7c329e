from dataclasses import replace

import pytest
import torch

from lookact.algorithms.control_ppo import open_optimizer
from lookact.models.world_model.explorer import Explorer
from lookact.recipes.world_duel.config import PRESETS, World
from lookact.recipes.world_duel.data import make_worlds
from lookact.recipes.world_duel.model import open_world
from lookact.recipes.world_duel.student import curiosity_of, explore, learn_to_explore, noise_share
from lookact.recipes.world_duel.update import remember_all, scenes, to_film
from lookact.rewards.intrinsic import Units
from lookact.training.optim import NonFiniteGuard

CONFIG = replace(PRESETS["debug"], world=World(env="hidden", rows=3, steps_per_episode=7))


def make(cfg=CONFIG):
    world = open_world(cfg)
    world.vq.codebooks.normal_(generator=torch.Generator().manual_seed(0))
    return world, Explorer(world, stride=cfg.model.stride)


@pytest.mark.parametrize("stride", [1, 2])
def test_step_by_step_an_explorer_sees_what_a_whole_sequence_shows(stride):
    cfg = replace(CONFIG, model=replace(CONFIG.model, stride=stride))
    world, explorer = make(cfg)
    worlds = make_worlds(cfg.world)
    found = explore(explorer, worlds, cfg, "train", 1)
    assert found.sequences.wrist.shape[:2] == (3, 8)
    film = to_film(world, found.sequences)
    whole, _ = scenes(world, film, torch.arange(7), remember_all(world, film)[:, :-1], stride=stride)
    inputs = found.rollout.inputs
    for t in range(7):
        # what the explorer looked back on was clamped as the world was told it
        own = replace(inputs, **{n: getattr(inputs, n)[t] for n in ("state", "text_ids", "history", "actions")})
        own = replace(own, images={"wrist": inputs.images["wrist"][t]}, carry=inputs.carry[t][None])
        scene, _ = explorer.look(own)
        rows = torch.arange(3) * 7 + t
        for name in ("frames", "past", "state", "text", "remembered"):
            torch.testing.assert_close(getattr(scene, name), getattr(whole, name)[rows])


def test_exploring_is_the_same_each_time_and_differs_by_number():
    _, explorer = make()
    worlds = make_worlds(CONFIG.world)
    one, again, other = (explore(explorer, worlds, CONFIG, "train", n).sequences for n in (1, 1, 2))
    assert one.actions.equal(again.actions)
    assert one.wrist.equal(again.wrist)
    assert not one.actions.equal(other.actions)
    assert one.actions.abs().max() <= 1.0


def test_greedy_exploring_has_no_noise():
    _, explorer = make()
    found = explore(explorer, make_worlds(CONFIG.world), CONFIG, "train", 1, greedy=True)
    # a fresh explorer's mean is near zero
    assert found.sequences.actions.abs().max() < 0.2


@pytest.mark.parametrize("kind", ["entropy", "surprise", "disagreement"])
def test_every_step_is_paid(kind):
    world, explorer = make()
    found = explore(explorer, make_worlds(CONFIG.world), CONFIG, "train", 1).sequences
    parts = curiosity_of(world, found, stride=1, kind=kind)
    assert parts.uncertainty.shape == parts.divergence.shape == (3, 7)
    assert (parts.uncertainty > 0).all()
    assert ((parts.divergence > 0) & (parts.divergence <= 1)).all()


def test_learning_moves_the_explorer_and_not_the_world_model():
    world, explorer = make()[0], make()[1]
    before = {name: p.clone() for name, p in world.named_parameters()}
    own = {name: p.clone() for name, p in explorer.world.named_parameters()}
    found = explore(explorer, make_worlds(CONFIG.world), CONFIG, "train", 1)
    learner = {"optimizer": open_optimizer(explorer, lr=1e-3, critic_lr=1e-3), "guard": NonFiniteGuard()}
    metrics = learn_to_explore(explorer, world, found, Units(), learner, CONFIG, 1)
    assert metrics["optim/steps"] >= 1
    assert metrics["reward/total"] == pytest.approx(
        sum(metrics[f"reward/{part}"] for part in ("memory", "uncertainty", "novelty")), abs=1e-5
    )
    assert all(p.equal(before[name]) for name, p in world.named_parameters())
    moved = {name for name, p in explorer.world.named_parameters() if not p.equal(own[name])}
    assert any(name.startswith("actions.") for name in moved)


def test_the_share_of_the_reward_that_noise_takes():
    found = explore(make()[1], make_worlds(CONFIG.world), CONFIG, "train", 1).sequences
    state = torch.zeros(3, 8, 11)
    state[0, 1:, 9] = 1.0
    noisy = replace(found, state=state)
    paid = torch.ones(3, 7)
    paid[0] = 2.0
    cfg = replace(CONFIG, world=replace(CONFIG.world, env="noisy_tv"))
    shares = noise_share(paid, noisy, cfg)
    assert shares["rollout/noise_rate"] == pytest.approx(1 / 3)
    assert shares["reward/noise_share"] == pytest.approx(0.5)
    assert noise_share(paid, noisy, CONFIG) == {}
