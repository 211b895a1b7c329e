"""The action expert attends to the next frame as the generation expert predicts it, never to the true one."""

from dataclasses import replace

import pytest
import torch

from lookact.algorithms.world_model import action_loss, draw_action_seen, encode_sequences, inputs_at, run_memory
from lookact.batch import ControlInputs
from lookact.data.sequences import TokenSequences
from lookact.errors import ConfigError
from lookact.models.world_model.explorer import Explorer
from lookact.models.world_model.loading import build_world_model, open_tokenizer, owner_of
from lookact.models.world_model.model import WorldModelSpec, mean_logits
from lookact.models.world_model.vq import VQSpec

SPEC = WorldModelSpec(
    state_size=3, action_size=2, vq=VQSpec(16, 8, 4, (1, 2), 8), state_dim=6, action_dim=5, width=16, layers=2,
    heads=2, memory=6, members=2, chunk=3
)  # fmt: skip
ROWS, STEPS, NOW = 4, 6, 2


def make(*, foresight, head="gaussian"):
    tokenizer = open_tokenizer("tiny", ["reach the cube"], None)
    spec = replace(SPEC, foresight=foresight, action_head=head)
    model = build_world_model(spec, text="tiny", tokenizer=tokenizer, seed=0)
    model.vq.codebooks.normal_(generator=torch.Generator().manual_seed(0))
    with torch.no_grad():
        # a fresh mean, or velocity, is nearly zero
        model.action_head.output.weight.mul_(100)
    return model


@pytest.fixture(scope="module")
def on():
    return make(foresight=True)


@pytest.fixture(scope="module")
def off():
    return make(foresight=False)


def sequences(model, seed=1):
    generator = torch.Generator().manual_seed(seed)
    ids = torch.randint(8, (2, ROWS, STEPS + 1, 5), generator=generator).to(torch.int16)
    return TokenSequences(
        wrist=ids[0],
        head=ids[1],
        head_seen=torch.ones(ROWS, dtype=torch.bool),
        state=torch.rand(ROWS, STEPS + 1, 3, generator=generator),
        actions=2 * torch.rand(ROWS, STEPS, 2, generator=generator) - 1,
        text_ids=model.tokenize(["reach the cube"] * ROWS),
        mask=torch.ones(ROWS, STEPS, dtype=torch.bool),
    )


def inputs_of(model, made):
    encoded = encode_sequences(model, made)
    times = torch.tensor([NOW])
    return encoded, *inputs_at(model, encoded, times, run_memory(model, encoded)[:, times], stride=1)


def means(model, inputs):
    return model.action_head.mean(model.action_hidden(inputs, model.action_head.query_tokens(ROWS)))


@pytest.mark.parametrize("token", range(5))
def test_every_token_of_the_foresight_matters_to_the_action_and_to_none_without_it(on, off, token):
    for model, matters in ((on, True), (off, False)):
        _, inputs, _ = inputs_of(model, sequences(model))
        ids = torch.zeros(ROWS, 5, dtype=torch.long)
        other = ids.clone()
        other[:, token] = 3
        one, two = (means(model, replace(inputs, foresight=x)) for x in (ids, other))
        changed = (one - two).abs().flatten(1).max(dim=1).values > 1e-6
        assert changed.tolist() == [matters] * ROWS


def test_what_is_attended_to_is_what_the_generation_expert_predicts_without_the_action(on):
    _, inputs, action = inputs_of(on, sequences(on))
    assert inputs.foresight is None
    predicted = on.generate(inputs, None)
    torch.testing.assert_close(means(on, inputs), means(on, replace(inputs, foresight=predicted)))
    assert on.with_foresight(inputs).foresight.equal(predicted)
    # the action is not told: another one leaves the foresight, and changes what is predicted with it
    untold, logits = (
        [on.predict(inputs, sign * action, predicted, seen) for sign in (1, -1)]
        for seen in (torch.zeros(ROWS, dtype=torch.bool), torch.ones(ROWS, dtype=torch.bool))
    )
    assert untold[0].equal(untold[1])
    torch.testing.assert_close(untold[0], on.predict(inputs, None, predicted))
    assert not torch.allclose(logits[0], logits[1])


