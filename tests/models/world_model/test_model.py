from dataclasses import replace

import pytest
import torch

from lookact.models.vla.encoders import TextEncoder, TextSpec, open_bert, set_finetune, tiny_bert, train_wordpiece
from lookact.models.world_model.model import WorldModel, WorldModelInputs, WorldModelSpec, mean_logits
from lookact.models.world_model.vq import VQSpec

SPEC = WorldModelSpec(
    state_size=3, action_size=2, vq=VQSpec(16, 8, 4, (1, 2), 8), state_dim=6, action_dim=5, width=16, layers=2,
    heads=2, memory=6, memory_layers=2, members=2, chunk=3
)  # fmt: skip
ROWS = 4


@pytest.fixture(scope="module")
def world_model():
    text = TextSpec(hidden=32, vocabulary=256, length=8, finetune="frozen")
    tokenizer = train_wordpiece(["reach the cube"], text)
    config = tiny_bert(hidden=32, layers=1, vocabulary=len(tokenizer), length=8)
    bert = set_finetune(open_bert("tiny", config, 0), "frozen", rank=0, seed=0)
    with torch.random.fork_rng():
        torch.manual_seed(0)
        model = WorldModel(SPEC, TextEncoder(text, bert, tokenizer))
        model.vq.codebooks.normal_()
    return model


def drawn(*shape, seed=0):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed))


def inputs(world_model, **changes):
    words = world_model.text_encoder(world_model.tokenize(["reach the cube"])).expand(ROWS, -1)
    seen = torch.tensor([True, False] * (ROWS // 2))
    shown = WorldModelInputs(
        frames=drawn(ROWS, 4, 4, 4),
        past=drawn(ROWS, 3, 5, seed=1),
        state=drawn(ROWS, 6, seed=2),
        text=words,
        memory=drawn(ROWS, 6, seed=3),
        head=drawn(ROWS, 4, 4, seed=4),
        head_seen=seen,
    )
    return replace(shown, **changes)


def ids(seed=0):
    return torch.randint(8, (ROWS, 5), generator=torch.Generator().manual_seed(seed))


def test_logits_are_one_a_member_token_and_code(world_model):
    assert world_model.predict(inputs(world_model), drawn(ROWS, 5), ids()).shape == (2, ROWS, 5, 8)


def test_a_scale_knows_coarser_scales_and_nothing_of_its_own(world_model):
    action = drawn(ROWS, 5)
    fine, coarse = ids(), ids()
    fine[:, 1:] = (fine[:, 1:] + 3) % 8
    coarse[:, 0] = (coarse[:, 0] + 3) % 8
    known = world_model.predict(inputs(world_model), action, ids())
    torch.testing.assert_close(world_model.predict(inputs(world_model), action, fine), known)
    changed = world_model.predict(inputs(world_model), action, coarse)
    torch.testing.assert_close(changed[:, :, :1], known[:, :, :1])
    assert not torch.allclose(changed[:, :, 1:], known[:, :, 1:])


@pytest.mark.parametrize("name", ["frames", "past", "state", "memory"])
def test_all_that_is_shown_matters(world_model, name):
    shown = inputs(world_model)
    other = replace(shown, **{name: getattr(shown, name) + 1.0})
    action = drawn(ROWS, 5)
    assert not torch.allclose(world_model.predict(shown, action, ids()), world_model.predict(other, action, ids()))


def test_what_stands_at_a_pos_now_matters_to_what_will(world_model):
    shown, action = inputs(world_model), drawn(ROWS, 5)
    frames = shown.frames.clone()
    frames[:, -1, 3] += 1.0
    other = replace(shown, frames=frames)
    assert not torch.allclose(world_model.predict(shown, action, ids()), world_model.predict(other, action, ids()))


def test_the_action_matters_to_what_is_predicted(world_model):
    one, other = (world_model.predict(inputs(world_model), drawn(ROWS, 5, seed=seed), ids()) for seed in (0, 1))
    assert not torch.allclose(one, other)


def test_a_head_camera_that_is_not_there_is_not_looked_at(world_model):
    shown = inputs(world_model)
    other = replace(shown, head=shown.head + 5.0)
    action = drawn(ROWS, 5)
    one, two = (world_model.predict(x, action, ids()) for x in (shown, other))
    torch.testing.assert_close(one[:, ~shown.head_seen], two[:, ~shown.head_seen])
    assert not torch.allclose(one[:, shown.head_seen], two[:, shown.head_seen])


def test_padding_touches_neither_prediction_nor_gradient(world_model):
    results = []
    for fill in (0.0, 9.0, float("nan")):
        world_model.zero_grad()
        shown, action = inputs(world_model), drawn(ROWS, 5).clone()
        past, state = shown.past.clone(), shown.state.clone()
        past[..., 2:], state[..., 3:], action[..., 2:] = fill, fill, fill
        before = past.clone()
        carry = world_model.memory.initial(ROWS)
        memory, _ = world_model.update_memory(shown.frames[:, :3], before, state[:, None].expand(-1, 3, -1), carry)
        shown = replace(shown, past=past, state=state, memory=memory[:, -1])
        logits = world_model.predict(shown, action, ids())
        logits.square().mean().backward()
        for layer in (world_model.generation["past"], world_model.generation["action"]):
            assert layer.weight.grad[:, 2:].abs().max() == 0
        assert world_model.understanding["state"].weight.grad[:, 3:].abs().max() == 0
        gradients = [p.grad.clone() for p in world_model.parameters() if p.grad is not None]
        results.append((logits.detach(), gradients))
    for logits, gradients in results[1:]:
        assert logits.equal(results[0][0])
        assert all(one.equal(other) for one, other in zip(gradients, results[0][1], strict=True))


def test_what_is_generated_is_the_likeliest_given_what_is_generated(world_model):
    shown, action = inputs(world_model), drawn(ROWS, 5)
    generated = world_model.generate(shown, action)
    logits = mean_logits(world_model.predict(shown, action, generated))
    assert logits.argmax(dim=-1).equal(generated)


def test_the_mean_of_members_is_a_distribution_between_them(world_model):
    logits = world_model.predict(inputs(world_model), drawn(ROWS, 5), ids())
    mean = mean_logits(logits).exp()
    torch.testing.assert_close(mean.sum(dim=-1), torch.ones(ROWS, 5))
    torch.testing.assert_close(mean, logits.softmax(dim=-1).mean(dim=0))


def test_the_action_expert_sees_what_is_shown(world_model):
    shown = inputs(world_model)
    tokens = world_model.action_head.query_tokens(ROWS)
    one, other = (world_model.action_hidden(x, tokens) for x in (shown, replace(shown, memory=shown.memory + 1)))
    assert one.shape == (ROWS, 3, 16)
    assert not torch.allclose(one, other)


def test_features_are_those_of_the_tokens(world_model):
    tokens = torch.stack([ids(), ids(1)], dim=1)
    features = world_model.features(tokens.to(torch.int16))
    assert features.shape == (ROWS, 2, 4, 4)
    torch.testing.assert_close(features[:, 1], world_model.vq.features(ids(1)).flatten(2).transpose(1, 2))


def test_neighbouring_cells_become_one_token(world_model):
    cells = torch.arange(4.0).reshape(1, 4, 1).expand(1, 4, 4)
    assert world_model._merge_patches(cells).flatten().tolist() == [0.0] * 4 + [1.0] * 4 + [2.0] * 4 + [3.0] * 4
