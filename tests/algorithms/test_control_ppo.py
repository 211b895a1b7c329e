from dataclasses import fields, replace
from functools import partial

import gymnasium
import pytest
import torch
from torch.distributions import Independent, Normal, kl_divergence
from torch.nn.functional import huber_loss

from lookact.algorithms.control_ppo import (
    Learner,
    StepBatch,
    accumulate_minibatch,
    compute_advantages,
    critic_metrics,
    make_batch,
    minibatches,
    open_optimizer,
)
from lookact.batch import ControlInputs
from lookact.envs.vector.vector_env import InlineVectorEnv
from lookact.models.actor_critic import FrozenPolicy
from lookact.ops.masked import whiten
from lookact.recipes.vla_ppo.train import ppo_loss, ppo_update
from lookact.rollout.vector_rollout import Rollout, collect_rollout
from lookact.training.distributed import rank, world_size
from lookact.training.optim import NonFiniteGuard
from lookact.training.settings import PPO
from state_policy import StatePolicy

QUICK = PPO(epochs=3, minibatch=16, entropy_coef=0.01)


def fresh():
    return StatePolicy(3, 1, seed=1)


def pendulum_rollout(rows=4, steps=16):
    """Real steps of four pendulums, one of which did not happen."""
    envs = InlineVectorEnv(lambda: gymnasium.make("Pendulum-v1", max_episode_steps=7), rows)
    noise = torch.randn(steps, rows, 1, generator=torch.Generator().manual_seed(3))
    rollout = collect_rollout(fresh(), envs, noise=noise)
    rollout.mask[5, 2] = False
    return rollout


def learn_from(policy, rollout, ppo, *, train_actor=True, seed=0, reference=None):
    learner = Learner(policy, open_optimizer(policy, lr=1e-2, critic_lr=3e-2), NonFiniteGuard(), None, None, reference)
    return ppo_update(learner, replace(rollout, rewards=rollout.rewards / 100), ppo, seed=seed, train_actor=train_actor)


def test_the_critic_has_a_rate_of_its_own_and_every_weight_learns_once():
    policy = fresh()
    groups = {group["name"]: group for group in open_optimizer(policy, lr=1e-3, critic_lr=5e-3).param_groups}
    assert {name: group["lr"] for name, group in groups.items()} == {"critic": 5e-3, "policy": 1e-3}
    held = [id(parameter) for group in groups.values() for parameter in group["params"]]
    assert sorted(held) == sorted(id(parameter) for parameter in policy.parameters())
    assert {id(parameter) for parameter in policy.critic.parameters()} == {id(p) for p in groups["critic"]["params"]}


def test_a_batch_leaves_out_what_did_not_happen_and_whitens_the_rest():
    rollout = pendulum_rollout()
    advantages = compute_advantages(rollout, rollout.rewards, gamma=0.99, lam=0.95)
    batch = make_batch(rollout, whiten(advantages, rollout.mask), advantages + rollout.values)
    assert len(batch) == 63
    assert 5 * 4 + 2 not in batch.numbers.tolist()
    assert batch.advantages.mean().item() == pytest.approx(0.0, abs=1e-5)
    assert batch.advantages.std(correction=0).item() == pytest.approx(1.0, abs=1e-4)
    targets = (advantages + rollout.values).flatten()[batch.numbers]
    torch.testing.assert_close(batch.returns[:, 0], targets)
    metrics = critic_metrics(rollout, advantages + rollout.values)
    assert metrics["policy/return"] == pytest.approx(targets.mean().item(), rel=1e-5)


def test_an_epoch_is_every_step_once_in_minibatches_that_are_views():
    rollout = pendulum_rollout()
    batch = make_batch(rollout, rollout.rewards, rollout.rewards + rollout.values)
    parts = list(minibatches(batch, epochs=1, size=16, seed=4))
    assert [len(part) for part in parts].count(16) == 3
    numbers = torch.cat([part.numbers for part in parts]).tolist()
    assert sorted(numbers) == batch.numbers.tolist() != numbers
    assert len({part.returns.untyped_storage().data_ptr() for part in parts}) == 1
    again = torch.cat([part.numbers for part in minibatches(batch, epochs=1, size=16, seed=4)]).tolist()
    other = torch.cat([part.numbers for part in minibatches(batch, epochs=1, size=16, seed=5)]).tolist()
    assert numbers == again != other


