import math

import pytest
import torch

from lookact.ops.losses import aggregation_weights, cispo, entropy_bonus, gspo, ppo_clip, reinforce

NAN, INF = math.nan, math.inf
MASK = torch.tensor([[1, 1, 0, 0], [1, 0, 1, 0], [0, 0, 0, 0]]).bool()
LOGPROBS = torch.tensor([[-1.0, -2.0, NAN, INF], [-3.0, -INF, -0.5, NAN], [NAN, NAN, -INF, INF]])
ADVANTAGES = torch.tensor([[2.0, -1.0, NAN, 1.0], [0.5, INF, 4.0, NAN], [NAN, 1.0, 1.0, 1.0]])


def units(*numbers):
    return torch.tensor([numbers])


ALL = units(True)


def test_reinforce_by_hand():
    loss, metrics = reinforce(LOGPROBS, ADVANTAGES, MASK)
    # (2·1 − 1·2 + ½·3 + 4·½) / 4
    assert loss == pytest.approx(3.5 / 4)
    assert metrics["logprob"] == pytest.approx(-6.5 / 4)
    assert metrics["advantage"] == pytest.approx(5.5 / 4)


def test_reinforce_gradient_is_minus_the_weighted_advantage():
    logprobs = LOGPROBS.clone().requires_grad_()
    weights = torch.full_like(LOGPROBS, 3.0).masked_fill(~MASK, NAN)
    reinforce(logprobs, ADVANTAGES, MASK, weights=weights)[0].backward()
    assert torch.equal(logprobs.grad, torch.where(MASK, -3 * ADVANTAGES / 4, 0.0))


def test_one_advantage_an_episode_spreads_over_its_units():
    per_row = torch.tensor([[2.0], [3.0], [NAN]])
    assert torch.equal(
        reinforce(LOGPROBS, per_row, MASK)[0], reinforce(LOGPROBS, per_row.expand(3, 4).contiguous(), MASK)[0]
    )
    with pytest.raises(ValueError, match="add the missing axis"):
        reinforce(LOGPROBS[:, :3], per_row[:, 0], MASK[:, :3])


def test_ppo_at_old_policy_has_the_reinforce_gradient():
    first, second = LOGPROBS.clone().requires_grad_(), LOGPROBS.clone().requires_grad_()
    loss, metrics = ppo_clip(first, LOGPROBS, ADVANTAGES, MASK, clip=0.2, dual_clip=3.0)
    loss.backward()
    reinforce(second, ADVANTAGES, MASK)[0].backward()
    assert torch.equal(first.grad, second.grad)
    assert loss.item() == pytest.approx(-5.5 / 4)
    assert {name: float(x) for name, x in metrics.items()} == {"ratio": 1.0, "clip_fraction": 0.0, "approx_kl": 0.0}


@pytest.mark.parametrize(
    ("ratio", "advantage", "objective", "moves"),
    [
        (1.1, 1.0, 1.1, True),
        (1.5, 1.0, 1.2, False),  # gain beyond the upper clip is not paid
        (0.5, 1.0, 0.5, True),  # a good unit that fell is pulled back
        (1.5, -1.0, -1.5, True),  # a bad unit that rose is pushed back
        (0.5, -1.0, -0.8, False),
        (9.0, -1.0, -9.0, True),
    ],
)
def test_ppo_clips_gains_and_never_losses(ratio, advantage, objective, moves):
    logprobs = units(math.log(ratio)).requires_grad_()
    loss, metrics = ppo_clip(logprobs, units(0.0), units(advantage), ALL, clip=0.2)
    loss.backward()
    assert -loss.item() == pytest.approx(objective)
    assert bool(logprobs.grad != 0) is moves
    assert metrics["clip_fraction"] == (0.0 if moves else 1.0)
    assert metrics["ratio"] == pytest.approx(ratio)
    assert metrics["approx_kl"] == pytest.approx(ratio - 1 - math.log(ratio), rel=1e-4)


def test_clip_high_loosens_the_upper_side_only():
    settings = {"clip": 0.2, "clip_high": 0.4}
    assert -ppo_clip(units(math.log(1.5)), units(0.0), units(1.0), ALL, **settings)[0].item() == pytest.approx(1.4)
    assert -ppo_clip(units(math.log(0.5)), units(0.0), units(-1.0), ALL, **settings)[0].item() == pytest.approx(-0.8)


