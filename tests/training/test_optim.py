import math

import pytest
import torch
from torch import nn

from lookact.errors import ConfigError, TrainingStopped
from lookact.training.optim import (
    NonFiniteGuard,
    accumulate,
    build_adamw,
    clip_and_step,
    learning_rate,
    set_learning_rate,
)


class Policy(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.body = nn.Linear(3, 4)
        self.norm = nn.LayerNorm(4)
        self.value_head = nn.Linear(4, 1)


def test_groups_have_their_own_rates_and_norms_and_biases_do_not_decay():
    policy = Policy()
    optimizer = build_adamw(
        {"value_head": policy.value_head, "policy": policy},
        lr={"value_head": 3e-3, "policy": 1e-4},
        weight_decay=0.1,
    )
    found = {group["name"]: (group["lr"], group["weight_decay"], group["params"]) for group in optimizer.param_groups}
    assert found == {
        "value_head": (3e-3, 0.1, [policy.value_head.weight]),
        "value_head/no_decay": (3e-3, 0.0, [policy.value_head.bias]),
        "policy": (1e-4, 0.1, [policy.body.weight]),
        "policy/no_decay": (1e-4, 0.0, [policy.body.bias, policy.norm.weight, policy.norm.bias]),
    }


def test_frozen_parameters_are_left_out_and_all_frozen_is_refused():
    policy = Policy().requires_grad_(False)
    policy.body.weight.requires_grad_(True)
    optimizer = build_adamw({"policy": policy}, lr=1e-3)
    assert [group["params"] for group in optimizer.param_groups] == [[policy.body.weight]]
    with pytest.raises(ConfigError, match="nothing to train: no parameter of policy"):
        build_adamw({"policy": policy.requires_grad_(False)}, lr=1e-3)


@pytest.mark.parametrize(
    ("schedule", "expected"),
    [
        ("constant", {1: 0.5, 2: 1.0, 6: 1.0, 10: 1.0, 99: 1.0}),
        ("linear", {1: 0.5, 2: 1.0, 6: 0.6, 10: 0.2, 99: 0.2}),
        ("cosine", {1: 0.5, 2: 1.0, 4: 0.2 + 0.8 * (0.5 + math.sqrt(0.125)), 6: 0.6, 10: 0.2, 99: 0.2}),
    ],
)
def test_schedules_warm_up_and_come_down_to_the_floor(schedule, expected):
    rates = {step: learning_rate(step, peak=1.0, warmup=2, total=10, schedule=schedule, floor=0.2) for step in expected}
    assert rates == pytest.approx(expected)


@pytest.mark.parametrize("schedule", ["linear", "cosine"])
def test_without_a_floor_the_last_update_still_learns(schedule):
    rates = [learning_rate(step, peak=1.0, warmup=2, total=6, schedule=schedule) for step in range(1, 7)]
    assert rates[-1] == rates[-2] > 0
    assert learning_rate(6, peak=1.0, warmup=2, total=6, schedule=schedule, floor=0.0) == pytest.approx(0.0)


def test_weights_in_half_precision_are_refused():
    policy = Policy().bfloat16()
    with pytest.raises(ConfigError, match="rounds small steps away: set --model"):
        build_adamw({"policy": policy}, lr=1e-6)


def test_no_warmup_and_all_warmup():
    assert learning_rate(0, peak=2.0, total=4, schedule="linear") == 2.0
    assert learning_rate(3, peak=2.0, warmup=4, total=4, schedule="linear") == 1.5


def test_each_group_follows_its_own_peak():
    policy = Policy()
    optimizer = build_adamw({"value_head": policy.value_head, "body": policy.body}, lr={"value_head": 4.0, "body": 2.0})
    metrics = set_learning_rate(optimizer, 1, warmup=4, total=10)
    assert [group["lr"] for group in optimizer.param_groups] == [1.0, 1.0, 0.5, 0.5]
    assert metrics == {"optim/lr": 0.5}


def masked_square(model, x, mask):
    error = model(x).squeeze(-1).square()
    loss = (error * mask).sum() / mask.sum()
    return loss, {"loss/error": loss.detach()}


def test_ragged_micro_batches_equal_one_batch():
    torch.manual_seed(0)
    model, x = nn.Linear(3, 1).double(), torch.randn(7, 5, 3).double()
    mask = torch.rand(7, 5) < 0.4
    mask[2:4] = False
    assert mask.sum() > 0

    def gradient(pieces):
        model.zero_grad()
        loss, metrics = accumulate(
            pieces, lambda rows: masked_square(model, x[rows], mask[rows]), lambda r: mask[r].sum()
        )
        return loss, metrics, model.weight.grad.clone()

    whole, whole_metrics, whole_gradient = gradient([slice(0, 7)])
    loss, metrics, pieces_gradient = gradient([slice(0, 1), slice(1, 2), slice(2, 4), slice(4, 7)])
    with torch.no_grad():
        expected, _ = masked_square(model, x, mask)
    assert whole == pytest.approx(float(expected), abs=1e-12)
    assert loss == pytest.approx(whole, abs=1e-12)
    assert metrics == pytest.approx(whole_metrics, abs=1e-12)
    assert torch.allclose(pieces_gradient, whole_gradient, atol=1e-6, rtol=1e-5)
    assert whole_gradient.abs().max() > 0.01


def test_a_batch_where_nothing_counts_moves_nothing():
    model = nn.Linear(3, 1)
    before = model.weight.clone()
    mask = torch.zeros(2, 5, dtype=torch.bool)
    loss, metrics = accumulate(
        [0, 1], lambda i: masked_square(model, torch.ones(5, 3), mask[i]), lambda i: mask[i].sum()
    )
    clip_and_step(
        build_adamw({"m": model}, lr=1.0), model.parameters(), max_norm=1.0, guard=NonFiniteGuard(), loss=loss
    )
    assert (loss, metrics) == (0.0, {})
    assert torch.equal(model.weight, before)


def test_the_gradient_is_clipped_and_the_norm_before_it_reported():
    weight = nn.Parameter(torch.zeros(2))
    optimizer = torch.optim.SGD([weight], lr=1.0)
    weight.grad = torch.tensor([3.0, 4.0])
    metrics = clip_and_step(optimizer, [weight], max_norm=1.0, guard=NonFiniteGuard())
    assert metrics == {"optim/grad_norm": 5.0, "optim/skipped": 0.0}
    assert weight.tolist() == pytest.approx([-0.6, -0.8], abs=1e-5)
    assert weight.grad is None


@pytest.mark.parametrize(("gradient", "loss"), [(math.nan, 0.0), (math.inf, 0.0), (1.0, math.nan)])
def test_a_step_that_is_not_finite_is_skipped_and_too_many_stop_the_run(gradient, loss):
    weight = nn.Parameter(torch.zeros(1))
    optimizer = torch.optim.AdamW([weight], lr=1.0)
    guard = NonFiniteGuard(limit=3)

    def step(gradient, loss):
        weight.grad = torch.tensor([gradient])
        return clip_and_step(optimizer, [weight], max_norm=1.0, guard=guard, loss=loss)

    assert [step(gradient, loss)["optim/skipped"] for _ in range(2)] == [1.0, 2.0]
    assert weight.item() == 0.0
    assert optimizer.state_dict()["state"] == {}
    step(1.0, 0.0)
    assert weight.item() != 0.0
    step(gradient, loss)
    resumed = NonFiniteGuard(limit=3)
    resumed.load_state_dict(guard.state_dict())
    guard = resumed
    step(gradient, loss)
    with pytest.raises(TrainingStopped, match="3 skipped steps in a row"):
        step(gradient, loss)
