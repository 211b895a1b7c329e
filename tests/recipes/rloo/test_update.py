"""RLOO's advantages, and a loss that runs over the counted units and nothing else."""

from dataclasses import replace

import numpy as np
import pytest
import torch

from lookact.algorithms.group_advantages import drop_zero_variance_groups, episode_advantages, pack, scale_advantages
from lookact.batch import Batch, Scores, TokenInputs
from lookact.config import check, override
from lookact.data.packing import collate, to_segments
from lookact.errors import ConfigError, TokenMismatch
from lookact.models.vlm.reference import CopyReference
from lookact.ops.mismatch import MismatchGate, MismatchLimits
from lookact.recipes.rloo.config import PRESETS
from lookact.recipes.rloo.train import OldPolicy, old_policy, rloo_loss
from lookact.rollout.collect import collect
from lookact.rollout.samplers.hf import HFSampler
from lookact.rollout.samplers.settings import Sampling
from lookact.training.settings import ImportanceSampling
from lookact.types import EpisodeSpec, Observation

NAN = float("nan")
SAMPLING = Sampling(max_tokens=6, min_action_tokens=1)


# the loss on scores of our own: five units, of which the third does not count and the last is padding


def units(**tensors):
    mask = torch.tensor([[True, True, False, True, False]])
    blank = torch.zeros(1, 5)
    batch = Batch(
        inputs=TokenInputs(torch.zeros(1, 9, dtype=torch.long), torch.ones(1, 9, dtype=torch.bool), blank.long()),
        mask=mask,
        logprobs=torch.tensor([[-1.0, -2.0, -3.0, -0.5, 0.0]]),
        turns=torch.tensor([[0, 0, 0, 1, -1]]),
        rewards=blank,
        returns=torch.zeros(1),
        groups=torch.zeros(1),
        terminated=torch.ones(1, dtype=torch.bool),
        advantages=torch.tensor([[1.0, 1.0, 1.0, -2.0, 0.0]]),
    )
    return replace(batch, **tensors)


def sampler_of(batch):
    """The ratio is to the sampler's own log-probs."""
    return OldPolicy(batch.logprobs, None, {})


def gradients(cfg, batch, *, shift=0.0):
    logprobs = (batch.logprobs.nan_to_num() + shift).requires_grad_()
    entropy = torch.ones(1, 5, requires_grad=True)
    loss, metrics = rloo_loss(
        Scores(logprobs, entropy), batch, sampler_of(batch), None, learn=cfg.learn, kl=cfg.kl, kl_coef=0.0
    )
    loss.backward()
    return loss.detach(), logprobs.grad, entropy.grad, metrics


def test_counted_units_get_reinforces_gradient_and_all_others_exactly_none(nav_config):
    cfg = replace(nav_config, learn=replace(nav_config.learn, entropy_coef=0.3))
    loss, on_logprobs, on_entropy, metrics = gradients(cfg, units())
    # -A over the three counted units, and the bonus on the same ones
    torch.testing.assert_close(on_logprobs, torch.tensor([[-1.0, -1.0, 0.0, 2.0, 0.0]]) / 3)
    torch.testing.assert_close(on_entropy, torch.tensor([[-0.3, -0.3, 0.0, -0.3, 0.0]]) / 3)
    assert (on_logprobs[0, 2], on_logprobs[0, 4], on_entropy[0, 2], on_entropy[0, 4]) == (0, 0, 0, 0)
    assert float(loss) == pytest.approx(0.0 - 0.3)
    assert float(metrics["policy/entropy"]) == 1.0


def test_whatever_stands_outside_the_mask_changes_neither_loss_nor_gradient(nav_config):
    plain = gradients(nav_config, units())
    spoiled = units(
        advantages=torch.tensor([[1.0, 1.0, NAN, -2.0, NAN]]), logprobs=torch.tensor([[-1.0, -2.0, -3.0, -0.5, NAN]])
    )
    for a, b in zip(plain[:3], gradients(nav_config, spoiled)[:3]):
        assert torch.equal(a, b)
    # nor does what was sampled there
    elsewhere = units(logprobs=torch.tensor([[-1.0, -2.0, -77.0, -0.5, NAN]]))
    for a, b in zip(plain[:3], gradients(nav_config, elsewhere)[:3]):
        assert torch.equal(a, b)


