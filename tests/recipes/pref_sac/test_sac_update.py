import copy
from dataclasses import replace

import numpy as np
import pytest
import torch
from torch.nn import functional
from torch.nn.utils import parameters_to_vector

from lookact.data.replay import Replay, Transitions
from lookact.envs.control.classic import Classic
from lookact.models.sac import SAC, SACLearner
from lookact.recipes.pref_sac.config import SACConfig
from lookact.recipes.pref_sac.train import sac_update
from lookact.training.checkpoint import load_checkpoint, save_checkpoint

LEARN = SACConfig()


def make(seed=0, *, state_size=3, action_size=2, lr=LEARN.lr):
    sac = SAC(state_size, action_size, hidden=(16, 16), generator=torch.Generator().manual_seed(seed))
    return SACLearner(sac, lr=lr)


def update(learner, batch, generator, **learn):
    return sac_update(learner, batch, generator, replace(LEARN, **learn))


def batch_of(rows=32, seed=0):
    generator = torch.Generator().manual_seed(seed)
    return Transitions(
        states=torch.randn(rows, 3, generator=generator).clamp(-1, 1),
        actions=torch.randn(rows, 2, generator=generator).clamp(-1, 1),
        next_states=torch.randn(rows, 3, generator=generator),
        rewards=torch.randn(rows, generator=generator),
        terminated=torch.arange(rows) % 4 == 0,
    )


def weights_of(module):
    return parameters_to_vector(module.parameters()).detach().clone()


def gradient_of(module):
    return parameters_to_vector([parameter.grad for parameter in module.parameters()])


@pytest.mark.slow
def test_critics_learn_the_reward_where_every_step_terminates():
    learner, generator = make(lr=3e-3), torch.Generator().manual_seed(1)
    batch = replace(batch_of(), terminated=torch.ones(32, dtype=torch.bool))
    for _ in range(400):
        metrics = update(learner, batch, generator)
    assert (learner.sac.critics(batch.states, batch.actions) - batch.rewards).abs().mean() < 0.1
    assert metrics["loss/critic"] < 0.05


def test_the_actor_climbs_critics_that_stay_as_they_are():
    learner, generator, batch = make(lr=1e-3), torch.Generator().manual_seed(1), batch_of(64)
    learner.critic_optimizer.param_groups[0]["lr"] = 0.0
    with torch.no_grad():
        # hardly any bonus for entropy
        learner.sac.log_alpha.fill_(-20.0)
    before = weights_of(learner.sac.critics)

    def value():
        actions = learner.sac.actor.act(batch.states)
        return learner.sac.critics(batch.states, actions).amin(dim=0).mean().item()

    start = value()
    for _ in range(50):
        update(learner, batch, generator)
    assert value() > start
    assert torch.equal(weights_of(learner.sac.critics), before)


def test_a_step_follows_the_gradients_of_the_papers_losses():
    learner, batch, gamma = make(), batch_of(), 0.9
    sac = copy.deepcopy(learner.sac)
    noise, next_noise = torch.randn(2, 32, 2, generator=torch.Generator().manual_seed(3))
    alpha = sac.log_alpha.exp().item()
    with torch.no_grad():
        actions, logprobs = squashed_normal(sac.actor, batch.next_states, next_noise)
        next_q = torch.minimum(*sac.target_critics(batch.next_states, actions))
        target = batch.rewards + gamma * (1.0 - batch.terminated.float()) * (next_q - alpha * logprobs)
    first, second = sac.critics(batch.states, batch.actions)
    (0.5 * functional.mse_loss(first, target) + 0.5 * functional.mse_loss(second, target)).backward()
    update(learner, batch, torch.Generator().manual_seed(3), gamma=gamma)
    # and so the actor's step left none with the critics
    assert torch.allclose(gradient_of(learner.sac.critics), gradient_of(sac.critics), atol=1e-6)

    # the actor is taught by critics that have learned already
    sac.critics.load_state_dict(learner.sac.critics.state_dict())
    actions, logprobs = squashed_normal(sac.actor, batch.states, noise)
    (alpha * logprobs - torch.minimum(*sac.critics(batch.states, actions))).mean().backward()
    assert torch.allclose(gradient_of(learner.sac.actor), gradient_of(sac.actor), atol=1e-6)
    (-sac.log_alpha.exp() * (logprobs.detach() + LEARN.target_entropy * 2)).mean().backward()
    assert torch.allclose(learner.sac.log_alpha.grad, sac.log_alpha.grad, atol=1e-6)


def squashed_normal(actor, states, noise):
    """Actions and log-densities by torch's own distributions."""
    mean, log_std = actor(states)
    raw = mean + log_std.exp() * noise
    normal = torch.distributions.Normal(mean, log_std.exp())
    return raw.tanh(), (normal.log_prob(raw) - torch.log(1.0 - raw.tanh().square())).sum(dim=-1)


def test_a_step_takes_place_on_the_device_of_the_networks():
    learner, batch = make(), batch_of()
    learner.sac.to("meta")
    learner = SACLearner(learner.sac, lr=1e-3)
    # a fused Adam has nothing to do where there are no numbers
    learner.critic_optimizer, learner.actor_optimizer = (
        torch.optim.SGD(part.parameters()) for part in (learner.sac.critics, learner.sac.actor)
    )
    moved = Transitions(**{name: tensor.to("meta") for name, tensor in vars(batch).items()})
    # whatever lay on the CPU would not mix with the others
    metrics = update(learner, moved, torch.Generator().manual_seed(0))
    assert {value.device.type for value in metrics.values()} == {"meta"}


