import copy
from dataclasses import replace

import numpy as np
import pytest
import torch

from lookact.data.replay import Replay, Transitions
from lookact.envs.classic import Classic
from lookact.models.sac import SAC
from lookact.ops.gaussian import squashed_logprob
from lookact.ops.sac_loss import actor_loss, critic_loss, critic_target, temperature_loss
from lookact.train.checkpoint import load_checkpoint, save_checkpoint
from lookact.train.sac import SACLearner, SACSpec


def make(seed=0, *, state_size=3, action_size=2, **spec):
    sac = SAC(state_size, action_size, hidden=(16, 16), generator=torch.Generator().manual_seed(seed))
    return SACLearner(sac, SACSpec(**spec))


def batch_of(rows=32, seed=0):
    generator = torch.Generator().manual_seed(seed)
    inputs = torch.randn(rows, 5, generator=generator).clamp(-1, 1)
    return Transitions(
        inputs=inputs,
        states=inputs[:, :3],
        next_states=torch.randn(rows, 3, generator=generator),
        rewards=torch.randn(rows, generator=generator),
        terminated=torch.arange(rows) % 4 == 0,
    )


def q_of(learner, batch):
    return learner.sac.critics(batch.inputs)[..., 0]


@pytest.mark.slow
def test_critics_learn_the_reward_where_every_step_terminates():
    learner, generator = make(lr=3e-3), torch.Generator().manual_seed(1)
    batch = replace(batch_of(), terminated=torch.ones(32, dtype=torch.bool))
    for _ in range(400):
        metrics = learner.update(batch, generator)
    assert (q_of(learner, batch) - batch.rewards).abs().mean() < 0.1
    assert metrics["loss/critic"] < 0.05


def test_the_actor_climbs_the_critics_and_does_not_teach_them():
    learner, generator = make(lr=1e-3), torch.Generator().manual_seed(1)
    states = batch_of(64).states
    before = [parameter.clone() for parameter in learner.sac.critics.parameters()]

    def value():
        actions = learner.sac.actor.act(states)
        return learner.sac.critics(torch.cat([states, actions], dim=1)).amin(dim=0).mean().item()

    start = value()
    with torch.no_grad():
        for _ in range(200):
            drawn = learner.sac.actor.draw(states, torch.randn(64, 2, generator=generator))
            learner._learn_actor(states, drawn, 0.0)
    assert value() > start
    assert all(torch.equal(old, new) for old, new in zip(before, learner.sac.critics.parameters()))
    assert all(parameter.grad is None for parameter in learner.sac.critics.parameters())


def test_gradients_are_those_of_the_losses():
    learner, batch, gamma = make(gamma=0.9), batch_of(), 0.9
    sac = copy.deepcopy(learner.sac)
    noise = torch.randn(64, 2, generator=torch.Generator().manual_seed(3))
    drawn = sac.actor.draw(torch.cat([batch.next_states, batch.states]), noise)
    actions, logprobs = torch.from_numpy(drawn.actions[:32]), torch.from_numpy(drawn.logprobs[:32])
    alpha = sac.log_alpha.detach().exp()
    next_q = sac.targets(torch.cat([batch.next_states, actions], dim=1)).amin(dim=0)[:, 0]
    target = critic_target(batch.rewards, batch.terminated, next_q, logprobs, gamma=gamma, alpha=alpha)
    critic_loss(sac.critics(batch.inputs)[..., 0], target)[0].backward()
    learner.update(batch, torch.Generator().manual_seed(3))
    assert torch.allclose(learner.sac.critics.flat.grad, sac.critics.flat.grad, atol=1e-6)

    # the actor is taught by critics that have learned already
    sac.critics.load_state_dict(learner.sac.critics.state_dict())
    mean, log_std = sac.actor(batch.states)
    raw = mean + log_std.exp() * noise[32:]
    logprobs = squashed_logprob(raw, noise[32:], log_std)
    q = sac.critics(torch.cat([batch.states, raw.tanh()], dim=1)).amin(dim=0)[:, 0]
    loss = actor_loss(logprobs, q, alpha=alpha)[0]
    (loss + temperature_loss(sac.log_alpha, logprobs, target_entropy=learner.target_entropy)[0]).backward()
    assert torch.allclose(learner.sac.actor.network.flat.grad, sac.actor.network.flat.grad, atol=1e-6)
    assert torch.allclose(learner.sac.log_alpha.grad, sac.log_alpha.grad, atol=1e-6)


def test_the_temperature_rises_while_the_policy_is_too_certain():
    for target, rises in ((5.0, True), (-20.0, False)):
        learner = make(target_entropy=target)
        for _ in range(20):
            learner.update(batch_of(), torch.Generator().manual_seed(2))
        assert (learner.sac.log_alpha.exp().item() > 0.1) == rises


def test_targets_follow_at_their_pace():
    learner = make(tau=0.25, target_every=2)
    old = learner.sac.targets.flat.clone()
    learner.update(batch_of(), torch.Generator().manual_seed(0))
    assert torch.equal(learner.sac.targets.flat, old)
    learner.update(batch_of(), torch.Generator().manual_seed(0))
    expected = torch.lerp(old, learner.sac.critics.flat, 0.25)
    assert torch.allclose(learner.sac.targets.flat, expected)


