"""The parts of nav-rloo: credit, and an objective that runs over the counted units and nothing else."""

from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest
import torch

from lookact.algorithms.vlm import NoReference
from lookact.batch import Batch, Scores, TokenInputs
from lookact.config import check, override
from lookact.data.collate import collate
from lookact.data.segments import cut
from lookact.errors import ConfigError, TokenMismatch
from lookact.models.vlm.reference import CopyReference
from lookact.recipes.rloo.config import PRESETS, Learn
from lookact.recipes.rloo.update import credit, objective, parity_gap
from lookact.rollout.collect import collect
from lookact.rollout.samplers.hf import HFSampler
from lookact.rollout.samplers.settings import Sampling
from lookact.training.optim import NonFiniteGuard, accumulate, build_adamw, clip_and_step
from lookact.types import Decision, Episode, EpisodeSpec, Observation, Turn

NAN = float("nan")
SAMPLING = Sampling(max_tokens=6, min_action_tokens=1)


def episode(group, total, *, error=None, turns=2):
    said = Decision("", np.zeros(3, np.float32), np.array([0, 1, 1], bool), np.arange(3), np.arange(4))
    earlier, last = Turn(Observation(), said, 0.0, False, False), Turn(Observation(), said, total, True, False)
    return Episode("e", group, 0, (*[earlier] * (turns - 1), last), error=error)


def advantages(segments):
    return [segment.advantages[0] for segment in segments]


PLAIN = Learn(scale_advantages=False)


def test_returns_are_set_against_the_others_of_their_group():
    metrics = {}
    segments = credit([episode(0, 1.0), episode(0, 0.0), episode(1, 4.0), episode(1, 2.0)], PLAIN, metrics)
    assert advantages(segments) == [1.0, -1.0, 2.0, -2.0]
    assert segments[0].advantages.tolist() == [1.0] * 6
    assert metrics["rollout/zero_variance_groups"] == 0.0


def test_groups_of_equal_returns_are_counted_and_left_out():
    metrics = {}
    segments = credit([episode(0, 1.0), episode(0, 1.0), episode(1, 4.0), episode(1, 2.0)], PLAIN, metrics)
    assert advantages(segments) == [2.0, -2.0]
    assert metrics["rollout/zero_variance_groups"] == 0.5


def test_failed_episodes_are_left_out_and_one_survivor_has_no_baseline():
    metrics = {}
    failed = episode(0, 9.0, error="OSError: no such room")
    segments = credit([failed, episode(0, 1.0), episode(1, 4.0), episode(1, 2.0)], PLAIN, metrics)
    assert advantages(segments) == [2.0, -2.0]
    assert metrics["rollout/zero_variance_groups"] == 0.5


def test_scaling_makes_the_mean_square_one_and_blame_weighs_failures():
    episodes = [episode(0, 3.0), episode(0, 0.0), episode(1, 1.0), episode(1, 0.0)]
    values = np.array(advantages(credit(episodes, Learn(), {})))
    assert np.mean(values**2) == pytest.approx(1.0)
    assert values[0] / values[2] == pytest.approx(3.0)
    eased = np.array(advantages(credit(episodes, Learn(blame=0.25), {})))
    assert np.allclose(eased, np.where(values < 0, 0.25 * values, values))


@pytest.mark.parametrize("by", ["episode", "turn"])
@pytest.mark.parametrize("episodes", [[], [episode(0, 1.0), episode(0, 1.0)], [episode(0, 1.0, error="broken")]])
def test_a_step_in_which_nothing_can_be_learned_leaves_the_weights_at_rest(chat, by, episodes, nav_config):
    metrics = {}
    segments = credit(episodes, Learn(credit=by), metrics)
    assert segments == []
    assert metrics["rollout/zero_variance_groups"] == 1.0
    before = {name: tensor.clone() for name, tensor in chat.state_dict().items()}
    optimizer, guard = build_adamw({"policy": chat}, lr=0.1), NonFiniteGuard()
    loss, parts = accumulate([], objective(chat, NoReference(), 0.0, nav_config, first=True), len)
    clip_and_step(optimizer, chat.parameters(), max_norm=1.0, guard=guard, loss=loss)
    assert (loss, parts, guard.skipped) == (0.0, {}, 0)
    assert all(torch.equal(before[name], tensor) for name, tensor in chat.state_dict().items())


