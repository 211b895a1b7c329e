from dataclasses import replace

import pytest
import torch

from lookact.algorithms.world_model import (
    encode_sequences,
    inputs_at,
    memory_state_at,
    next_token_loss,
    run_memory,
    token_nll,
)
from lookact.data.sequences import TokenSequences
from lookact.recipes.world_duel.config import PRESETS, EnvConfig
from lookact.recipes.world_duel.data import open_state
from lookact.recipes.world_duel.f1.models import open_model
from lookact.recipes.world_duel.train import fit_world_model, world_model_loss
from lookact.training.optim import build_adamw

CONFIG = replace(PRESETS["debug"], env=EnvConfig(name="memory_curtain", num_envs=2, steps_per_episode=8))
ROWS, STEPS = 3, 8


@pytest.fixture(scope="module")
def world_model():
    model = open_model(CONFIG)
    model.vq.codebooks.normal_(generator=torch.Generator().manual_seed(0))
    return model


def sequences(world_model, rows=ROWS, steps=STEPS, seed=0):
    generator = torch.Generator().manual_seed(seed)
    tokens, codes = world_model.vq.spec.tokens, world_model.vq.spec.codes
    return TokenSequences(
        wrist=torch.randint(codes, (rows, steps + 1, tokens), generator=generator).to(torch.int16),
        head=torch.randint(codes, (rows, steps + 1, tokens), generator=generator).to(torch.int16),
        head_seen=torch.ones(rows, dtype=torch.bool),
        state=torch.rand(rows, steps + 1, 1, generator=generator),
        actions=2 * torch.rand(rows, steps, 8, generator=generator) - 1,
        text_ids=world_model.tokenize(["remember"] * rows),
        mask=torch.ones(rows, steps, dtype=torch.bool),
    )


def loss_of(world_model, encoded, times, carry, **options):
    folds = torch.zeros(ROWS, dtype=torch.long)
    return world_model_loss(world_model, encoded, times, carry, folds, stride=1, **options)


def test_within_a_window_gradients_reach_the_first_frame_and_across_windows_they_do_not(world_model):
    plain = encode_sequences(world_model, sequences(world_model))
    encoded = replace(plain, frames=plain.frames.clone().requires_grad_())
    _, _, carry = loss_of(world_model, encoded, torch.arange(4), world_model.memory.initial(ROWS))
    # only the last step mask: frames 0 to 3 are in its history, 4 is the window's first and 3 lies before it
    mask = torch.zeros_like(encoded.mask)
    mask[:, 7] = True
    loss, _, _ = loss_of(world_model, replace(encoded, mask=mask), torch.arange(4, 8), carry)
    loss.backward()
    reached = encoded.frames.grad.flatten(2).abs().sum(dim=2)
    assert (reached[:, 4] > 0).all()
    assert (reached[:, :4] == 0).all()


def test_with_a_history_of_two_frames_memory_alone_carries_the_gradient_back(world_model):
    model = open_model(replace(CONFIG, model=replace(CONFIG.model, history=2)))
    model.vq.codebooks.copy_(world_model.vq.codebooks)
    plain = encode_sequences(model, sequences(model))
    mask = torch.zeros_like(plain.mask)
    mask[:, 7] = True
    for backprop in (True, False):
        model.memory.backprop = backprop
        encoded = replace(plain, frames=plain.frames.clone().requires_grad_(), mask=mask)
        loss, _, _ = loss_of(model, encoded, torch.arange(4, 8), memory_state_at(model, plain, 4))
        loss.backward()
        assert bool((encoded.frames.grad[:, 4].abs().sum() > 0) == backprop)


def test_windows_in_turn_remember_as_the_whole_does(world_model):
    encoded = encode_sequences(world_model, sequences(world_model))
    whole = run_memory(world_model, encoded)
    _, _, carry = loss_of(world_model, encoded, torch.arange(5), world_model.memory.initial(ROWS))
    torch.testing.assert_close(carry[-1], whole[:, 4])
    torch.testing.assert_close(memory_state_at(world_model, encoded, 5)[-1], whole[:, 4])


