"""Imagined rollouts: what the policy sees in them, what their returns are, and what the heads learn from."""

import copy
from dataclasses import replace

import pytest
import torch
from safetensors.torch import load_file

from lookact.algorithms.control_ppo import collect_experience, make_batch
from lookact.algorithms.imagination import Imagination
from lookact.models.actor_critic import score
from lookact.recipes.world_duel import train as world_duel
from lookact.recipes.world_duel.config import PRESETS, EnvConfig, ImaginationConfig, ModelConfig
from lookact.recipes.world_duel.data import open_state
from lookact.recipes.world_duel.train import main, task_step

DEBUG = PRESETS["debug"]
CONFIG = replace(
    DEBUG,
    phase="task",
    env=EnvConfig(name="memory_curtain", image_size=16, num_envs=16, steps_per_episode=6),
    model=ModelConfig(width=16, layers=1, memory=16, ensemble_size=1),
    tokenizer=replace(DEBUG.tokenizer, scales=(1, 2)),
    task_phase=replace(
        DEBUG.task_phase, iterations=2, imagination=ImaginationConfig(horizon=4, starts=20, gradient_steps=5)
    ),
)


@pytest.fixture
def state():
    state = open_state(CONFIG, None)
    state.world_model.vq.codebooks.normal_(generator=torch.Generator().manual_seed(0))
    state.explorer.model.load_state_dict(state.world_model.state_dict())
    yield state
    state.envs.close()


def real(state, seed=0):
    return collect_experience(state.explorer, state.envs, steps=6, seed=seed)


def dream(state, horizon=4, **changes):
    how = {"horizon": horizon, "starts": 20, "gamma": 0.9, "lam": 0.5, "seed": 0} | changes
    return state.imagination.rollout(state.explorer, real(state), **how)


def test_imagined_steps_are_scored_as_they_were_taken(state):
    imagined, returns = dream(state)
    batch = make_batch(imagined, returns, returns)
    assert len(batch) == 80
    scores = score(state.explorer(batch.inputs), batch.inputs.actions)
    torch.testing.assert_close(scores.logprobs, batch.old_logprobs, rtol=1e-4, atol=1e-3)
    torch.testing.assert_close(scores.values, batch.old_values, rtol=1e-4, atol=1e-5)


def test_an_imagined_step_shows_the_world_models_next_frame_and_remembers_the_action(state):
    rollout, imagination, model = real(state), state.imagination, state.world_model
    inputs = imagination._starts(rollout, 12, 0)
    action = torch.rand(12, 8)
    observed, carry = imagination.observer.observe(inputs)
    after, reward, goes_on = imagination.step(inputs, action, carry)
    assert after.images["wrist"].equal(model.generate(observed, model.pad(action)))
    assert after.history[:, -1].equal(action)
    assert after.history[:, :-1].equal(inputs.history[:, 1:])
    # fresh heads: nothing changes, nothing is earned, and an end has the probability of their bias
    assert after.state.equal(inputs.state)
    assert reward.eq(0).all()
    assert goes_on.tolist() == pytest.approx([1 / (1 + torch.tensor(-3.0).exp().item())] * 12)


def test_returns_of_constant_rewards_and_ends_by_hand(state):
    with torch.no_grad():
        state.imagination.heads.output.bias[0] = 2.0
        # three to one: the episode goes on with probability 3/4
        state.imagination.heads.output.bias[1] = -torch.tensor(3.0).log()
    imagined, returns = dream(state)
    # a fresh critic says 0: what is left is the sum of 2·(γ·3/4·λ)^k
    shrink = 0.9 * 0.75 * 0.5
    wanted = [2.0 * sum(shrink**k for k in range(left)) for left in (4, 3, 2, 1)]
    assert returns[:, 0].tolist() == pytest.approx(wanted)
    # 1, 3/4 and 9/16 are at least a half, 27/64 is not
    assert imagined.mask[:, 0].tolist() == [True, True, True, False]


