"""A world model of several future frames: shapes, what each may attend to, the loss over all of them, and the actor."""

from dataclasses import replace
from itertools import pairwise

import pytest
import torch

from lookact.algorithms.world_model import (
    action_loss,
    encode_sequences,
    inputs_at,
    next_frames,
    next_token_loss,
    run_memory,
)
from lookact.batch import ControlInputs
from lookact.data.sequences import TokenSequences
from lookact.errors import ConfigError
from lookact.models.world_model.explorer import Explorer
from lookact.models.world_model.loading import build_world_model, open_tokenizer, owner_of
from lookact.models.world_model.model import WorldModelSpec, mean_logits
from lookact.models.world_model.vq import VQSpec

SPEC = WorldModelSpec(
    state_size=3, action_size=2, vq=VQSpec(16, 8, 4, (1, 2), 8), state_dim=6, action_dim=5, width=16, layers=2,
    heads=2, memory=6, members=2, chunk=3, foresight=True
)  # fmt: skip
ROWS, STEPS, FRAMES, TOKENS = 4, 6, 3, 5
LATER = {"pos_frame", "pos_foresight_frame"}


def make(frames, head="gaussian"):
    tokenizer = open_tokenizer("tiny", ["reach the cube"], None)
    spec = replace(SPEC, predicted_frames=frames, action_head=head)
    model = build_world_model(spec, text="tiny", tokenizer=tokenizer, seed=0)
    model.vq.codebooks.normal_(generator=torch.Generator().manual_seed(0))
    with torch.no_grad():
        # a fresh mean is nearly zero
        model.action_head.output.weight.mul_(100)
    return model


@pytest.fixture(scope="module")
def three():
    return make(FRAMES)


@pytest.fixture(scope="module")
def one():
    return make(1)


def sequences(model, seed=1, mask=None):
    generator = torch.Generator().manual_seed(seed)
    ids = torch.randint(8, (2, ROWS, STEPS + 1, TOKENS), generator=generator).to(torch.int16)
    return TokenSequences(
        wrist=ids[0],
        head=ids[1],
        head_seen=torch.ones(ROWS, dtype=torch.bool),
        state=torch.rand(ROWS, STEPS + 1, 3, generator=generator),
        actions=2 * torch.rand(ROWS, STEPS, 2, generator=generator) - 1,
        text_ids=model.tokenize(["reach the cube"] * ROWS),
        mask=torch.ones(ROWS, STEPS, dtype=torch.bool) if mask is None else mask,
    )


def at(model, time, made=None):
    encoded, times = encode_sequences(model, made or sequences(model)), torch.tensor([time])
    return encoded, times, *inputs_at(model, encoded, times, run_memory(model, encoded)[:, times], stride=1)


def test_one_frame_is_the_model_that_it_was_and_more_frames_add_two_parameters(one, three):
    assert set(three.state_dict()) - set(one.state_dict()) == LATER
    assert all(three.state_dict()[name].equal(x) for name, x in one.state_dict().items())
    assert [owner_of(name) for name in sorted(LATER)] == ["action", "generation"]
    _, _, inputs, action = at(one, 2)
    ids = torch.randint(8, (ROWS, FRAMES * TOKENS), generator=torch.Generator().manual_seed(5))
    logits = three.predict(inputs, action, ids)
    assert logits.shape == (2, ROWS, FRAMES * TOKENS, 8)
    # the next frame is predicted alike, whether others follow it or not
    first = one.predict(inputs, action, ids[:, :TOKENS])
    assert three.predict(inputs, action, ids[:, :TOKENS]).equal(first)
    torch.testing.assert_close(logits[:, :, :TOKENS], first)
    assert three.generate(inputs, action).equal(one.generate(inputs, action))


def test_each_scale_is_given_all_frames_and_scales_before_it_and_nothing_after(three):
    _, _, inputs, action = at(three, 2)
    ids = torch.zeros(ROWS, FRAMES * TOKENS, dtype=torch.long)
    known = three.predict(inputs, action, ids)
    # scales of one and four tokens
    starts = [0, 1, 5, 6, 10, 11, 15]
    for first, last in pairwise(starts):
        other = ids.clone()
        other[:, first:last] = 3
        changed = (three.predict(inputs, action, other) - known).abs().amax(dim=(0, 1, 3)) > 1e-6
        assert changed.tolist() == [place >= last for place in range(FRAMES * TOKENS)]