@pytest.mark.parametrize("head", ["gaussian", "flow"])
def test_nothing_of_the_true_future_reaches_the_action(head):
    model = make(foresight=True, head=head)
    made, scrambled = sequences(model), sequences(model, seed=2)
    for name in ("wrist", "head", "state"):
        getattr(scrambled, name)[:, : NOW + 1] = getattr(made, name)[:, : NOW + 1]
    # what is cloned is the same, or the losses could not be
    scrambled = replace(scrambled, actions=made.actions)
    losses, hidden = [], []
    for one in (made, scrambled):
        encoded, inputs, _ = inputs_of(model, one)
        generator = torch.Generator().manual_seed(3)
        losses.append(float(action_loss(model, encoded, inputs, torch.tensor([NOW]), generator).detach()))
        hidden.append(model.action_hidden(inputs, torch.ones(ROWS, 3, 16)))
    assert losses[0] == losses[1]
    assert hidden[0].equal(hidden[1])
    # the present does matter
    scrambled.wrist[:, NOW] = scrambled.wrist[:, NOW + 1]
    assert not model.action_hidden(inputs_of(model, scrambled)[1], torch.ones(ROWS, 3, 16)).equal(hidden[0])


def test_the_actions_gradient_reaches_the_generation_expert_through_the_foresight(on):
    on.zero_grad()
    _, inputs, _ = inputs_of(on, sequences(on))
    means(on, inputs).sum().backward()
    assert on.foresight.weight.grad.abs().max() > 0
    assert on.pos_foresight.grad.abs().min(dim=1).values.max() > 0
    assert on.no_action.grad is None
    assert (owner_of("foresight.weight"), owner_of("pos_foresight"), owner_of("no_action")) == (
        "action", "action", "generation"
    )  # fmt: skip


def test_without_foresight_the_model_is_the_one_that_it_was(on, off):
    added = {"foresight.weight", "foresight.bias", "pos_foresight", "no_action"}
    assert set(on.state_dict()) - set(off.state_dict()) == added
    assert all(on.state_dict()[name].equal(x) for name, x in off.state_dict().items())
    assert draw_action_seen(off, 4, None) is None
    with pytest.raises(ConfigError, match=r"set model\.foresight"):
        off.generate(inputs_of(off, sequences(off))[1], None)


def test_about_half_of_the_rows_are_told_the_action_in_training(on):
    seen = draw_action_seen(on, 4000, torch.Generator().manual_seed(0))
    assert seen.dtype == torch.bool
    assert 1900 < int(seen.sum()) < 2100


@pytest.mark.parametrize("head", ["gaussian", "flow"])
def test_an_explorer_acts_on_its_foresight_by_the_cameras_that_it_has(head):
    model = make(foresight=True, head=head)
    explorer, both = Explorer(model), Explorer(model, cameras=("wrist", "head"))
    made, noise = sequences(model), torch.zeros(ROWS, explorer.spec.sample_size)
    first = ControlInputs(
        actions=noise,
        state=made.state[:, 0],
        images={"wrist": made.wrist[:, 0].long(), "head": made.head[:, 0].long()},
        text_ids=made.text_ids,
        history=torch.zeros(ROWS, 3, 2),
        carry=explorer.start_carry(ROWS),
    )
    observed, _ = explorer.observe(first)
    assert observed.foresight.equal(model.generate(replace(observed, foresight=None), None))
    other = replace(first, images=first.images | {"head": made.head[:, 1].long()})
    drawn = [policy.sample(x, noise)[0] for policy in (explorer, both) for x in (first, other)]
    assert drawn[0].equal(drawn[1])
    assert not torch.allclose(drawn[2], drawn[3])
    # scored as it was drawn
    output = both(replace(first, actions=drawn[2]))
    if head == "flow":
        torch.testing.assert_close(output.mean[:, 0], drawn[2], rtol=1e-4, atol=1e-5)
    else:
        torch.testing.assert_close(output.mean[:, 0], drawn[2])


@pytest.mark.parametrize("told", [True, False])
def test_tokens_are_generated_as_predicting_scale_by_scale_decodes_them(on, told):
    _, inputs, action = inputs_of(on, sequences(on))
    action = action if told else None
    ids = torch.zeros(ROWS, 5, dtype=torch.long)
    for start, end in ((0, 1), (1, 5)):
        ids[:, start:end] = mean_logits(on.predict(inputs, action, ids)).argmax(dim=-1)[:, start:end]
    assert on.generate(inputs, action).equal(ids)