def test_heads_learn_rewards_ends_and_the_next_state(state):
    rollout = real(state)
    # every row is paid by what it does, and the episode's end is the sixth step's
    paid = replace(rollout, rewards=rollout.inputs.actions[..., 0].clamp(-1, 1).clone())
    first = state.imagination.learn(paid, steps=400, seed=0)
    again = state.imagination.learn(paid, steps=1, seed=1)
    # before it had learned anything its answer was 0: no better than the mean
    assert first["world/reward_explained"] < 0.1
    assert again["world/reward_explained"] > 0.8
    known = state.imagination.kept[0]
    assert len(known) == 96
    assert known.follows.sum() == 80
    with torch.no_grad():
        found = state.imagination.heads(known.features)
    change = (known.state[:, 0], found.state[:, 0])
    assert torch.corrcoef(torch.stack([part[known.follows] for part in change]))[0, 1] > 0.9


def test_what_follows_an_episodes_last_step_is_not_learned(state):
    rollout = real(state)
    known = state.imagination._transitions(rollout)
    follows = known.follows.view(6, 16)
    assert follows[:5].all()
    assert not follows[5].any()
    assert known.end.sum() == rollout.terminated.sum()
    # one step's change of state: the curtain's clock counts down by a sixth, in deviations
    clock = rollout.inputs.state[1:, :, 0] - rollout.inputs.state[:-1, :, 0]
    torch.testing.assert_close(known.state.view(6, 16, -1)[:5, :, 0], clock / state.world_model.state_std[0])


@pytest.mark.parametrize("real_steps", [True, False])
def test_a_task_step_learns_from_imagined_steps(state, real_steps):
    dreams = replace(CONFIG.task_phase.imagination, real_steps=real_steps)
    cfg = replace(CONFIG, task_phase=replace(CONFIG.task_phase, imagination=dreams, critic_warmup=1))
    frozen = {name: x.clone() for name, x in state.world_model.state_dict().items()}
    before = {name: x.clone() for name, x in state.explorer.model.named_parameters()}
    warm = task_step(state, cfg, 1)
    moved = {name for name, x in state.explorer.model.named_parameters() if not x.equal(before[name])}
    # the critic alone at first, and nothing is imagined yet
    assert {name.split(".")[0] for name in moved} == {"critic"}
    assert "world/imagined_return" not in warm
    metrics = task_step(state, cfg, 2)
    assert metrics["world/imagined_approx_kl"] != 0
    assert (metrics["policy/approx_kl"] != 0) == real_steps
    moved = {name for name, x in state.explorer.model.named_parameters() if not x.equal(before[name])}
    assert any(name.startswith("action_head") for name in moved)
    assert all(x.equal(frozen[name]) for name, x in state.world_model.state_dict().items())


@pytest.mark.slow
def test_a_run_killed_between_imagined_updates_ends_as_an_unbroken_one(train, tmp_path, monkeypatch):
    cfg = replace(CONFIG, evaluation=replace(CONFIG.evaluation, per_phase=2))
    train(main, cfg, "unbroken")

    def kill(*parts, work=world_duel.report_on):
        if parts[-1] == 4:
            raise KeyboardInterrupt
        return work(*parts)

    with monkeypatch.context() as patched:
        patched.setattr(world_duel, "report_on", kill)
        with pytest.raises(KeyboardInterrupt):
            train(main, cfg, "killed")
    assert (tmp_path / "killed/checkpoint-3").is_dir()
    train(main, cfg, "killed", resume=True)
    one, other = (
        load_file(tmp_path / f"{name}/checkpoint-4/student/model.safetensors") for name in ("killed", "unbroken")
    )
    assert all(one[key].equal(other[key]) for key in one)


def test_an_imagination_goes_on_from_its_saved_state(state):
    state.imagination.learn(real(state), steps=3, seed=0)
    other = Imagination(state.world_model, state.explorer, lr=1e-3, capacity=4, seed=5)
    other.load_state_dict(copy.deepcopy(state.imagination.state_dict()))
    rollout = real(state, seed=1)
    one, two = (x.learn(rollout, steps=3, seed=1) for x in (state.imagination, other))
    assert one == two
    assert all(x.equal(y) for x, y in zip(state.imagination.heads.parameters(), other.heads.parameters()))