def test_dual_clip_bounds_what_one_bad_unit_costs():
    logprobs = units(math.log(9.0)).requires_grad_()
    loss, _ = ppo_clip(logprobs, units(0.0), units(-1.0), ALL, clip=0.2, dual_clip=3.0)
    loss.backward()
    assert loss.item() == 3.0
    assert logprobs.grad.item() == 0.0
    # it leaves good units alone
    assert ppo_clip(units(0.1), units(0.0), units(1.0), ALL, clip=0.2, dual_clip=3.0)[0].item() == pytest.approx(
        -math.exp(0.1)
    )
    with pytest.raises(ValueError, match="above 1"):
        ppo_clip(units(0.0), units(0.0), units(1.0), ALL, clip=0.2, dual_clip=1.0)


def test_weights_multiply_each_unit():
    args = (units(-1.0, -2.0), units(-1.1, -1.9), units(1.0, -2.0), units(True, True))
    whole = ppo_clip(*args, clip=0.2)[0]
    doubled = ppo_clip(*args, clip=0.2, weights=units(2.0, 2.0))[0]
    assert doubled.item() == pytest.approx(2 * whole.item())
    assert ppo_clip(*args, clip=0.2, weights=units(0.0, 0.0))[0] == 0.0


def test_masked_units_get_no_gradient():
    logprobs = LOGPROBS.clone().requires_grad_()
    old = torch.where(MASK, LOGPROBS - 0.05, NAN)
    loss, metrics = ppo_clip(logprobs, old, ADVANTAGES, MASK, clip=0.2, weights=torch.where(MASK, 1.0, NAN))
    loss.backward()
    assert torch.equal(logprobs.grad != 0, MASK)
    assert logprobs.grad.isfinite().all()
    assert all(x.isfinite() and not x.requires_grad for x in metrics.values())


@pytest.mark.parametrize("gap", [1e30, -1e30, INF, -INF])
@pytest.mark.parametrize("advantage", [1.0, 0.0, -1.0])
def test_absurd_ratios_stay_finite(gap, advantage):
    logprobs = units(gap, -1.0).requires_grad_()
    loss, _ = ppo_clip(logprobs, units(0.0, -1.0), units(advantage, 1.0), units(True, True), clip=0.2)
    loss.backward()
    assert loss.isfinite()
    assert logprobs.grad.isfinite().all()


@pytest.mark.parametrize(
    "loss_of", [reinforce, lambda l, a, m, **k: ppo_clip(l, l.detach() - 0.1, a, m, clip=0.05, **k)]
)
def test_micro_batches_by_their_shares_add_up(loss_of):
    whole = loss_of(LOGPROBS, ADVANTAGES, MASK)[0]
    rows = [slice(i, i + 1) for i in range(3)]
    parts = sum(loss_of(LOGPROBS[i], ADVANTAGES[i], MASK[i])[0] * MASK[i].sum() / MASK.sum() for i in rows)
    torch.testing.assert_close(parts, whole)


def test_nothing_counted_is_a_zero_loss_with_a_zero_gradient():
    logprobs = LOGPROBS.clone().requires_grad_()
    nothing = torch.zeros_like(MASK)
    loss = reinforce(logprobs, ADVANTAGES, nothing)[0] + ppo_clip(logprobs, LOGPROBS, ADVANTAGES, nothing, clip=0.2)[0]
    loss.backward()
    assert loss == 0.0
    assert torch.equal(logprobs.grad, torch.zeros_like(LOGPROBS))


def test_padding_does_not_leak():
    def widen(x, fill):
        return torch.cat([x, torch.full((3, 2), fill, dtype=x.dtype)], dim=1)

    old = LOGPROBS - 0.3
    short = ppo_clip(LOGPROBS, old, ADVANTAGES, MASK, clip=0.2)[0]
    wide = ppo_clip(widen(LOGPROBS, NAN), widen(old, 7.0), widen(ADVANTAGES, INF), widen(MASK, False), clip=0.2)[0]
    torch.testing.assert_close(wide, short)


def test_advantages_and_old_logprobs_are_constants():
    logprobs, old, advantages = (torch.randn(2, 3).requires_grad_() for _ in range(3))
    ppo_clip(logprobs, old, advantages, torch.ones(2, 3, dtype=torch.bool), clip=0.2)[0].backward()
    assert old.grad is None
    assert advantages.grad is None


def test_entropy_bonus_is_the_mean_over_counted_units():
    entropy = torch.where(MASK, torch.tensor(2.0), torch.tensor(NAN)).requires_grad_()
    bonus = entropy_bonus(entropy, MASK)
    bonus.backward()
    assert bonus == 2.0
    assert torch.equal(entropy.grad, MASK.float() / 4)