def test_one_rows_episode_leaves_the_others_memory_untouched(world_model):
    encoded = encode_sequences(world_model, sequences(world_model))
    other = replace(encoded, frames=encoded.frames.clone())
    other.frames[1] += 1.0
    one, two = run_memory(world_model, encoded), run_memory(world_model, other)
    assert one[[0, 2]].equal(two[[0, 2]])
    assert not one[1].equal(two[1])


def test_steps_that_do_not_count_touch_neither_loss_nor_gradient(world_model):
    results = []
    for fill in (0, 5):
        world_model.zero_grad()
        made = sequences(world_model)
        made.wrist[0, 5:] = fill
        made.actions[0, 4:] = 0.1 * fill
        made.mask[0, 4:] = False
        encoded = encode_sequences(world_model, made)
        loss, _, _ = loss_of(world_model, encoded, torch.arange(8), world_model.memory.initial(ROWS))
        loss.backward()
        results.append((loss.detach(), next(world_model.codebook_head.parameters()).grad.clone()))
    torch.testing.assert_close(*(loss for loss, _ in results), rtol=0, atol=0)
    torch.testing.assert_close(*(gradient for _, gradient in results))


def test_each_member_passes_over_its_own_fold():
    logits = torch.zeros(2, 2, 1, 4, requires_grad=True)
    loss = next_token_loss(
        logits, torch.zeros(2, 1, dtype=torch.long), torch.ones(2, 1, dtype=torch.bool), torch.tensor([0, 1])
    )
    assert loss.item() == pytest.approx(torch.tensor(4.0).log().item())
    loss.backward()
    learned = logits.grad.abs().sum(dim=(2, 3)) > 0
    assert learned.tolist() == [[False, True], [True, False]]


def test_errors_are_minus_log_probabilities():
    logits = torch.tensor([[[0.0, 0.0], [100.0, 0.0]]])
    assert token_nll(logits, torch.tensor([[1, 0]])).tolist()[0] == pytest.approx([0.6931, 0.0], abs=1e-4)


def test_inputs_hold_the_frames_before_the_actions(world_model):
    encoded = encode_sequences(world_model, sequences(world_model))
    memory = run_memory(world_model, encoded)[:, 5:6]
    inputs, action = inputs_at(world_model, encoded, torch.tensor([5]), memory, stride=1)
    assert inputs.frames.equal(encoded.frames[:, 2:6])
    assert inputs.past.equal(encoded.actions[:, 2:5])
    assert action.equal(encoded.actions[:, 5])


@pytest.mark.parametrize("head", ["flow", "gaussian"])
def test_the_action_expert_learns_from_what_was_done_where_it_is_asked_to(head):
    model = open_model(replace(CONFIG, model=replace(CONFIG.model, action_head=head)))
    encoded = encode_sequences(model, sequences(model))
    generator = torch.Generator().manual_seed(0)
    times, carry = torch.arange(8), model.memory.initial(ROWS)
    loss, metrics, _ = loss_of(model, encoded, times, carry, action_loss_coef=1.0, generator=generator)
    loss.backward()
    assert metrics["loss/action"] > 0
    assert model.action_head.output.weight.grad[:8].abs().min() > 0
    assert model.action_head.output.weight.grad[8:].abs().max() == 0


@pytest.mark.parametrize("sequential", [True, False])
def test_learning_lowers_the_loss(world_model, sequential):
    cfg = replace(CONFIG, teacher=replace(CONFIG.teacher, bptt_length=4, sequential_training=sequential))
    state = open_state(cfg, None)
    model = state.world_model
    model.vq.codebooks.copy_(world_model.vq.codebooks)
    state = replace(state, world_model_optimizer=build_adamw({"world_model": model}, lr=3e-3))
    encoded, folds = encode_sequences(model, sequences(model)), torch.arange(ROWS) % 2
    losses = [fit_world_model(state, encoded, folds, cfg, step)["loss/world_model"] for step in range(6)]
    assert losses[-1] < losses[0] - 0.1
