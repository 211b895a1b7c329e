"""One step's advantages and update on a fresh tiny model."""

import copy
from dataclasses import replace

import pytest
import torch

from lookact.algorithms import token_ppo
from lookact.errors import TokenMismatch
from lookact.recipes.ppo.evaluate import make_task, open_policy
from lookact.recipes.ppo.learner import make_learner
from lookact.recipes.ppo.train import compute_advantages, make_rewards, set_rates, update
from lookact.rollout.collect import collect
from lookact.rollout.samplers.hf import HFSampler


@pytest.fixture
def chat(vqa_config, vqa_model):
    return open_policy(vqa_config, vqa_model)


@pytest.fixture
def episodes(vqa_config, chat):
    task = make_task(vqa_config)
    specs, envs = task.specs(0, "train", groups=4), [task.make_env() for _ in range(4)]
    return make_rewards(vqa_config).relabel(collect(specs, envs, HFSampler(chat, vqa_config.sampling)))


def weights(module):
    return {name: tensor.clone() for name, tensor in module.state_dict().items()}


def same(before, module):
    return all(torch.equal(before[name], tensor) for name, tensor in module.state_dict().items())


def learner_of(cfg, policy, critic, reference=None):
    """Without a reference unless one is given."""
    none = replace(cfg, kl=replace(cfg.kl, reference="none"))
    learner = make_learner(none, policy, critic)
    return learner if reference is None else replace(learner, reference=reference)


def learn(chat, critic, episodes, cfg, *, acts, reference=None, step=3):
    learner = learner_of(cfg, chat, critic, reference)
    minibatches, _ = compute_advantages(cfg, learner, episodes, step, stale=True)
    set_rates(cfg, learner, step)
    for optimizer in (learner.optimizer, learner.critic_optimizer):
        for group in optimizer.param_groups:
            group["lr"] = 1e-2
    return update(cfg, learner, minibatches, step, acts=acts)


@pytest.mark.parametrize("backbone", ["shared", "separate"])
@pytest.mark.parametrize("loss", ["clipped", "huber"])
def test_while_the_critic_warms_up_the_actor_stays_as_it_is(vqa_config, chat, episodes, backbone, loss):
    cfg = replace(vqa_config, critic=replace(vqa_config.critic, backbone=backbone, loss=loss))
    critic = chat if backbone == "shared" else copy.deepcopy(chat)
    actor, head = weights(chat.model), weights(critic.value_head)
    told = learn(chat, critic, episodes, cfg, acts=False)
    assert same(actor, chat.model)
    assert not same(head, critic.value_head)
    assert "loss/policy" not in told
    told = learn(chat, critic, episodes, cfg, acts=True)
    assert not same(actor, chat.model)
    assert {"loss/policy", "loss/value", "policy/clip_fraction", "policy/entropy"} <= told.keys()


def test_epochs_end_once_the_policy_has_gone_too_far(vqa_config, chat, episodes):
    far = replace(vqa_config, learn=replace(vqa_config.learn, max_kl=1e-9, epochs=3, minibatch_size=2))
    free = replace(far, learn=replace(far.learn, max_kl=None))
    still = copy.deepcopy(chat)
    stopped = learn(chat, chat, episodes, far, acts=True)
    # the first step begins where the acting policy was, so only the second can be too far
    assert (stopped["optim/steps"], stopped["policy/stopped"]) == (1, 1.0)
    assert all(parameter.grad is None for parameter in chat.parameters())
    went_on = learn(still, still, episodes, free, acts=True)
    assert (went_on["optim/steps"], went_on["policy/stopped"]) == (6, 0.0)


def test_distance_to_the_reference_is_paid_as_reward_or_as_loss(vqa_config, chat, episodes):
    reference = make_learner(replace(vqa_config, kl=replace(vqa_config.kl, reference="frozen")), chat, chat).reference
    with torch.no_grad():
        reference.chat.model.model.language_model.norm.weight.mul_(1.5)

    def returns(use, coef):
        cfg = replace(vqa_config, kl=replace(vqa_config.kl, use=use, coef=coef))
        minibatches, metrics = compute_advantages(cfg, learner_of(cfg, chat, chat, reference), episodes, 1)
        return torch.cat([micro.returns.flatten() for part in minibatches for micro in part]), metrics

    plain, metrics = returns("loss", 0.5)
    assert metrics["policy/kl"] != 0.0
    assert torch.equal(plain, returns("reward", 0.0)[0])
    assert not torch.equal(plain, returns("reward", 0.5)[0])
    for use in ("reward", "loss"):
        cfg = replace(vqa_config, kl=replace(vqa_config.kl, use=use))
        own = copy.deepcopy(chat)
        told = learn(own, own, episodes, cfg, acts=True, reference=reference)
        assert ("loss/kl" in told) == (use == "loss")


@pytest.mark.parametrize(
    ("method", "op"),
    [("monte_carlo", "monte_carlo"), ("gae", "gae"), ("turn", "turn_gae"), ("bilevel", "bilevel_gae")],
)
def test_the_config_names_the_op_that_gives_credit(vqa_config, chat, episodes, monkeypatch, method, op):
    called = []
    for name in ("monte_carlo", "gae", "turn_gae", "bilevel_gae"):
        real = getattr(token_ppo, name)
        monkeypatch.setattr(
            token_ppo, name, lambda *a, _name=name, _real=real, **k: called.append(_name) or _real(*a, **k)
        )
    cfg = replace(vqa_config, credit=replace(vqa_config.credit, method=method))
    minibatches, metrics = compute_advantages(cfg, learner_of(cfg, chat, chat), episodes, 1)
    assert called == [op]
    assert "policy/explained_variance" in metrics
    counted = [micro.batch.advantages[micro.batch.mask] for part in minibatches for micro in part]
    assert float(torch.cat(counted).mean()) == pytest.approx(0.0, abs=1e-5)


def test_an_engine_with_other_weights_is_refused(vqa_config, chat, episodes):
    with torch.no_grad():
        chat.model.model.language_model.norm.weight.mul_(1.5)
    with pytest.raises(TokenMismatch, match="nats"):
        compute_advantages(vqa_config, learner_of(vqa_config, chat, chat), episodes, 1)
