import dataclasses
from itertools import chain

import numpy as np
import pytest
import torch

from lookact.algorithms.sft import fit, imitation_of, micro_batches, shuffled
from lookact.algorithms.vlm import script_of
from lookact.data.demos import Demo, demo_episode
from lookact.data.segments import cut
from lookact.training.optim import accumulate
from lookact.types import Observation


def demo(number):
    """A picture whose shade says what to reply; the second reply is noise that nobody should learn."""
    shade = np.full((32, 32, 3), 30 * number, np.uint8)
    seen = tuple(Observation(text="Go.", images={"head": shade}) for _ in range(2))
    replies = (f'{{"rotation_angle_degrees": {15 * number}}}', f"noise {number * 7919 % 97}")
    return Demo(seen, replies, (True, False))


@pytest.fixture
def segments(chat):
    script = script_of(chat)
    return {i: cut(demo_episode(demo(i), script, name=f"{i}"))[0] for i in range(8)}


@pytest.mark.slow
def test_eight_demonstrations_are_learned_by_heart_and_the_noise_in_them_is_not(chat, segments):
    told = []
    fit(
        chat, segments, total=8, epochs=40, rows=8, lr=4e-3, token_budget=4096, seed=0,
        report=lambda metrics, step: told.append((step, metrics["loss/imitation"])),
    )  # fmt: skip
    assert [step for step, _ in told] == list(range(1, 41))
    assert told[0][1] > 1.5
    assert told[-1][1] < 0.1
    noise = {i: dataclasses.replace(segment, mask=~segment.mask) for i, segment in segments.items()}
    with torch.no_grad():
        losses = [imitation_of(chat)(batch)[0] for batch in micro_batches(chat, list(noise.values()), 4096)]
    assert min(losses) > 1.0


def test_small_micro_batches_give_the_gradient_of_the_whole(chat, segments):
    gradients = []
    for budget in (64, 100_000):
        batches = micro_batches(chat, list(segments.values()), budget)
        chat.zero_grad()
        loss, _ = accumulate(batches, imitation_of(chat), lambda batch: batch.mask.sum())
        gradients.append((len(batches), loss, chat.output_weight.grad.clone()))
    (many, loss_many, grad_many), (one, loss_one, grad_one) = gradients
    assert (many > 3, one) == (True, 1)
    assert loss_many == pytest.approx(loss_one, rel=1e-5)
    torch.testing.assert_close(grad_many, grad_one, atol=1e-6, rtol=1e-4)


def test_micro_batches_stay_within_the_budget_and_hold_every_row(chat, segments):
    batches = micro_batches(chat, list(segments.values()), 120)
    assert sum(len(batch.mask) for batch in batches) == 8
    assert all(len(batch.mask) == 1 or batch.inputs.ids.numel() <= 120 for batch in batches)
    assert micro_batches(chat, [], 120) == []


def test_rows_of_other_processes_are_passed_over(chat, segments):
    told = []
    half = {i: segments[i] for i in (1, 3)}
    fit(
        chat, half, total=8, epochs=1, rows=2, lr=1e-3, token_budget=4096, seed=0,
        report=lambda metrics, step: told.append(metrics),
    )  # fmt: skip
    assert len(told) == 4
    assert any(metrics["optim/grad_norm"] == 0.0 for metrics in told)


def test_each_epoch_takes_every_index_once_in_an_order_of_its_own():
    first, second = shuffled(10, 4, 0, 0), shuffled(10, 4, 0, 1)
    assert [len(batch) for batch in first] == [4, 4, 2]
    assert sorted(chain(*first)) == sorted(chain(*second)) == list(range(10))
    assert first != second
    assert first == shuffled(10, 4, 0, 0) != shuffled(10, 4, 1, 0)