def test_gspo_at_old_policy_has_the_reinforce_gradient():
    first, second = LOGPROBS.clone().requires_grad_(), LOGPROBS.clone().requires_grad_()
    loss, metrics = gspo(first, LOGPROBS, ADVANTAGES, MASK, clip=3e-4)
    loss.backward()
    reinforce(second, ADVANTAGES, MASK)[0].backward()
    assert torch.equal(first.grad, second.grad)
    assert {name: float(x) for name, x in metrics.items()} == {"ratio": 1.0, "clip_fraction": 0.0, "approx_kl": 0.0}


def test_gspo_by_hand():
    # ratios 4 and 1/4 of one row: their geometric mean is 1, so nothing is clipped; row 2: 2 and 2 is clipped at 1.1
    old = torch.zeros(2, 2)
    logprobs = torch.tensor([[math.log(4), -math.log(4)], [math.log(2), math.log(2)]], requires_grad=True)
    loss, metrics = gspo(logprobs, old, torch.ones(2, 1), torch.ones(2, 2).bool(), clip=0.1)
    assert loss.item() == pytest.approx(-(1 + 1 + 1.1 + 1.1) / 4)
    assert metrics["clip_fraction"] == pytest.approx(0.5)
    loss.backward()
    # s·A/n on each unit of the first row, by its own log-probability; none on the clipped row
    torch.testing.assert_close(logprobs.grad, torch.tensor([[-0.25, -0.25], [0.0, 0.0]]))


def test_gspo_with_one_advantage_a_row_has_the_sequence_ratios_gradient():
    generator = torch.Generator().manual_seed(0)
    old = -torch.rand(3, 4, generator=generator)
    logprobs = (old + 0.1 * torch.randn(3, 4, generator=generator)).requires_grad_()
    mask = torch.tensor([[1, 1, 1, 1], [1, 1, 0, 0], [0, 1, 0, 1]]).bool()
    advantages = torch.tensor([[1.0], [-2.0], [0.5]])
    weights = aggregation_weights(mask, "sequence")
    gspo(logprobs, old, advantages, mask, clip=10.0, weights=weights)[0].backward()
    found = logprobs.grad.clone()
    logprobs.grad = None
    gaps = ((logprobs - old) * mask).sum(1) / mask.sum(1)
    (-(gaps.exp() * advantages[:, 0]).mean()).backward()
    torch.testing.assert_close(found, logprobs.grad)


def test_cispo_keeps_a_bounded_gradient_where_ppo_has_none():
    old, advantage = units(0.0), units(1.0)
    logprobs = units(math.log(3)).requires_grad_()
    loss, metrics = cispo(logprobs, old, advantage, ALL, clip=0.2, clip_high=0.5)
    loss.backward()
    assert logprobs.grad.item() == pytest.approx(-1.5)
    assert metrics["clip_fraction"] == 1.0
    again = units(math.log(3)).requires_grad_()
    ppo_clip(again, old, advantage, ALL, clip=0.2, clip_high=0.5)[0].backward()
    assert again.grad.item() == 0.0


@pytest.mark.parametrize("loss", [gspo, cispo])
def test_what_is_outside_the_mask_gets_no_gradient_from_newer_losses(loss):
    logprobs = LOGPROBS.clone().requires_grad_()
    loss(logprobs, LOGPROBS, ADVANTAGES, MASK, clip=0.2)[0].backward()
    assert torch.equal(logprobs.grad[~MASK], torch.zeros_like(logprobs.grad[~MASK]))


def test_aggregation_by_hand():
    # rows of 4 and 2 counted units, and one that counts nothing
    mask = torch.tensor([[1, 1, 1, 1], [1, 1, 0, 0], [0, 0, 0, 0]]).bool()
    x = torch.tensor([[1.0, 2.0, 3.0, 4.0], [10.0, 20.0, NAN, NAN], [NAN] * 4])

    def mean(weights):
        return float((weights * torch.where(mask, x, 0.0)).sum() / mask.sum())

    assert mean(aggregation_weights(mask, "token")) == pytest.approx(40 / 6)
    assert mean(aggregation_weights(mask, "sequence")) == pytest.approx((2.5 + 15) / 2)
    assert mean(aggregation_weights(mask, "constant", horizon=8)) == pytest.approx((10 / 8 + 30 / 8) / 2)
    with pytest.raises(ValueError, match="needs a horizon"):
        aggregation_weights(mask, "constant")
