"""One step's credit and learning on a fresh tiny model."""

import copy
from dataclasses import replace

import pytest
import torch

from lookact.algorithms import token_ppo as ppo
from lookact.algorithms.vlm import NoReference, open_reference
from lookact.errors import TokenMismatch
from lookact.recipes.ppo.runs import open_policy
from lookact.recipes.ppo.update import objective, open_learners, prepare, reward_parts, set_rates, take_steps
from lookact.rollout.collect import collect
from lookact.rollout.episode_specs import make_specs
from lookact.rollout.samplers.hf import HFSampler
from lookact.tasks.spatial_vqa import make_env


@pytest.fixture
def chat(vqa_config, vqa_model):
    return open_policy(vqa_config, vqa_model)


@pytest.fixture
def episodes(vqa_config, chat):
    envs = [make_env(vqa_config.world) for _ in range(4)]
    plans = make_specs(0, "train", groups=4)
    return reward_parts(vqa_config).relabel(collect(plans, envs, HFSampler(chat, vqa_config.sampling)))


def weights(module):
    return {name: tensor.clone() for name, tensor in module.state_dict().items()}


def same(before, module):
    return all(torch.equal(before[name], tensor) for name, tensor in module.state_dict().items())


def learn(chat, critic, episodes, cfg, *, acting, reference=None, step=3):
    minibatches, _ = prepare(episodes, chat, critic, reference or NoReference(), cfg, step, cfg.kl.coef)
    learners = open_learners(chat, critic, cfg)
    set_rates(learners, cfg, step)
    for name in ("policy", "critic"):
        for group in learners[name].param_groups:
            group["lr"] = 1e-2
    loss_fn = objective(chat, critic, cfg.kl.coef, cfg, acting=acting)
    return take_steps(minibatches, loss_fn, learners, chat, cfg, step, acting=acting)


@pytest.mark.parametrize("backbone", ["shared", "separate"])
@pytest.mark.parametrize("loss", ["clipped", "huber"])
def test_while_the_critic_warms_up_the_actor_stays_as_it_is(vqa_config, chat, episodes, backbone, loss):
    cfg = replace(vqa_config, critic=replace(vqa_config.critic, backbone=backbone, loss=loss))
    critic = chat if backbone == "shared" else copy.deepcopy(chat)
    actor, head = weights(chat.model), weights(critic.value_head)
    told = learn(chat, critic, episodes, cfg, acting=False)
    assert same(actor, chat.model)
    assert not same(head, critic.value_head)
    assert "loss/policy" not in told
    told = learn(chat, critic, episodes, cfg, acting=True)
    assert not same(actor, chat.model)
    assert {"loss/policy", "loss/value", "policy/clip_fraction", "policy/entropy"} <= told.keys()


def test_epochs_end_once_the_policy_has_gone_too_far(vqa_config, chat, episodes):
    far = replace(vqa_config, learn=replace(vqa_config.learn, max_kl=1e-9, epochs=3, minibatch=2))
    free = replace(far, learn=replace(far.learn, max_kl=None))
    still = copy.deepcopy(chat)
    stopped = learn(chat, chat, episodes, far, acting=True)
    # the first step begins where the acting policy was, so only the second can be too far
    assert (stopped["optim/steps"], stopped["policy/stopped"]) == (1, 1.0)
    assert all(parameter.grad is None for parameter in chat.parameters())
    went_on = learn(still, still, episodes, free, acting=True)
    assert (went_on["optim/steps"], went_on["policy/stopped"]) == (6, 0.0)


def test_distance_to_the_reference_is_paid_as_reward_or_as_loss(vqa_config, chat, episodes):
    reference = open_reference(chat, "frozen")
    with torch.no_grad():
        reference.chat.model.model.language_model.norm.weight.mul_(1.5)

    def returns(use, coef):
        cfg = replace(vqa_config, kl=replace(vqa_config.kl, use=use, coef=coef))
        minibatches, metrics = prepare(episodes, chat, chat, reference, cfg, 1, coef)
        return torch.cat([lesson.returns.flatten() for part in minibatches for lesson in part]), metrics

    plain, metrics = returns("loss", 0.5)
    assert metrics["policy/kl"] != 0.0
    assert torch.equal(plain, returns("reward", 0.0)[0])
    assert not torch.equal(plain, returns("reward", 0.5)[0])
    for use in ("reward", "loss"):
        cfg = replace(vqa_config, kl=replace(vqa_config.kl, use=use))
        own = copy.deepcopy(chat)
        told = learn(own, own, episodes, cfg, acting=True, reference=reference)
        assert ("loss/kl" in told) == (use == "loss")


@pytest.mark.parametrize(
    ("method", "op"),
    [("monte_carlo", "monte_carlo"), ("gae", "gae"), ("turn", "turn_gae"), ("bilevel", "bilevel_gae")],
)
def test_the_config_names_the_op_that_gives_credit(vqa_config, chat, episodes, monkeypatch, method, op):
    called = []
    for name in ("monte_carlo", "gae", "turn_gae", "bilevel_gae"):
        real = getattr(ppo, name)
        monkeypatch.setattr(ppo, name, lambda *a, _name=name, _real=real, **k: called.append(_name) or _real(*a, **k))
    cfg = replace(vqa_config, credit=replace(vqa_config.credit, method=method))
    minibatches, metrics = prepare(episodes, chat, chat, NoReference(), cfg, 1, 0.0)
    assert called == [op]
    assert "policy/explained_variance" in metrics
    counted = [lesson.batch.advantages[lesson.batch.mask] for part in minibatches for lesson in part]
    assert float(torch.cat(counted).mean()) == pytest.approx(0.0, abs=1e-5)


def test_an_engine_with_other_weights_is_refused(vqa_config, chat, episodes):
    with torch.no_grad():
        chat.model.model.language_model.norm.weight.mul_(1.5)
    with pytest.raises(TokenMismatch, match="nats"):
        prepare(episodes, chat, chat, NoReference(), vqa_config, 1, 0.0)
