import pytest
import torch
from transformers.models.qwen3_vl.modeling_qwen3_vl import Qwen3VLTextRMSNorm, apply_rotary_pos_emb

from lookact.models.vlm import kernels
from lookact.models.vlm.kernels import (
    decoder_layer,
    is_plain_layer,
    is_plain_tower,
    mask_rows,
    pick,
    rms_norm,
    rotate,
    vision_features,
)
from lookact.models.vlm.loading import load_chat
from lookact.models.vlm.policy import ChatVLM


def test_one_switch_runs_the_stock_modules_whole_and_scores_alike(chat: ChatVLM, conversations, monkeypatch) -> None:
    inputs = conversations(chat, [3, 2])
    fast = chat.evaluate(inputs)
    monkeypatch.setattr(kernels, "ENABLED", False)
    assert not is_plain_layer(chat.causal.model.language_model.layers[0])
    assert not is_plain_tower(chat.causal.model.visual)
    stock = chat.evaluate(inputs)
    torch.testing.assert_close(fast.logprobs, stock.logprobs, rtol=1e-5, atol=1e-5)
    torch.testing.assert_close(fast.entropy, stock.entropy, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("padded", [False, True])
def test_a_layer_equals_the_stock_one(chat, padded: bool) -> None:
    text = chat.causal.model.language_model
    hidden = torch.randn(2, 6, 128, generator=torch.Generator().manual_seed(0))
    rotary = text.rotary_emb(hidden, torch.arange(6).expand(3, 2, 6))
    mask = torch.ones(6, 6, dtype=torch.bool).tril().expand(2, 1, 6, 6).clone()
    mask[1, :, 2:, 1] = not padded
    stock = text.layers[0](hidden, attention_mask=mask, position_embeddings=rotary)
    assert is_plain_layer(text.layers[0])
    ours = decoder_layer(text.layers[0], hidden, mask if padded else None, rotary)
    torch.testing.assert_close(ours, stock, rtol=1e-5, atol=1e-5)


def test_other_attention_goes_through_the_stock_layer(tiny_folder, conversations) -> None:
    eager, sdpa = load_chat(tiny_folder, attention="eager"), load_chat(tiny_folder)
    assert not is_plain_layer(eager.causal.model.language_model.layers[0])
    inputs = conversations(eager, [2, 1])
    torch.testing.assert_close(eager.evaluate(inputs).logprobs, sdpa.evaluate(inputs).logprobs, rtol=1e-5, atol=1e-5)


def test_rows_of_a_causal_mask() -> None:
    rows = mask_rows(None, torch.tensor([[0, 2]]), length=3, total=5)
    assert rows[0, 0].tolist() == [[True, True, True, False, False], [True] * 5]


def test_pick() -> None:
    states = torch.arange(6.0).view(2, 3, 1)
    assert pick(states, torch.tensor([[2, 0], [1, 1]])).squeeze(-1).tolist() == [[2.0, 0.0], [4.0, 4.0]]


def run(function, *args):
    return function(*args)


def test_one_batch_equals_the_stock_tower_and_its_gradients(chat: ChatVLM, conversations) -> None:
    inputs = conversations(chat, [3, 2])
    tower, grids = chat.causal.model.visual, torch.cat(inputs.grids)
    assert is_plain_tower(tower)
    stock = tower(torch.cat(inputs.pixels), grid_thw=grids, return_dict=True)
    (stock.pooler_output.square().sum() + stock.deepstack_features[0].sum()).backward()
    wanted = [parameter.grad.clone() for parameter in tower.parameters()]
    tower.zero_grad()
    features, levels = vision_features(tower, inputs.pixels, grids, run)
    torch.testing.assert_close(features, stock.pooler_output, rtol=1e-5, atol=1e-5)
    torch.testing.assert_close(levels[0], stock.deepstack_features[0], rtol=1e-5, atol=1e-5)
    (features.square().sum() + levels[0].sum()).backward()
    for parameter, gradient in zip(tower.parameters(), wanted):
        torch.testing.assert_close(parameter.grad, gradient, rtol=1e-4, atol=1e-4)


def test_images_of_many_sizes_go_through_the_stock_tower(chat: ChatVLM, conversations) -> None:
    inputs = conversations(chat, [3], sizes=[(96, 96), (32, 64)])
    tower, grids = chat.causal.model.visual, torch.cat(inputs.grids)
    features, _ = vision_features(tower, inputs.pixels, grids, run)
    alone, _ = vision_features(tower, [inputs.pixels[0][:36]], grids[:1], run)
    torch.testing.assert_close(features[:9], alone, rtol=1e-5, atol=1e-5)


def test_one_image_does_not_see_another(chat: ChatVLM, conversations) -> None:
    inputs = conversations(chat, [2])
    tower, grids = chat.causal.model.visual, inputs.grids[0]
    changed = inputs.pixels[0].clone()
    changed[36:] += 1.0
    before, _ = vision_features(tower, inputs.pixels, grids, run)
    after, _ = vision_features(tower, [changed], grids, run)
    assert torch.equal(before[:9], after[:9])
    assert not torch.allclose(before[9:], after[9:])


def test_a_row_without_images_beside_rows_with_some_changes_nothing(chat: ChatVLM, conversations) -> None:
    inputs = conversations(chat, [2])
    tower, grids = chat.causal.model.visual, inputs.grids[0]
    nothing = inputs.pixels[0][:0]
    with_words, _ = vision_features(tower, [nothing, inputs.pixels[0], nothing], grids, run)
    without, _ = vision_features(tower, inputs.pixels, grids, run)
    assert torch.equal(with_words, without)


def test_norm_of_a_worked_example() -> None:
    # root mean square of (3, 4) is sqrt(12.5)
    normed = rms_norm(torch.tensor([[3.0, 4.0]]), torch.tensor([1.0, 2.0]), 0.0)
    torch.testing.assert_close(normed, torch.tensor([[3.0, 8.0]]) / 12.5**0.5)


def test_norm_and_its_gradients_equal_the_stock_ones() -> None:
    generator = torch.Generator().manual_seed(0)
    stock = Qwen3VLTextRMSNorm(8)
    torch.nn.init.normal_(stock.weight, generator=generator)
    states = torch.randn(2, 3, 4, 8, generator=generator).requires_grad_()
    upstream = torch.randn(2, 3, 4, 8, generator=generator)
    wanted = torch.autograd.grad(stock(states), (states, stock.weight), upstream)
    normed = rms_norm(states, stock.weight, stock.variance_epsilon)
    torch.testing.assert_close(normed, stock(states))
    torch.testing.assert_close(torch.autograd.grad(normed, (states, stock.weight), upstream), wanted)
    with torch.no_grad():
        assert torch.equal(rms_norm(states, stock.weight, stock.variance_epsilon), normed)


def test_norm_in_half_precision_is_the_stock_one() -> None:
    stock = Qwen3VLTextRMSNorm(8).bfloat16()
    states = torch.randn(5, 8, generator=torch.Generator().manual_seed(0)).bfloat16()
    assert torch.equal(rms_norm(states, stock.weight, stock.variance_epsilon), stock(states))


def test_rotation_and_its_gradient_equal_the_stock_ones() -> None:
    generator = torch.Generator().manual_seed(0)
    states = torch.randn(2, 5, 3, 8, generator=generator).requires_grad_()
    angles = torch.randn(2, 5, 4, generator=generator).repeat(1, 1, 2)
    upstream = torch.randn(2, 5, 3, 8, generator=generator)
    stock, _ = apply_rotary_pos_emb(states, states, angles.cos(), angles.sin(), unsqueeze_dim=2)
    turned = rotate(states, angles.cos().unsqueeze(2), angles.sin().unsqueeze(2))
    torch.testing.assert_close(turned, stock)
    torch.testing.assert_close(
        torch.autograd.grad(turned, states, upstream), torch.autograd.grad(stock, states, upstream)
    )
    torch.testing.assert_close(turned.norm(dim=-1), states.norm(dim=-1))