@pytest.mark.parametrize("kind", ["huber", "clipped"])
def test_the_objective_is_the_papers_sum(kind):
    rollout, policy = pendulum_rollout(), StatePolicy(3, 1, std=0.8, seed=2)
    advantages, returns = whiten(rollout.rewards, rollout.mask), rollout.rewards + rollout.values
    batch = make_batch(rollout, advantages, returns, reference=FrozenPolicy(fresh()))
    ppo = PPO(clip=0.2, clip_high=0.3, value_loss=kind, value_clip=0.5, value_coef=0.7, entropy_coef=0.01, kl_coef=0.3)
    loss, metrics = ppo_loss(policy, batch, ppo, train_actor=True)
    output, reference = policy(batch.inputs), fresh()(batch.inputs)
    ours, theirs = (Independent(Normal(each.mean[:, 0], each.log_std.exp()), 1) for each in (output, reference))
    old_logprobs, old_values, advantages, returns = (
        x[:, 0] for x in (batch.old_logprobs, batch.old_values, batch.advantages, batch.returns)
    )
    ratio = (ours.log_prob(batch.inputs.actions) - old_logprobs).exp()
    surrogate = torch.minimum(ratio * advantages, ratio.clamp(0.8, 1.3) * advantages).mean()
    near = old_values + (output.values - old_values).clamp(-0.5, 0.5)
    squared = [(values - returns).square() for values in (output.values, near)]
    errors = {
        "huber": huber_loss(output.values, returns, delta=0.5),
        "clipped": 0.5 * torch.maximum(*squared).mean(),
    }
    away = kl_divergence(ours, theirs).mean()
    expected = -surrogate + 0.7 * errors[kind] - 0.01 * ours.entropy().mean() + 0.3 * away
    torch.testing.assert_close(loss, expected)
    gradients = (torch.autograd.grad(total, list(policy.parameters())) for total in (loss, expected))
    torch.testing.assert_close(*gradients)
    assert metrics["policy/kl"].item() == pytest.approx(away.item(), rel=1e-5)
    assert 0 < metrics["policy/clip_fraction"] < 1


@pytest.mark.parametrize("train_actor", [True, False])
def test_micro_batches_sum_to_the_minibatchs_gradient(train_actor):
    rollout, policy = pendulum_rollout(), StatePolicy(3, 1, std=0.8, seed=2)
    batch = make_batch(rollout, whiten(rollout.rewards, rollout.mask), rollout.rewards + rollout.values)
    ppo = PPO(entropy_coef=0.01)

    def gradient(size):
        policy.zero_grad()
        # 63 steps: micro-batches of 20 leave 3 over
        loss, metrics = accumulate_minibatch(
            policy, batch, partial(ppo_loss, policy, ppo=ppo, train_actor=train_actor), size
        )
        grads = {name: p.grad.clone() for name, p in policy.named_parameters() if p.grad is not None}
        return loss, metrics, grads

    whole, pieces = gradient(None), gradient(20)
    assert [len(part) for part in batch.micro_batches(20)] == [20, 20, 20, 3]
    assert pieces[0] == pytest.approx(whole[0], rel=1e-5)
    assert pieces[1] == pytest.approx(whole[1], rel=1e-4, abs=1e-6)
    assert whole[2].keys() == pieces[2].keys()
    for name, wanted in whole[2].items():
        torch.testing.assert_close(pieces[2][name], wanted, rtol=1e-4, atol=1e-6)
    assert max(grad.abs().max() for grad in whole[2].values()) > 1e-3


def test_an_update_in_micro_batches_is_the_same_update():
    rollout, whole, pieces = pendulum_rollout(), fresh(), fresh()
    first = learn_from(whole, rollout, QUICK)
    second = learn_from(pieces, rollout, replace(QUICK, micro_batch_size=5))
    assert second["optim/steps"] == first["optim/steps"] == 12
    assert second["loss/total"] == pytest.approx(first["loss/total"], rel=1e-3)
    for one, other in zip(whole.parameters(), pieces.parameters()):
        torch.testing.assert_close(other, one, rtol=1e-3, atol=1e-5)


def test_a_timeout_is_bootstrapped_or_counts_as_the_end():
    """One row: an episode of two steps that ran out of time, one whose worker failed, and one that goes on.

    gamma = lam = ½, so that an advantage is δ_t + ¼·A_{t+1} within an episode.
    """
    rollout = pendulum_rollout()
    rollout = replace(
        rollout,
        values=torch.tensor([[1.0], [2.0], [4.0], [9.0], [2.0]]),
        truncated=torch.tensor([[0], [1], [0], [1], [0]]).bool(),
        terminated=torch.zeros(5, 1).bool(),
        truncated_values=torch.tensor([[0.0], [6.0], [0.0], [8.0], [0.0]]),
        mask=torch.tensor([[1], [1], [1], [0], [1]]).bool(),
        last_values=torch.tensor([10.0]),
    )
    rewards = torch.tensor([[1.0], [3.0], [2.0], [0.0], [1.0]])
    found = {
        bootstrap: compute_advantages(rollout, rewards, gamma=0.5, lam=0.5, bootstrap_timeouts=bootstrap)[:, 0].tolist()
        for bootstrap in (True, False)
    }
    # worker failed: 2 + ½·8 − 4 = 2 either way; the last: 1 + ½·10 − 2 = 4
    # bootstrapped: 3 + ½·6 − 2 = 4, then 1 + ½·2 − 1 + ¼·4 = 2
    assert found[True] == [2.0, 4.0, 2.0, 0.0, 4.0]
    # the end: 3 − 2 = 1, then 1 + ½·2 − 1 + ¼·1 = 1.25
    assert found[False] == [1.25, 1.0, 2.0, 0.0, 4.0]