def test_a_learner_without_numbers_has_a_loss_without_one(nav_config):
    scores = Scores(torch.full((1, 5), NAN), torch.zeros(1, 5))
    loss, _ = rloo_loss(
        scores, units(), sampler_of(units()), None, learn=nav_config.learn, kl=nav_config.kl, kl_coef=0.0
    )
    assert loss.isnan()


def test_later_passes_are_clipped(nav_config):
    _, on_logprobs, _, _ = gradients(nav_config, units(), shift=0.5)
    # ratios of 1.65 are beyond the clip where the advantage would push them further, and free where it pulls back
    assert on_logprobs[0, :2].tolist() == [0.0, 0.0]
    assert on_logprobs[0, 3] > 0


@pytest.mark.parametrize(
    ("importance", "weights"),
    [
        # the learner's log-probs are log 2 above the sampler's on the first unit, and equal on the other three
        (ImportanceSampling(level="token"), [2.0, 1.0, 1.0, 1.0]),
        (ImportanceSampling(level="token", cap=1.5), [1.5, 1.0, 1.0, 1.0]),
        (ImportanceSampling(level="token", cap=1.5, mode="mask"), [0.0, 1.0, 1.0, 1.0]),
        (ImportanceSampling(level="sequence"), [2.0] * 4),
        (ImportanceSampling(level="geometric"), [2**0.25] * 4),
    ],
)
def test_the_update_begins_at_the_learner_weighted_by_its_ratio_to_the_sampler(nav_config, importance, weights):
    batch = units()
    logprobs = batch.logprobs + torch.tensor([[np.log(2.0), 0.0, 0.0, 0.0, 7.0]])
    old = old_policy(logprobs, batch, importance)
    assert old.weights[0].tolist() == pytest.approx([*weights, 0.0])
    assert old.logprobs.equal(logprobs)
    assert float(old.metrics["policy/mismatch_gap_max"]) == pytest.approx(np.log(2.0))
    scored = logprobs.clone().requires_grad_()
    rest = {"learn": replace(nav_config.learn, entropy_coef=0.0), "kl": nav_config.kl, "kl_coef": 0.0}
    loss, _ = rloo_loss(Scores(scored, torch.ones(1, 5)), batch, old, None, **rest)
    loss.backward()
    # -A · weight over three counted units: the ratio itself is 1
    advantages = [-1.0, -1.0, 0.0, 2.0, 0.0]
    assert scored.grad[0].tolist() == pytest.approx([a * w / 3 for a, w in zip(advantages, [*weights, 0.0])])


def test_without_a_correction_the_ratio_is_to_the_sampler():
    batch = units()
    old = old_policy(batch.logprobs + 1.0, batch, ImportanceSampling(level="none"))
    assert old.logprobs is batch.logprobs
    assert old.weights is None


# the loss on a real model


class Rooms:
    """Noise to look at, and a reward that differs from episode to episode."""

    def reset(self, *, seed, options):
        self.rng, self.turn, self.turns = np.random.default_rng(seed), 0, options["turns"]
        return self.look(), {}

    def step(self, action):
        self.turn += 1
        return self.look(), float(self.rng.random()), self.turn == self.turns, False, {}

    def look(self):
        noise = self.rng.integers(0, 255, (32, 32, 3), dtype=np.uint8)
        return Observation(text="Find the bed.", images={"head": noise})


