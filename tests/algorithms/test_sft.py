import dataclasses
import json
from itertools import chain
from types import SimpleNamespace

import numpy as np
import pytest
import torch

from lookact.algorithms import sft
from lookact.algorithms.sft import demonstration_segments, fit, phase_log, sft_loss
from lookact.algorithms.vlm import template_of
from lookact.algorithms.vlm_settings import SFT, VisionPretraining
from lookact.data.demonstrations import demo_episode
from lookact.data.packing import micro_batches, shuffled, to_segments
from lookact.recipes.rloo.evaluate import open_policy
from lookact.tasks.navigation import NavigationTask
from lookact.training.optim import accumulate
from lookact.types import Demonstration, Observation


def demo(number):
    """A picture whose shade says what to reply; the second reply is noise that nobody should learn."""
    shade = np.full((32, 32, 3), 30 * number, np.uint8)
    seen = tuple(Observation(text="Go.", images={"head": shade}) for _ in range(2))
    replies = (f'{{"rotation_angle_degrees": {15 * number}}}', f"noise {number * 7919 % 97}")
    return Demonstration(seen, replies, (True, False))


@pytest.fixture
def segments(chat):
    template = template_of(chat)
    return {i: to_segments(demo_episode(demo(i), template, name=f"{i}"))[0] for i in range(8)}


@pytest.mark.slow
def test_eight_demonstrations_are_learned_by_heart_and_the_noise_in_them_is_not(chat, segments):
    told = []
    fit(
        chat, segments, total=8, epochs=40, batch_size=8, lr=4e-3, token_budget=4096, seed=0,
        report=lambda metrics, step: told.append((step, metrics["loss/sft"])),
    )  # fmt: skip
    assert [step for step, _ in told] == list(range(1, 41))
    assert told[0][1] > 1.5
    assert told[-1][1] < 0.1
    noise = {i: dataclasses.replace(segment, mask=~segment.mask) for i, segment in segments.items()}
    with torch.no_grad():
        losses = [sft_loss(chat)(batch)[0] for batch in micro_batches(chat, list(noise.values()), 4096)]
    assert min(losses) > 1.0


def test_small_micro_batches_give_the_gradient_of_the_whole(chat, segments):
    gradients = []
    for budget in (64, 100_000):
        batches = micro_batches(chat, list(segments.values()), budget)
        chat.zero_grad()
        loss, _ = accumulate(batches, sft_loss(chat), lambda batch: batch.mask.sum())
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
        chat, half, total=8, epochs=1, batch_size=2, lr=1e-3, token_budget=4096, seed=0,
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


@pytest.fixture(scope="module")
def policy(nav_config, tmp_path_factory):
    return open_policy(nav_config, tmp_path_factory.mktemp("start") / "model")


def demonstrations_of(nav_config, policy, count):
    task, settings = NavigationTask(nav_config.env), SFT(demonstrations=count, noise=0.5)
    return demonstration_segments(policy, task, settings, seed=0, system="")


def test_processes_share_the_demonstrations_and_together_have_them_all(nav_config, policy, monkeypatch):
    alone = demonstrations_of(nav_config, policy, 5)
    monkeypatch.setattr(sft, "world_size", lambda: 2)
    shares = []
    for me in (0, 1):
        monkeypatch.setattr(sft, "rank", lambda me=me: me)
        shares.append(demonstrations_of(nav_config, policy, 5))
    assert (sorted(shares[0]), sorted(shares[1]), sorted(alone)) == ([0, 2, 4], [1, 3], [0, 1, 2, 3, 4])
    for share in shares:
        for number, segment in share.items():
            assert np.array_equal(segment.ids, alone[number].ids)
            assert np.array_equal(segment.mask, alone[number].mask)


def test_processes_share_the_pretraining_images_by_room(nav_config, policy, monkeypatch):
    seen = []
    pretrain = lambda chat, images, total, **how: seen.append((sorted(images), total))  # noqa: E731
    monkeypatch.setattr(sft, "pretrain_vision", pretrain)
    monkeypatch.setattr(sft, "phase_log", lambda run, phase: None)
    monkeypatch.setattr(sft, "world_size", lambda: 2)
    for me in (0, 1):
        monkeypatch.setattr(sft, "rank", lambda me=me: me)
        task, vision = NavigationTask(nav_config.env), VisionPretraining(rooms=3)
        sft.pretrain_on_rooms(policy, task, None, vision, seed=0, lr=1e-3)
    assert seen == [([0, 1, 2, 3, 8, 9, 10, 11], 12), ([4, 5, 6, 7], 12)]


def test_moves_that_noise_put_in_are_read_and_never_learned(nav_config, policy):
    segments = demonstrations_of(nav_config, policy, 8).values()
    # a turn's reply counts wholly or not at all, and some do not
    shares = {s.mask[s.turns == turn].mean() for s in segments for turn in range(s.turns[-1] + 1)}
    assert shares == {0.0, 1.0}


def test_a_start_that_could_not_be_measured_is_not_trained_again(nav_config, tmp_path, monkeypatch):
    run, task = SimpleNamespace(folder=tmp_path), NavigationTask(nav_config.env)
    settings = {"vision": VisionPretraining(), "sft": SFT(demonstrations=2, epochs=1), "seed": 0, "system": ""}

    def start(measure):
        policy = open_policy(nav_config, tmp_path / "model")
        seconds = sft.supervised_start(policy, task, run, **settings, token_budget=4096)
        return policy, sft.measured_start(run, seconds, measure)

    def fails():
        raise RuntimeError("out of memory")

    with pytest.raises(RuntimeError):
        start(fails)
    monkeypatch.setattr(sft, "fit", lambda *_, **__: pytest.fail("trained a second time"))
    policy, told = start(lambda: {"success": 0.5})
    assert told["reports"] == {"success": 0.5}
    assert told["seconds"].keys() == {"vision pretraining", "sft", "evaluation after sft"}
    again, told_again = start(fails)
    assert told_again == told
    untrained = open_policy(nav_config, tmp_path / "model")
    assert torch.equal(policy.output_weight, again.output_weight)
    assert not torch.equal(policy.output_weight, untrained.output_weight)


def test_a_phase_begun_again_writes_its_numbers_anew(tmp_path):
    run = SimpleNamespace(folder=tmp_path)
    for losses in ((3.0, 2.0), (1.0,)):
        log = phase_log(run, "sft")
        for step, loss in enumerate(losses, start=1):
            log({"loss/sft": loss}, step)
    (line,) = (tmp_path / "sft/sft.jsonl").read_text().splitlines()
    assert json.loads(line) == {"step": 1, "loss/sft": 1.0}