def test_the_temperature_rises_while_the_policy_is_too_certain():
    for target, rises in ((5.0, True), (-20.0, False)):
        learner = make()
        for _ in range(20):
            update(learner, batch_of(), torch.Generator().manual_seed(2), target_entropy=target / 2)
        assert (learner.sac.log_alpha.exp().item() > 0.1) == rises


def test_targets_follow_at_their_pace():
    learner, pace = make(), {"tau": 0.25, "target_update_interval": 2}
    old = weights_of(learner.sac.target_critics)
    update(learner, batch_of(), torch.Generator().manual_seed(0), **pace)
    assert torch.equal(weights_of(learner.sac.target_critics), old)
    update(learner, batch_of(), torch.Generator().manual_seed(0), **pace)
    expected = torch.lerp(old, weights_of(learner.sac.critics), 0.25)
    assert torch.allclose(weights_of(learner.sac.target_critics), expected)


def test_a_fitted_normaliser_makes_the_unit_of_states_irrelevant():
    batch, learners = batch_of(), [make(), make()]
    moved = replace(
        batch,
        states=batch.states * 100.0 + 7.0,
        next_states=batch.next_states * 100.0 + 7.0,
    )
    for learner, given in zip(learners, (batch, moved)):
        learner.sac.standardise.fit(given.states)
        for step in range(3):
            update(learner, given, torch.Generator().manual_seed(step))
    one, other = (learner.sac for learner in learners)
    assert torch.allclose(weights_of(one.critics), weights_of(other.critics), atol=1e-4)
    assert torch.allclose(weights_of(one.actor), weights_of(other.actor), atol=1e-4)


def test_a_truncated_step_bootstraps_and_a_terminated_one_does_not():
    learner, batch = make(), batch_of()
    with torch.no_grad():
        learner.sac.target_critics.network.biases[-1].fill_(1000.0)
    metrics = update(
        learner,
        replace(batch, terminated=torch.ones(32, dtype=torch.bool)),
        torch.Generator().manual_seed(0),
        gamma=0.9,
    )
    assert metrics["policy/td_error"] < 10
    metrics = update(
        learner,
        replace(batch, terminated=torch.zeros(32, dtype=torch.bool)),
        torch.Generator().manual_seed(0),
        gamma=0.9,
    )
    assert metrics["policy/td_error"] > 800


def test_a_reset_begins_critics_and_their_optimiser_anew():
    learner, generator = make(), torch.Generator().manual_seed(3)
    update(learner, batch_of(), generator)
    learner.reset_critics(generator)
    assert learner.state_dict()["critic"]["state"] == {}
    assert torch.equal(weights_of(learner.sac.critics), weights_of(learner.sac.target_critics))
    update(learner, batch_of(), generator)


def run_steps(learner, replay, env, generator, steps, seed):
    """Act and learn for `steps`, from the start of the episode with this seed."""
    state, _ = env.reset(seed=seed)
    for _ in range(steps):
        noise = torch.randn(1, 1, generator=generator)
        action = learner.sac.actor.act(torch.from_numpy(state)[None], noise)[0].numpy()
        after, reward, _, truncated, _ = env.step(action)
        replay.add(state, action, reward, after, terminated=False, truncated=truncated, frame=env.render())
        state = env.reset(seed=seed + 1)[0] if truncated else after
        update(learner, replay.sample(16, generator), generator)


def fresh():
    learner = make(state_size=3, action_size=1)
    replay = Replay(capacity=25, state_size=3, action_size=1, frame_shape=(8, 8, 3))
    return learner, replay, Classic("Pendulum-v1", horizon=20, image_size=8), torch.Generator().manual_seed(4)


def test_a_killed_and_resumed_agent_is_bit_for_bit_the_unbroken_one(tmp_path):
    learner, replay, env, generator = fresh()
    run_steps(learner, replay, env, generator, 40, seed=0)
    weights = {"sac": learner.sac, "replay": replay.write}
    state = {"learner": learner, "generator": generator.get_state()}
    path = save_checkpoint(tmp_path, 1, weights=weights, state=state, metrics={}, config={})
    run_steps(learner, replay, env, generator, 20, seed=7)

    again, ring, env, stream = fresh()
    kept = load_checkpoint(path, weights={"sac": again.sac}, state={"learner": again, "generator": None})
    ring.read(kept.weights("replay"))
    stream.set_state(kept.state["generator"])
    run_steps(again, ring, env, stream, 20, seed=7)
    for name, tensor in learner.sac.state_dict().items():
        assert torch.equal(tensor, again.sac.state_dict()[name]), name
    ours, theirs = replay.state_dict(), ring.state_dict()
    assert all(torch.equal(ours[name], theirs[name]) for name in ours)
    assert torch.equal(generator.get_state(), stream.get_state())
    assert again.steps == learner.steps == 60


@pytest.mark.slow
def test_sac_learns_to_swing_the_pendulum_up():
    generator, env = torch.Generator().manual_seed(0), Classic("Pendulum-v1", action_repeat=2)
    learner = SACLearner(SAC(3, 1, hidden=(128, 128), generator=generator), lr=1e-3)
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
                update(learner, replay.sample(128, generator), generator, tau=0.01)
        returns.append(total)
    # 100 decisions; chance scores about -600
    assert np.mean(returns[-4:]) > 0.5 * np.mean(returns[:5])