PLANS = [EpisodeSpec(f"e{i}", i // 2, i, {"turns": 1 + i % 3}) for i in range(4)]


def lived(chat, sampling=SAMPLING):
    return collect(PLANS, [Rooms() for _ in PLANS], HFSampler(chat, sampling))


def settings(nav_config, sampling=SAMPLING, **learn):
    return replace(nav_config, sampling=sampling, learn=replace(nav_config.learn, **learn))


def credited(episodes):
    kept, _ = drop_zero_variance_groups(episodes)
    return pack(kept, scale_advantages(episode_advantages(kept)), loss_on="action")


def score(chat, cfg, segments, reference=None, coef=0.0, limit=1e-4):
    chat.zero_grad()
    batch, filters = collate(segments, chat.encode_images), cfg.sampling.filters()
    scores = chat.evaluate(batch.inputs, **filters)
    gate = MismatchGate(MismatchLimits(limit, limit))
    gate.agree(scores.logprobs, batch.logprobs, batch.turns >= 0)
    known = None if reference is None else reference.evaluate(batch.inputs, **filters).logprobs
    loss, metrics = rloo_loss(scores, batch, sampler_of(batch), known, learn=cfg.learn, kl=cfg.kl, kl_coef=coef)
    loss.backward()
    metrics["gap"] = gate.judge()["policy/mismatch_gap_max"]
    return loss.detach(), {name: p.grad.clone() for name, p in chat.named_parameters() if p.grad is not None}, metrics


@pytest.mark.parametrize("filters", [{}, {"top_p": 0.9}, {"top_k": 30, "temperature": 0.8}])
def test_the_engine_agrees_with_the_learner_under_its_own_filters(chat, nav_config, filters):
    cfg = settings(nav_config, replace(SAMPLING, **filters))
    _, _, metrics = score(chat, cfg, credited(lived(chat, cfg.sampling)))
    assert 0 < float(metrics["gap"]) < 1e-4


@pytest.mark.parametrize("filters", [{"temperature": 1.05}, {"top_p": 0.9}, {"top_k": 30}])
def test_an_engine_that_samples_otherwise_is_caught(chat, nav_config, filters):
    cfg = settings(nav_config)
    with pytest.raises(TokenMismatch, match="disagree"):
        score(chat, cfg, credited(lived(chat, replace(SAMPLING, **filters))))


def test_an_engine_with_other_weights_is_caught(chat, nav_config):
    stale = CopyReference(chat).chat
    with torch.no_grad():
        stale.causal.model.language_model.layers[0].mlp.up_proj.weight[0] += 0.1
    cfg = settings(nav_config)
    with pytest.raises(TokenMismatch, match="weights differ"):
        score(chat, cfg, credited(lived(stale)))


def test_tokens_after_the_last_counted_one_change_nothing(chat, nav_config):
    cfg = settings(nav_config)
    (segment,) = to_segments(lived(chat)[2])
    turns, counted = segment.turns.max() + 1, (segment.turns == 0) & (np.arange(len(segment.mask)) < 3)
    assert turns == 3
    segment = replace(segment, mask=counted, advantages=np.ones(len(counted), np.float32))
    after = segment.positions[2] + 1
    later_words = np.where((segment.ids[after:] == chat.image_pad_id), chat.image_pad_id, 7)
    later_views = tuple(255 - image for image in segment.images[1:])
    scrambled = replace(
        segment,
        ids=np.append(segment.ids[:after], later_words),
        images=(segment.images[0], *later_views),
        advantages=np.where(counted, 1.0, NAN).astype(np.float32),
    )
    loss, grads, _ = score(chat, cfg, [segment], limit=1e9)
    other_loss, other_grads, _ = score(chat, cfg, [scrambled], limit=1e9)
    assert torch.equal(loss, other_loss)
    for name, grad in grads.items():
        torch.testing.assert_close(grad, other_grads[name], atol=1e-7, rtol=1e-4, msg=name)
    # what stands before it does matter, so the test could fail
    earlier = replace(segment, images=(255 - segment.images[0], *segment.images[1:]))
    assert not torch.equal(loss, score(chat, cfg, [earlier], limit=1e9)[0])


@pytest.mark.parametrize("estimator", ["k1", "k2", "k3"])
def test_the_distance_to_the_reference_is_zero_where_rl_begins_and_pulls_back_later(chat, nav_config, estimator):
    cfg = replace(settings(nav_config), kl=replace(nav_config.kl, estimator=estimator))
    reference = CopyReference(chat)
    segments = credited(lived(chat))
    alone, _, _ = score(chat, cfg, segments)
    loss, _, metrics = score(chat, cfg, segments, reference, coef=10.0)
    assert abs(float(metrics["policy/kl"])) < 1e-6
    assert float(loss) == pytest.approx(float(alone), abs=1e-4)
    with torch.no_grad():
        reference.chat.output_weight.mul_(1.5)
    far, _, metrics = score(chat, cfg, segments, reference, coef=10.0)
    assert float(far) == pytest.approx(float(alone) + 10.0 * float(metrics["policy/kl"]), rel=1e-4)
    assert abs(float(metrics["policy/kl"])) > 1e-3


@pytest.mark.parametrize("name", PRESETS)
def test_presets_are_within_their_bounds(name):
    assert check(PRESETS[name]) == PRESETS[name]


@pytest.mark.parametrize("words", [["--learn.group_size=1"], ["--learn.lr=-1"], ["--env.scenes", "nowhere"]])
def test_impossible_settings_are_refused(words):
    with pytest.raises(ConfigError):
        check(override(PRESETS["debug"], words))