def test_only_the_critic_moves_in_its_own_time():
    policy, before = fresh(), fresh()
    metrics = learn_from(policy, pendulum_rollout(), QUICK, train_actor=False)
    moved = {n for (n, a), b in zip(policy.named_parameters(), before.parameters()) if not torch.equal(a, b)}
    assert moved == {name for name, _ in policy.named_parameters() if name.startswith("critic.")}
    assert "policy/approx_kl" not in metrics


def test_epochs_end_where_the_policy_has_gone_too_far():
    rollout = pendulum_rollout()
    far, near = fresh(), fresh()
    assert learn_from(far, rollout, QUICK)["optim/steps"] == 12
    stopped = learn_from(near, rollout, replace(QUICK, max_kl=1e-6))
    assert stopped["policy/stopped"] == 1.0
    assert 1 <= stopped["optim/steps"] < 12


def test_an_anchor_holds_the_policy_near_its_start():
    rollout = pendulum_rollout()
    moved = {}
    for coef in (0.0, 100.0):
        policy = fresh()
        reference = FrozenPolicy(policy)
        metrics = learn_from(policy, rollout, replace(QUICK, kl_coef=coef), reference=reference)
        gap = policy(flat(rollout)).mean - reference(flat(rollout)).mean
        moved[coef] = gap.abs().max().item()
        assert metrics["policy/kl"] >= 0
    assert moved[100.0] < 0.3 * moved[0.0]


def flat(rollout):
    inputs = rollout.inputs
    return ControlInputs(
        *(x.flatten(0, 1) for x in (inputs.actions, inputs.state)), {}, inputs.text_ids[0], inputs.history[0]
    )


def own_rows(rollout):
    """This process's rows of a rollout."""
    mine = slice(rank(), None, world_size())
    inputs = rollout.inputs
    tensors = {
        f.name: getattr(rollout, f.name)[:, mine]
        for f in fields(Rollout)
        if f.name not in ("inputs", "last_values", "episodes")
    }
    seen = ControlInputs(
        *(x[:, mine] for x in (inputs.actions, inputs.state)), {}, inputs.text_ids[:, mine], inputs.history[:, mine]
    )
    return replace(rollout, inputs=seen, last_values=rollout.last_values[mine], **tensors)


def learn_own_rows(rollout, ppo):
    torch.set_num_threads(1)
    policy = fresh()
    metrics = learn_from(policy, own_rows(rollout), ppo, reference=FrozenPolicy(policy))
    return {name: x.tolist() for name, x in policy.state_dict().items()}, metrics


def test_two_processes_learn_what_one_does(together):
    rollout, ppo = pendulum_rollout(), replace(QUICK, kl_coef=0.1, max_kl=0.5)
    weights, metrics = learn_own_rows(rollout, ppo)
    first, second = together(learn_own_rows, rollout, ppo)
    assert first[0] == second[0]
    for name, wanted in weights.items():
        torch.testing.assert_close(torch.tensor(first[0][name]), torch.tensor(wanted), rtol=1e-4, atol=1e-5)
    for name in ("loss/policy", "loss/value", "policy/kl", "policy/approx_kl", "optim/steps"):
        assert first[1][name] == pytest.approx(metrics[name], rel=1e-3, abs=1e-5)


def few_steps(count, total):
    """The first steps of a rollout that is longer, in this process."""
    inputs = ControlInputs(
        *(torch.zeros(count, width) for width in (1, 3)),
        {},
        torch.zeros(count, 0).long(),
        torch.zeros(count, 0, 1),
        torch.ones(1, count, 2),
    )
    return StepBatch(inputs, *(torch.zeros(count, 1) for _ in range(4)), torch.arange(count), total)


def test_a_minibatch_of_steps_that_did_not_happen_is_passed_over():
    # of ten steps in all, two did
    parts = list(minibatches(few_steps(2, 10), epochs=3, size=2, seed=0))
    assert [sum(part.numbers.tolist().count(n) for part in parts) for n in (0, 1)] == [3, 3]
    assert all(part.weight == 1.0 for part in parts)
    assert all(part.inputs.carry.shape == (1, len(part), 2) for part in parts)


def own_parts(counts):
    """Weights and sizes of this process's parts of two minibatches of ten steps."""
    batch = few_steps(counts[rank()], 10)
    return [(part.weight, len(part)) for part in minibatches(batch, epochs=1, size=5, seed=0)]


@pytest.mark.parametrize("counts", [(1, 9), (0, 4)])
def test_a_process_with_nothing_of_a_minibatch_goes_through_a_step_of_no_weight(together, counts):
    first, second = together(own_parts, counts)
    assert len(first) == len(second) == 2
    assert [a[0] + b[0] for a, b in zip(first, second)] == [1.0, 1.0]
    assert 0.0 in [weight for weight, _ in first]
    assert all(size > 0 for _, size in first + second)