# the objective on scores of our own: five units, of which the third does not count and the last is padding


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


def gradients(cfg, batch, *, shift=0.0, first=True):
    logprobs = (batch.logprobs.nan_to_num() + shift).requires_grad_()
    entropy = torch.ones(1, 5, requires_grad=True)
    chat = SimpleNamespace(evaluate=lambda inputs, **filters: Scores(logprobs, entropy))
    loss, metrics = objective(chat, NoReference(), 0.0, cfg, first=first)(batch)
    loss.backward()
    return loss.detach(), logprobs.grad, entropy.grad, metrics


def test_counted_units_get_reinforces_gradient_and_all_others_exactly_none(nav_config):
    cfg = replace(nav_config, learn=replace(nav_config.learn, entropy=0.3))
    loss, on_logprobs, on_entropy, metrics = gradients(cfg, units())
    # -A over the three counted units, and the bonus on the same ones
    torch.testing.assert_close(on_logprobs, torch.tensor([[-1.0, -1.0, 0.0, 2.0, 0.0]]) / 3)
    torch.testing.assert_close(on_entropy, torch.tensor([[-0.3, -0.3, 0.0, -0.3, 0.0]]) / 3)
    assert (on_logprobs[0, 2], on_logprobs[0, 4], on_entropy[0, 2], on_entropy[0, 4]) == (0, 0, 0, 0)
    assert float(loss) == pytest.approx(0.0 - 0.3)
    assert float(metrics["policy/parity_gap"]) == 0.0


def test_whatever_stands_outside_the_mask_changes_neither_loss_nor_gradient(nav_config):
    plain = gradients(nav_config, units())
    spoiled = units(
        advantages=torch.tensor([[1.0, 1.0, NAN, -2.0, NAN]]), logprobs=torch.tensor([[-1.0, -2.0, -3.0, -0.5, NAN]])
    )
    for a, b in zip(plain[:3], gradients(nav_config, spoiled)[:3]):
        assert torch.equal(a, b)
    # in later passes not even what was sampled there is looked at
    elsewhere = units(logprobs=torch.tensor([[-1.0, -2.0, -77.0, -0.5, NAN]]))
    for a, b in zip(plain[:3], gradients(nav_config, elsewhere, first=False)[:3]):
        assert torch.equal(a, b)


def test_the_engine_is_checked_on_every_sampled_unit_counted_or_not():
    batch = units()
    for place in range(4):
        off = batch.logprobs.clone()
        off[0, place] += 0.01
        with pytest.raises(TokenMismatch, match=r"disagree by 0\.0100 nats.*learn\.parity"):
            parity_gap(off, batch, limit=1e-4)
        assert float(parity_gap(off, batch, limit=0.1)) == pytest.approx(0.01, rel=1e-3)
    padded = batch.logprobs.clone()
    padded[0, 4] = 50.0
    assert float(parity_gap(padded, batch, limit=1e-4)) == 0.0


def test_an_engine_without_numbers_is_a_mismatch_and_a_learner_without_is_a_skipped_step(nav_config):
    with pytest.raises(TokenMismatch):
        parity_gap(units().logprobs, units(logprobs=torch.tensor([[NAN, -2.0, -3.0, -0.5, 0.0]])), limit=1e-4)
    chat = SimpleNamespace(evaluate=lambda inputs, **filters: Scores(torch.full((1, 5), NAN), torch.zeros(1, 5)))
    loss, _ = objective(chat, NoReference(), 0.0, nav_config, first=True)(units())
    assert loss.isnan()


def test_later_passes_are_clipped(nav_config):
    _, on_logprobs, _, _ = gradients(nav_config, units(), shift=0.5, first=False)
    # ratios of 1.65 are beyond the clip where the advantage would push them further, and free where it pulls back
    assert on_logprobs[0, :2].tolist() == [0.0, 0.0]
    assert on_logprobs[0, 3] > 0


# the objective on a real model


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