def test_a_learner_that_has_looked_over_states_does_not_care_for_their_unit():
    batch, learners = batch_of(), [make(), make()]
    moved = replace(
        batch,
        inputs=torch.cat([batch.states * 100.0 + 7.0, batch.inputs[:, 3:]], dim=1),
        states=batch.states * 100.0 + 7.0,
        next_states=batch.next_states * 100.0 + 7.0,
    )
    for learner, given in zip(learners, (batch, moved)):
        learner.sac.standardise.look_over(given.states)
        for step in range(3):
            learner.update(given, torch.Generator().manual_seed(step))
    assert torch.allclose(learners[0].sac.critics.flat, learners[1].sac.critics.flat, atol=1e-4)
    assert torch.allclose(learners[0].sac.actor.network.flat, learners[1].sac.actor.network.flat, atol=1e-4)


def test_a_truncated_step_bootstraps_and_a_terminated_one_does_not():
    learner, batch = make(gamma=0.9), batch_of()
    with torch.no_grad():
        learner.sac.targets.layers[-1][1].fill_(1000.0)
    metrics = learner.update(
        replace(batch, terminated=torch.ones(32, dtype=torch.bool)), torch.Generator().manual_seed(0)
    )
    assert metrics["policy/td_error"] < 10
    metrics = learner.update(
        replace(batch, terminated=torch.zeros(32, dtype=torch.bool)), torch.Generator().manual_seed(0)
    )
    assert metrics["policy/td_error"] > 800


def test_a_reset_begins_critics_and_their_optimiser_anew():
    learner, generator = make(), torch.Generator().manual_seed(3)
    learner.update(batch_of(), generator)
    learner.reset_critics(generator)
    assert learner.state_dict()["critic"]["state"] == {}
    assert torch.equal(learner.sac.critics.flat, learner.sac.targets.flat)
    learner.update(batch_of(), generator)


def play(learner, replay, env, generator, steps, seed):
    """Act and learn for `steps`, from the start of the episode with this seed."""
    state, _ = env.reset(seed=seed)
    for _ in range(steps):
        noise = torch.randn(1, 1, generator=generator)
        action = learner.sac.actor.act(torch.from_numpy(state)[None], noise)[0].numpy()
        after, reward, _, truncated, _ = env.step(action)
        replay.add(state, action, reward, after, terminated=False, truncated=truncated, frame=env.render())
        state = env.reset(seed=seed + 1)[0] if truncated else after
        learner.update(replay.sample(16, generator), generator)


def fresh():
    learner = make(state_size=3, action_size=1)
    replay = Replay(capacity=25, state_size=3, action_size=1, frame_shape=(8, 8, 3))
    return learner, replay, Classic("Pendulum-v1", horizon=20, image_size=8), torch.Generator().manual_seed(4)


def test_a_killed_and_resumed_agent_is_bit_for_bit_the_unbroken_one(tmp_path):
    learner, replay, env, generator = fresh()
    play(learner, replay, env, generator, 40, seed=0)
    weights = {"sac": learner.sac, "replay": replay.write}
    state = {"learner": learner, "generator": generator.get_state()}
    path = save_checkpoint(tmp_path, 1, weights=weights, state=state, metrics={}, config={})
    play(learner, replay, env, generator, 20, seed=7)

    again, ring, world, stream = fresh()
    kept = load_checkpoint(path, weights={"sac": again.sac}, state={"learner": again, "generator": None})
    ring.read(kept.weights("replay"))
    stream.set_state(kept.state["generator"])
    play(again, ring, world, stream, 20, seed=7)
    for name, tensor in learner.sac.state_dict().items():
        assert torch.equal(tensor, again.sac.state_dict()[name]), name
    ours, theirs = replay.state_dict(), ring.state_dict()
    assert all(torch.equal(ours[name], theirs[name]) for name in ours)
    assert torch.equal(generator.get_state(), stream.get_state())
    assert again.steps == learner.steps == 60


@pytest.mark.slow
def test_sac_learns_to_swing_the_pendulum_up():
    generator, env = torch.Generator().manual_seed(0), Classic("Pendulum-v1", action_repeat=2)
    learner = SACLearner(SAC(3, 1, hidden=(128, 128), generator=generator), SACSpec(lr=1e-3, tau=0.01))
    replay, returns, rng = Replay(capacity=3000, state_size=3, action_size=1), [], np.random.default_rng(0)
    for episode in range(26):
        (state, _), total, truncated = env.reset(seed=episode), 0.0, False
        while not truncated:
            noise = torch.randn(1, 1, generator=generator)
            action = learner.sac.actor.act(torch.from_numpy(state)[None], noise)[0].numpy()
            action = rng.uniform(-1, 1, 1).astype(np.float32) if episode < 5 else action
            after, reward, _, truncated, _ = env.step(action)
            replay.add(state, action, reward, after, terminated=False, truncated=truncated)
            state, total = after, total + reward
            if episode >= 5:
                learner.update(replay.sample(128, generator), generator)
        returns.append(total)
    # 100 decisions; chance scores about -600
    assert np.mean(returns[-4:]) > 0.5 * np.mean(returns[:5])
