from dataclasses import replace

import pytest
import torch

from lookact.algorithms.world_model import encode_sequences, inputs_at, run_memory
from lookact.models.world_model.explorer import Explorer
from lookact.recipes.world_duel.config import PRESETS, EnvConfig
from lookact.recipes.world_duel.data import explore, make_envs, open_model, open_state
from lookact.recipes.world_duel.train import reward_terms, student_step

CONFIG = replace(PRESETS["debug"], env=EnvConfig(name="memory_curtain", num_envs=3, steps_per_episode=7))


def make(cfg=CONFIG):
    world_model = open_model(cfg)
    world_model.vq.codebooks.normal_(generator=torch.Generator().manual_seed(0))
    return world_model, Explorer(world_model, stride=cfg.model.stride)


@pytest.mark.parametrize("stride", [1, 2])
def test_step_by_step_an_explorer_sees_what_a_whole_sequence_shows(stride):
    cfg = replace(CONFIG, model=replace(CONFIG.model, stride=stride))
    world_model, explorer = make(cfg)
    envs = make_envs(cfg.env)
    rollout, found = explore(explorer, envs, cfg.env, cfg.seed, "train", 1)
    assert found.wrist.shape[:2] == (3, 8)
    encoded = encode_sequences(world_model, found)
    whole, _ = inputs_at(world_model, encoded, torch.arange(7), run_memory(world_model, encoded)[:, :-1], stride=stride)
    inputs = rollout.inputs
    for t in range(7):
        # the action history is clamped as the environment's actions are
        own = replace(inputs, **{n: getattr(inputs, n)[t] for n in ("state", "text_ids", "history", "actions")})
        own = replace(own, images={"wrist": inputs.images["wrist"][t]}, carry=inputs.carry[t][None])
        inputs_now, _ = explorer.observe(own)
        rows = torch.arange(3) * 7 + t
        for name in ("frames", "past", "state", "text", "memory"):
            torch.testing.assert_close(getattr(inputs_now, name), getattr(whole, name)[rows])


def test_exploring_is_the_same_each_time_and_differs_by_number():
    _, explorer = make()
    envs = make_envs(CONFIG.env)
    one, again, other = (explore(explorer, envs, CONFIG.env, 0, "train", n)[1] for n in (1, 1, 2))
    assert one.actions.equal(again.actions)
    assert one.wrist.equal(again.wrist)
    assert not one.actions.equal(other.actions)
    assert one.actions.abs().max() <= 1.0


@pytest.mark.parametrize("kind", ["entropy", "surprise", "disagreement"])
def test_every_step_is_paid(kind):
    world_model, explorer = make()
    _, found = explore(explorer, make_envs(CONFIG.env), CONFIG.env, 0, "train", 1)
    parts = reward_terms(world_model, found, replace(CONFIG, rewards=replace(CONFIG.rewards, uncertainty=kind)))
    assert parts.uncertainty.shape == parts.divergence.shape == (3, 7)
    assert (parts.uncertainty > 0).all()
    assert ((parts.divergence > 0) & (parts.divergence <= 1)).all()


def test_a_student_step_moves_the_explorer_and_not_the_world_model():
    state = open_state(CONFIG, None)
    state.world_model.vq.codebooks.normal_(generator=torch.Generator().manual_seed(0))
    state.explorer.model.load_state_dict(state.world_model.state_dict())
    before = {name: p.clone() for name, p in state.world_model.named_parameters()}
    metrics, _ = student_step(state, CONFIG, 1)
    assert metrics["optim/steps"] >= 1
    assert metrics["optim/grad_norm"] > 0
    assert metrics["reward/total"] == pytest.approx(
        sum(metrics[f"reward/{part}"] for part in ("memory", "uncertainty", "novelty")), abs=1e-5
    )
    assert all(p.equal(before[name]) for name, p in state.world_model.named_parameters())
    moved = {name for name, p in state.explorer.model.named_parameters() if not p.equal(before[name])}
    assert any(name.startswith("action_head.") for name in moved)
    assert any(name.startswith("critic.") for name in moved)