def score(chat, cfg, segments, reference=None, coef=0.0):
    chat.zero_grad()
    batch = collate(segments, chat.encode_images)
    loss, metrics = objective(chat, reference or NoReference(), coef, cfg, first=True)(batch)
    loss.backward()
    return loss.detach(), {name: p.grad.clone() for name, p in chat.named_parameters() if p.grad is not None}, metrics


@pytest.mark.parametrize("filters", [{}, {"top_p": 0.9}, {"top_k": 30, "temperature": 0.8}])
def test_the_engine_agrees_with_the_learner_under_its_own_filters(chat, nav_config, filters):
    cfg = settings(nav_config, replace(SAMPLING, **filters))
    _, _, metrics = score(chat, cfg, credit(lived(chat, cfg.sampling), cfg.learn, {}))
    assert 0 < float(metrics["policy/parity_gap"]) < 1e-4


@pytest.mark.parametrize("filters", [{"temperature": 1.05}, {"top_p": 0.9}, {"top_k": 30}])
def test_an_engine_that_samples_otherwise_is_caught(chat, nav_config, filters):
    cfg = settings(nav_config)
    with pytest.raises(TokenMismatch, match="disagree"):
        score(chat, cfg, credit(lived(chat, replace(SAMPLING, **filters)), cfg.learn, {}))


def test_an_engine_with_other_weights_is_caught(chat, nav_config):
    stale = CopyReference(chat).chat
    with torch.no_grad():
        stale.causal.model.language_model.layers[0].mlp.up_proj.weight[0] += 0.1
    cfg = settings(nav_config)
    with pytest.raises(TokenMismatch, match="weights differ"):
        score(chat, cfg, credit(lived(stale), cfg.learn, {}))


def test_tokens_after_the_last_counted_one_change_nothing(chat, nav_config):
    cfg = settings(nav_config, parity=1e9)
    (segment,) = cut(lived(chat)[2])
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
    loss, grads, _ = score(chat, cfg, [segment])
    other_loss, other_grads, _ = score(chat, cfg, [scrambled])
    assert torch.equal(loss, other_loss)
    for name, grad in grads.items():
        torch.testing.assert_close(grad, other_grads[name], atol=1e-7, rtol=1e-4, msg=name)
    # what stands before it does matter, so the test could fail
    earlier = replace(segment, images=(255 - segment.images[0], *segment.images[1:]))
    assert not torch.equal(loss, score(chat, cfg, [earlier])[0])


@pytest.mark.parametrize("estimator", ["k1", "k2", "k3"])
def test_the_distance_to_the_reference_is_zero_where_rl_begins_and_pulls_back_later(chat, nav_config, estimator):
    cfg = replace(settings(nav_config), kl=replace(nav_config.kl, estimator=estimator))
    reference = CopyReference(chat)
    segments = credit(lived(chat), cfg.learn, {})
    alone, _, _ = score(chat, cfg, segments)
    loss, _, metrics = score(chat, cfg, segments, reference, coef=10.0)
    assert abs(float(metrics["policy/kl"])) < 1e-6
    assert float(loss) == pytest.approx(float(alone), abs=1e-4)
    with torch.no_grad():
        reference.chat.output_weight.mul_(1.5)
    far, _, metrics = score(chat, cfg, segments, reference, coef=10.0)
    assert float(far) == pytest.approx(float(alone) + 10.0 * float(metrics["policy/kl"]), rel=1e-4)
    assert abs(float(metrics["policy/kl"])) > 1e-3


def test_all_that_was_sampled_may_count():
    episodes = [episode(0, 1.0), episode(0, 0.0)]
    counted = {units: credit(episodes, Learn(units=units), {})[0].mask.tolist() for units in ("action", "reply")}
    assert counted == {"action": [False, True, True] * 2, "reply": [True] * 6}


@pytest.mark.parametrize("name", PRESETS)
def test_presets_are_within_their_bounds(name):
    assert check(PRESETS[name]) == PRESETS[name]


@pytest.mark.parametrize("words", [["--learn.group_size=1"], ["--learn.lr=-1"], ["--world.scenes", "nowhere"]])
def test_impossible_settings_are_refused(words):
    with pytest.raises(ConfigError):
        check(override(PRESETS["debug"], words))