def test_frames_are_generated_as_predicting_scale_by_scale_decodes_them(three):
    _, _, inputs, action = at(three, 2)
    for told in (action, None):
        ids = torch.zeros(ROWS, FRAMES * TOKENS, dtype=torch.long)
        for frame in range(FRAMES):
            for start, end in ((0, 1), (1, 5)):
                places = slice(TOKENS * frame + start, TOKENS * frame + end)
                ids[:, places] = mean_logits(three.predict(inputs, told, ids)).argmax(dim=-1)[:, places]
        assert three.generate(inputs, told, FRAMES).equal(ids)
    assert three.with_foresight(inputs).foresight.equal(three.generate(inputs, None, FRAMES))


def test_the_frames_after_each_step_are_those_of_its_episode(three):
    mask = torch.ones(ROWS, STEPS, dtype=torch.bool)
    # row 0 took two steps
    mask[0, 2:] = False
    encoded = encode_sequences(three, sequences(three, mask=mask))
    ids, known = next_frames(encoded, torch.tensor([1, 4]), FRAMES)
    assert ids.shape == known.shape == (2 * ROWS, FRAMES * TOKENS)
    by_frame = ids.view(ROWS, 2, FRAMES, TOKENS)
    assert by_frame[:, 0].equal(encoded.ids[:, 2:5])
    assert by_frame[:, 1, :2].equal(encoded.ids[:, 5:7])
    # of step 4, the last but one, two frames are known; of row 0 nothing after its second step
    by_token = known.view(ROWS, 2, FRAMES, TOKENS)
    assert by_token.all(dim=3).equal(by_token.any(dim=3))
    assert by_token.all(dim=3).tolist() == [[[True, False, False], [False] * 3]] + 3 * [
        [[True] * 3, [True, True, False]]
    ]
    assert next_frames(encoded, torch.tensor([1, 4]), 1)[0].equal(encoded.ids[:, [2, 5]].flatten(0, 1))


def test_the_loss_is_the_mean_over_the_tokens_of_all_frames_that_are_known():
    logits = torch.zeros(1, 2, 4, 2)
    # two frames of two tokens: nats 0 where the answer is given away, log 2 elsewhere
    logits[0, 0, :2, 0] = 100.0
    ids, folds = torch.zeros(2, 4, dtype=torch.long), torch.zeros(2, dtype=torch.long)
    half = torch.log(torch.tensor(2.0))
    for known, nats in (([[1, 1], [1, 1]], 0.75 * half), ([[1, 0], [0, 0]], 0 * half), ([[1, 1], [0, 0]], half / 2)):
        mask = torch.tensor(known).bool().repeat_interleave(2, dim=1)
        torch.testing.assert_close(next_token_loss(logits, ids, mask, folds), nats)


def test_every_predicted_frame_is_learned_from(three):
    encoded, times, inputs, action = at(three, 0)
    ids, known = next_frames(encoded, times, FRAMES)
    three.zero_grad()
    next_token_loss(three.predict(inputs, action, ids), ids, known, torch.zeros(ROWS, dtype=torch.long)).backward()
    assert three.pos_frame.grad.abs().amax(dim=1).min() > 0
    three.zero_grad()
    encoded, times, inputs, _ = at(three, 0)
    action_loss(three, encoded, inputs, times, torch.Generator()).backward()
    assert three.pos_foresight_frame.grad.abs().amax(dim=1).min() > 0


@pytest.mark.parametrize("head", ["gaussian", "flow"])
def test_an_explorer_acts_on_every_frame_of_its_foresight(head):
    model = make(FRAMES, head)
    explorer, made = Explorer(model), sequences(model)
    noise = torch.zeros(ROWS, explorer.spec.sample_size)
    first = ControlInputs(
        actions=noise,
        state=made.state[:, 0],
        images={"wrist": made.wrist[:, 0].long()},
        text_ids=made.text_ids,
        history=torch.zeros(ROWS, 3, 2),
        carry=explorer.start_carry(ROWS),
    )
    observed, _ = explorer.observe(first)
    assert observed.foresight.shape == (ROWS, FRAMES * TOKENS)
    tokens = torch.ones(ROWS, 3, 16)
    known = model.action_hidden(observed, tokens)
    for place in range(FRAMES * TOKENS):
        foresight = observed.foresight.clone()
        foresight[:, place] = (foresight[:, place] + 1) % 8
        assert not torch.allclose(model.action_hidden(replace(observed, foresight=foresight), tokens), known)
    # scored as it was drawn
    drawn, output = explorer.sample(first, noise)
    torch.testing.assert_close(explorer(replace(first, actions=drawn)).mean, output.mean, rtol=1e-4, atol=1e-5)


def test_more_frames_than_the_model_has_are_refused(one):
    _, _, inputs, action = at(one, 2)
    with pytest.raises(ConfigError, match=r"10 tokens .* at most 1: set model\.predicted_frames"):
        one.predict(inputs, action, torch.zeros(ROWS, 2 * TOKENS, dtype=torch.long))
