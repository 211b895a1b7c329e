from dataclasses import replace

import pytest
import torch

from lookact.algorithms.control_ppo import compute_advantages, make_batch
from lookact.algorithms.world_model import encode_sequences, inputs_at, run_memory
from lookact.models.actor_critic import score
from lookact.models.world_model.explorer import Explorer
from lookact.recipes.world_duel.config import PRESETS, EnvConfig
from lookact.recipes.world_duel.data import explore, open_state, reward_terms
from lookact.recipes.world_duel.f1.environments import make_envs
from lookact.recipes.world_duel.f1.models import open_model
from lookact.recipes.world_duel.train import student_step

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
    rollout, found = explore(explorer, envs, cfg, "train", 1)
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
    one, again, other = (explore(explorer, envs, CONFIG, "train", n)[1] for n in (1, 1, 2))
    assert one.actions.equal(again.actions)
    assert one.wrist.equal(again.wrist)
    assert not one.actions.equal(other.actions)
    assert one.actions.abs().max() <= 1.0


@pytest.mark.parametrize("kind", ["entropy", "surprise", "disagreement"])
def test_every_step_is_paid(kind):
    cfg = replace(CONFIG, rewards=replace(CONFIG.rewards, uncertainty=kind))
    state = open_state(cfg, None)
    state.world_model.vq.codebooks.normal_(generator=torch.Generator().manual_seed(0))
    _, found = explore(state.explorer, state.envs, cfg, "train", 1)
    parts = reward_terms(state, found, cfg)
    assert parts.uncertainty.shape == parts.divergence.shape == (3, 7)
    assert (parts.uncertainty > 0).all()
    assert ((parts.divergence > 0) & (parts.divergence <= 1)).all()


@pytest.mark.parametrize("chunk", [1, 2])
def test_an_explorer_by_flow_matching_is_scored_as_it_acted(chunk):
    cfg = replace(CONFIG, model=replace(CONFIG.model, action_head="flow", action_chunk=chunk))
    state = open_state(cfg, None)
    explorer = state.explorer
    state.world_model.vq.codebooks.normal_(generator=torch.Generator().manual_seed(0))
    explorer.model.load_state_dict(state.world_model.state_dict())
    with torch.no_grad():
        # a fresh velocity is nearly zero
        explorer.model.action_head.output.weight.mul_(50)
    rollout, sequences = explore(explorer, state.envs, cfg, "x", 0)
    batch = make_batch(rollout, rollout.rewards, rollout.rewards)
    size = explorer.spec.action_size
    assert batch.inputs.actions.shape[1] == explorer.spec.sample_size == 11 * chunk * size
    assert sequences.actions.shape[-1] == size
    chains = batch.inputs.actions.view(-1, 11, chunk, size)
    torch.testing.assert_close(explorer.executed(batch.inputs.actions), chains[:, 10, 0])
    scores = score(explorer(batch.inputs), batch.inputs.actions)
    torch.testing.assert_close(scores.logprobs, batch.old_logprobs, rtol=1e-4, atol=1e-2)
    torch.testing.assert_close(scores.values, batch.old_values, rtol=1e-4, atol=1e-4)
    before = {name: x.clone() for name, x in explorer.model.action_head.named_parameters()}
    metrics, _ = student_step(state, cfg, 1)
    assert metrics["policy/approx_kl"] < 1.0
    moved = {name for name, x in explorer.model.action_head.named_parameters() if not torch.equal(x, before[name])}
    assert {"queries", "input.weight", "output.weight", "log_std"} <= moved
    state.envs.close()


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


def test_the_advantage_of_the_last_step_is_bootstrapped_with_the_value_of_what_follows_it():
    _, explorer = make()
    rollout, found = explore(explorer, make_envs(CONFIG.env), CONFIG, "train", 1)
    rewards = torch.arange(21.0).reshape(7, 3)
    advantages = compute_advantages(rollout, rewards, gamma=0.5, lam=0.0)
    assert advantages.shape == (7, 3) == rollout.mask.shape == found.mask.T.shape
    # the observation after the last step, by the policy itself
    encoded = encode_sequences(explorer.model, found)
    memory = run_memory(explorer.model, encoded)[:, -1:]
    padded = replace(encoded, actions=torch.nn.functional.pad(encoded.actions, (0, 0, 0, 1)))
    seen, _ = inputs_at(explorer.model, padded, torch.tensor([7]), memory, stride=1)
    hidden = explorer.model.action_hidden(seen, explorer.model.action_head.query_tokens(3))
    following = explorer.value(hidden.mean(dim=1)).detach()
    torch.testing.assert_close(advantages[6], rewards[6] + 0.5 * following - rollout.values[6])
