from dataclasses import replace

import pytest
import torch

from lookact.data.sequences import Sequences
from lookact.recipes.world_duel.config import PRESETS, World
from lookact.recipes.world_duel.model import open_world
from lookact.recipes.world_duel.update import (
    Learner,
    Window,
    foresight_loss,
    learn_film,
    memory_before,
    remember_all,
    scenes,
    to_film,
    token_errors,
    window_loss,
)
from lookact.training.optim import NonFiniteGuard, build_adamw

CONFIG = replace(PRESETS["debug"], world=World(env="hidden", rows=2, steps_per_episode=8))
ROWS, STEPS = 3, 8


@pytest.fixture(scope="module")
def world():
    model = open_world(CONFIG)
    model.vq.codebooks.normal_(generator=torch.Generator().manual_seed(0))
    return model


def sequences(world, rows=ROWS, steps=STEPS, seed=0):
    generator = torch.Generator().manual_seed(seed)
    tokens, codes = world.vq.spec.tokens, world.vq.spec.codes
    return Sequences(
        wrist=torch.randint(codes, (rows, steps + 1, tokens), generator=generator).to(torch.int16),
        head=torch.randint(codes, (rows, steps + 1, tokens), generator=generator).to(torch.int16),
        head_seen=torch.ones(rows, dtype=torch.bool),
        state=torch.rand(rows, steps + 1, 1, generator=generator),
        actions=2 * torch.rand(rows, steps, 8, generator=generator) - 1,
        text_ids=world.read(["remember"] * rows),
        counts=torch.ones(rows, steps, dtype=torch.bool),
    )


def loss_of(world, film, window, **options):
    return window_loss(world, film, window, torch.zeros(ROWS, dtype=torch.long), stride=1, **options)


def test_within_a_window_gradients_reach_the_first_frame_and_across_windows_they_do_not(world):
    plain = to_film(world, sequences(world))
    film = replace(plain, frames=plain.frames.clone().requires_grad_())
    _, _, carry = loss_of(world, film, Window(0, 4, world.memory.initial(ROWS)))
    # only the last step counts: frames 0 to 3 are in its history, 4 is the window's first and 3 lies before it
    counts = torch.zeros_like(film.counts)
    counts[:, 7] = True
    loss, _, _ = loss_of(world, replace(film, counts=counts), Window(4, 8, carry))
    loss.backward()
    reached = film.frames.grad.flatten(2).abs().sum(dim=2)
    assert (reached[:, 4] > 0).all()
    assert (reached[:, :4] == 0).all()


def test_with_a_history_of_two_frames_memory_alone_carries_the_gradient_back(world):
    model = open_world(replace(CONFIG, model=replace(CONFIG.model, history=2)))
    model.vq.codebooks.copy_(world.vq.codebooks)
    plain = to_film(model, sequences(model))
    counts = torch.zeros_like(plain.counts)
    counts[:, 7] = True
    for backprop in (True, False):
        model.memory.backprop = backprop
        film = replace(plain, frames=plain.frames.clone().requires_grad_(), counts=counts)
        loss, _, _ = loss_of(model, film, Window(4, 8, memory_before(model, plain, 4)))
        loss.backward()
        assert bool((film.frames.grad[:, 4].abs().sum() > 0) == backprop)


def test_windows_in_turn_remember_as_the_whole_does(world):
    film = to_film(world, sequences(world))
    whole = remember_all(world, film)
    _, _, carry = loss_of(world, film, Window(0, 5, world.memory.initial(ROWS)))
    torch.testing.assert_close(carry[-1], whole[:, 4])
    torch.testing.assert_close(memory_before(world, film, 5)[-1], whole[:, 4])


def test_one_rows_episode_leaves_the_others_memory_untouched(world):
    film = to_film(world, sequences(world))
    other = replace(film, frames=film.frames.clone())
    other.frames[1] += 1.0
    one, two = remember_all(world, film), remember_all(world, other)
    assert one[[0, 2]].equal(two[[0, 2]])
    assert not one[1].equal(two[1])


def test_steps_that_do_not_count_touch_neither_loss_nor_gradient(world):
    results = []
    for fill in (0, 5):
        world.zero_grad()
        made = sequences(world)
        made.wrist[0, 5:] = fill
        made.actions[0, 4:] = 0.1 * fill
        made.counts[0, 4:] = False
        loss, _, _ = loss_of(world, to_film(world, made), Window(0, 8, world.memory.initial(ROWS)))
        loss.backward()
        results.append((loss.detach(), next(world.foresight.parameters()).grad.clone()))
    torch.testing.assert_close(*(loss for loss, _ in results), rtol=0, atol=0)
    torch.testing.assert_close(*(gradient for _, gradient in results))


def test_each_member_passes_over_its_own_fold():
    logits = torch.zeros(2, 2, 1, 4, requires_grad=True)
    loss = foresight_loss(
        logits, torch.zeros(2, 1, dtype=torch.long), torch.ones(2, dtype=torch.bool), torch.tensor([0, 1])
    )
    assert loss.item() == pytest.approx(torch.tensor(4.0).log().item())
    loss.backward()
    learned = logits.grad.abs().sum(dim=(2, 3)) > 0
    assert learned.tolist() == [[False, True], [True, False]]


def test_errors_are_minus_log_probabilities():
    logits = torch.tensor([[[0.0, 0.0], [100.0, 0.0]]])
    assert token_errors(logits, torch.tensor([[1, 0]])).tolist()[0] == pytest.approx([0.6931, 0.0], abs=1e-4)


def test_scenes_hold_the_frames_before_the_actions(world):
    film = to_film(world, sequences(world))
    scene, action = scenes(world, film, torch.tensor([5]), remember_all(world, film)[:, 5:6], stride=1)
    assert scene.frames.equal(film.frames[:, 2:6])
    assert scene.past.equal(film.actions[:, 2:5])
    assert action.equal(film.actions[:, 5])


@pytest.mark.parametrize("head", ["flow", "gaussian"])
def test_the_action_expert_learns_from_what_was_done_where_it_is_asked_to(head):
    model = open_world(replace(CONFIG, model=replace(CONFIG.model, action_head=head)))
    film = to_film(model, sequences(model))
    start = Window(0, 8, model.memory.initial(ROWS))
    loss, metrics, _ = loss_of(model, film, start, action_weight=1.0, generator=torch.Generator().manual_seed(0))
    loss.backward()
    assert metrics["loss/action"] > 0
    assert model.actions.output.weight.grad[:8].abs().min() > 0
    assert model.actions.output.weight.grad[8:].abs().max() == 0


@pytest.mark.parametrize("sequential", [True, False])
def test_learning_lowers_the_loss(world, sequential):
    model = open_world(CONFIG)
    model.vq.codebooks.copy_(world.vq.codebooks)
    film = to_film(model, sequences(model))
    learner = Learner(build_adamw({"world": model}, lr=3e-3), NonFiniteGuard(), 1.0)
    options = {"length": 4, "stride": 1, "sequential": sequential, "action_weight": 0.0}
    losses = [
        learn_film(model, film, torch.arange(ROWS) % 2, learner, seed=step, **options)["loss/world"]
        for step in range(6)
    ]
    assert losses[-1] < losses[0] - 0.1
