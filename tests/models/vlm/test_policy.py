from dataclasses import replace

import numpy as np
import pytest
import torch
from torch import Tensor
from transformers import DynamicCache

from lookact.batch import TokenInputs
from lookact.errors import DataError
from lookact.models.actor_critic import ValueHead
from lookact.models.vlm.families.qwen import fit_image, fits, rope_positions
from lookact.models.vlm.policy import ChatVLM


def stock_logits(chat: ChatVLM, inputs: TokenInputs) -> Tensor:
    """Full logits (b, n, v) as the stock model gives them, banned tokens out."""
    logits = chat.causal(
        input_ids=inputs.ids,
        attention_mask=inputs.attend.long(),
        pixel_values=torch.cat(inputs.pixels),
        image_grid_thw=torch.cat(inputs.grids),
        mm_token_type_ids=(inputs.ids == chat.image_pad_id).int(),
        use_cache=False,
    ).logits
    return logits.masked_fill(chat.banned, float("-inf"))


def row(inputs: TokenInputs, index: int) -> TokenInputs:
    """One row alone, without its padding."""
    length = int(inputs.attend[index].sum())
    units = int((inputs.positions[index] > 0).sum())
    one = slice(index, index + 1)
    return TokenInputs(
        inputs.ids[one, :length],
        inputs.attend[one, :length],
        inputs.positions[one, :units],
        inputs.pixels[one],
        inputs.grids[one],
    )


def left_padded(inputs: TokenInputs, by: int) -> TokenInputs:
    pad = torch.zeros(len(inputs.ids), by, dtype=torch.long)
    return replace(
        inputs,
        ids=torch.cat([pad, inputs.ids], dim=1),
        attend=torch.cat([pad.bool(), inputs.attend], dim=1),
        positions=torch.where(inputs.positions > 0, inputs.positions + by, 0),
    )


@pytest.mark.parametrize("sizes", [[(96, 96)], [(96, 96), (64, 32)]])
@torch.no_grad()
def test_scores_equal_the_full_logits(chat: ChatVLM, conversations, sizes) -> None:
    inputs = conversations(chat, [3, 1, 2], sizes=sizes)
    scores = chat.evaluate(inputs, temperature=0.7)
    logprobs = (stock_logits(chat, inputs) / 0.7).log_softmax(-1)
    for b, u in inputs.positions.nonzero().tolist():
        place = int(inputs.positions[b, u])
        before = logprobs[b, place - 1]
        assert float(scores.logprobs[b, u]) == pytest.approx(float(before[inputs.ids[b, place]]), abs=1e-5)
        entropy = torch.distributions.Categorical(logits=before[~chat.banned]).entropy()
        assert float(scores.entropy[b, u]) == pytest.approx(float(entropy), abs=1e-5)


def test_gradients_equal_those_of_the_full_logits(chat: ChatVLM, conversations) -> None:
    inputs = conversations(chat, [2, 1])
    weights = torch.randn(inputs.positions.shape, generator=torch.Generator().manual_seed(0))
    weights = weights * (inputs.positions > 0)
    (chat.evaluate(inputs).logprobs * weights).sum().backward()
    ours = {name: parameter.grad.clone() for name, parameter in chat.named_parameters()}
    chat.zero_grad()
    logprobs = stock_logits(chat, inputs)[:, :-1].log_softmax(-1).gather(2, inputs.ids[:, 1:, None]).squeeze(2)
    taken = logprobs.gather(1, (inputs.positions - 1).clamp(min=0))
    taken[weights != 0].mul(weights[weights != 0]).sum().backward()
    for name, parameter in chat.named_parameters():
        scale = float(parameter.grad.abs().max())
        torch.testing.assert_close(ours[name], parameter.grad, rtol=0, atol=2e-5 * max(scale, 1.0), msg=name)


def test_padding_units_score_zero(chat: ChatVLM, conversations) -> None:
    inputs = conversations(chat, [2, 1])
    scores = chat.evaluate(inputs)
    padding = inputs.positions == 0
    assert padding.any()
    assert not scores.logprobs[padding].any()
    assert not scores.entropy[padding].any()


def test_a_row_scores_the_same_alone_as_in_a_batch(chat: ChatVLM, conversations) -> None:
    inputs = conversations(chat, [1, 3, 2])
    together = chat.evaluate(inputs)
    for index in range(3):
        alone = chat.evaluate(row(inputs, index))
        units = alone.logprobs.shape[1]
        torch.testing.assert_close(alone.logprobs[0], together.logprobs[index, :units], rtol=1e-5, atol=1e-5)


def test_padding_on_either_side_changes_nothing(chat: ChatVLM, conversations) -> None:
    inputs = conversations(chat, [2, 1])
    chat.value_head = ValueHead(chat.output_weight.shape[1])
    torch.nn.init.normal_(chat.value_head.output.weight, generator=torch.Generator().manual_seed(0))
    plain, padded = chat.evaluate(inputs), chat.evaluate(left_padded(inputs, 5))
    torch.testing.assert_close(plain.logprobs, padded.logprobs, rtol=1e-5, atol=1e-5)
    torch.testing.assert_close(plain.values, padded.values, rtol=1e-5, atol=1e-5)


def test_prompt_and_image_tokens_get_no_gradient_through_the_output_layer(chat: ChatVLM, conversations) -> None:
    chat.causal.lm_head.weight = torch.nn.Parameter(chat.output_weight.detach().clone())
    inputs = conversations(chat, [2])
    mask = torch.zeros_like(inputs.positions, dtype=torch.bool)
    mask[0, 1] = True
    (chat.evaluate(inputs).logprobs * mask).sum().backward()
    gradient = chat.causal.lm_head.weight.grad
    assert not gradient[chat.banned].any()
    # d logp / d W = (onehot - p) h: the rows sum to zero, and one unit leaves a matrix of rank one
    torch.testing.assert_close(gradient.sum(0), torch.zeros_like(gradient[0]), rtol=1e-5, atol=1e-5)
    assert int(torch.linalg.matrix_rank(gradient, rtol=1e-4)) == 1


def test_units_outside_the_mask_get_no_gradient(chat: ChatVLM, conversations) -> None:
    inputs = conversations(chat, [2])
    mask = torch.zeros_like(inputs.positions, dtype=torch.bool)
    mask[0, :3] = True
    (chat.evaluate(inputs).logprobs * mask).sum().backward()
    masked = chat.causal.model.visual.patch_embed.proj.weight.grad.clone()
    chat.zero_grad()
    first = row(replace(inputs, positions=inputs.positions[:, :3]), 0)
    chat.evaluate(first).logprobs.sum().backward()
    torch.testing.assert_close(masked, chat.causal.model.visual.patch_embed.proj.weight.grad, rtol=1e-4, atol=1e-5)


def test_the_action_depends_on_what_is_seen(chat: ChatVLM, conversations) -> None:
    inputs = conversations(chat, [1])
    darker = replace(inputs, pixels=(torch.full_like(inputs.pixels[0], -1.0),))
    assert not torch.allclose(chat.evaluate(inputs).logprobs, chat.evaluate(darker).logprobs, atol=1e-3)


def test_a_banned_token_has_no_probability(chat: ChatVLM, conversations) -> None:
    inputs = conversations(chat, [1])
    ids = inputs.ids.clone()
    place = int(inputs.positions[0, -1])
    ids[0, place] = chat.encode_text("<|im_start|>")[0]
    assert chat.evaluate(replace(inputs, ids=ids)).logprobs[0, -1] == float("-inf")


def test_what_is_banned(chat: ChatVLM) -> None:
    names = ["<|vision_start|>", "<|vision_end|>", "<|vision_pad|>", "<|image_pad|>", "<|video_pad|>", "<|im_start|>"]
    assert all(chat.banned[chat.encode_text(name)[0]] for name in names)
    assert not chat.banned[chat.end_id]
    assert not chat.banned[chat.encode_text("{")].any()
    assert "banned" not in " ".join(chat.state_dict())


def test_ids_without_a_token_are_banned(chat: ChatVLM) -> None:
    size = len(chat.tokenizer)
    chat.causal.resize_token_embeddings(size + 8)
    assert ChatVLM(chat.model, chat.tokenizer, chat.image_processor).banned[size:].all()


@torch.no_grad()
def test_values_are_those_of_the_state_before_each_unit(chat: ChatVLM, conversations) -> None:
    inputs = conversations(chat, [2, 1])
    assert chat.evaluate(inputs).values is None
    chat.value_head = ValueHead(chat.output_weight.shape[1])
    torch.nn.init.normal_(chat.value_head.output.weight, generator=torch.Generator().manual_seed(0))
    positions = chat.rope_positions(inputs.ids, torch.cat(inputs.grids), inputs.attend)
    hidden = chat.backbone(inputs.ids, inputs.attend, positions, inputs.pixels, torch.cat(inputs.grids))
    place = int(inputs.positions[0, 4])
    values = chat.evaluate(inputs).values
    assert float(values[0, 4]) == pytest.approx(float(chat.value_head(hidden[0, place - 1])), abs=1e-5)
    assert not values[inputs.positions == 0].any()


def test_text_without_images(chat: ChatVLM) -> None:
    ids = torch.tensor([chat.encode_text("<|im_start|>user\nWhere is the sofa?<|im_end|>")])
    inputs = TokenInputs(ids, torch.ones_like(ids, dtype=torch.bool), torch.tensor([[2, 3]]))
    logits = chat.causal(input_ids=ids).logits[0].masked_fill(chat.banned, float("-inf")).log_softmax(-1)
    scores = chat.evaluate(inputs).logprobs[0]
    torch.testing.assert_close(scores, logits[[1, 2], ids[0, [2, 3]]], rtol=1e-5, atol=1e-5)


@torch.no_grad()
def test_a_cache_fed_in_two_blocks_equals_one_pass(chat: ChatVLM, conversations) -> None:
    inputs = conversations(chat, [2])
    grids, pixels = inputs.grids[0], inputs.pixels[0]
    positions = chat.rope_positions(inputs.ids, grids, inputs.attend)
    whole = chat.backbone(inputs.ids, inputs.attend, positions, pixels, grids)
    cut = int((inputs.ids[0] == chat.end_id).nonzero()[1]) + 1
    cache = DynamicCache(config=chat.config.text_config)
    first = chat.backbone(inputs.ids[:, :cut], None, positions[..., :cut], pixels[:36], grids[:1], cache=cache)
    keep = torch.tensor([[inputs.ids.shape[1] - cut - 1]])
    last = chat.backbone(
        inputs.ids[:, cut:], inputs.attend, positions[..., cut:], pixels[36:], grids[1:], cache=cache, keep=keep
    )
    torch.testing.assert_close(first, whole[:, :cut], rtol=1e-5, atol=1e-5)
    torch.testing.assert_close(last, whole[:, -1:], rtol=1e-5, atol=1e-5)


def test_kept_states_equal_all_states_picked(chat: ChatVLM, conversations) -> None:
    inputs = left_padded(conversations(chat, [2, 1]), 3)
    grids = torch.cat(inputs.grids)
    positions = chat.rope_positions(inputs.ids, grids, inputs.attend)
    whole = chat.backbone(inputs.ids, inputs.attend, positions, inputs.pixels, grids)
    keep = torch.tensor([[5, 30], [7, 7]])
    kept = chat.backbone(inputs.ids, inputs.attend, positions, inputs.pixels, grids, keep=keep)
    torch.testing.assert_close(kept, torch.stack([whole[0, keep[0]], whole[1, keep[1]]]), rtol=1e-5, atol=1e-5)


def test_checkpointing_gives_the_same_gradients(chat: ChatVLM, conversations) -> None:
    inputs = conversations(chat, [2, 1])
    chat.evaluate(inputs).logprobs.sum().backward()
    plain = [parameter.grad.clone() for parameter in chat.parameters()]
    chat.zero_grad()
    chat.gradient_checkpointing = True
    chat.evaluate(inputs).logprobs.sum().backward()
    for parameter, gradient in zip(chat.parameters(), plain):
        torch.testing.assert_close(parameter.grad, gradient, rtol=1e-5, atol=1e-6)


def test_calling_it_is_evaluating(chat: ChatVLM, conversations) -> None:
    inputs = conversations(chat, [1])
    assert torch.equal(chat(inputs, temperature=2.0).logprobs, chat.evaluate(inputs, temperature=2.0).logprobs)


def test_rope_of_a_worked_example() -> None:
    # text, an image of 2 x 3 tokens, text: the image starts at 1 and the text after it at 1 + 3
    ids = torch.tensor([[5, 9, 9, 9, 9, 9, 9, 5]])
    positions = rope_positions(ids, torch.tensor([[1, 4, 6]]), torch.ones_like(ids).bool(), image_pad=9, merge=2)
    assert positions[:, 0].tolist() == [
        [0, 1, 1, 1, 1, 1, 1, 4],
        [0, 1, 1, 1, 2, 2, 2, 4],
        [0, 1, 2, 3, 1, 2, 3, 4],
    ]


def test_rope_equals_the_stock_index_on_ragged_rows(chat: ChatVLM, conversations) -> None:
    inputs = conversations(chat, [3, 1, 2], sizes=[(96, 96), (64, 32), (32, 96)])
    grids = torch.cat(inputs.grids)
    kinds = (inputs.ids == chat.image_pad_id).int()
    stock, _ = chat.causal.model.get_rope_index(inputs.ids, kinds, grids, attention_mask=inputs.attend)
    assert torch.equal(chat.rope_positions(inputs.ids, grids, inputs.attend), stock)


def test_rope_left_padding_shifts_nothing(chat: ChatVLM, conversations) -> None:
    inputs = conversations(chat, [2])
    grids = torch.cat(inputs.grids)
    plain = chat.rope_positions(inputs.ids, grids, inputs.attend)
    pad = torch.zeros(1, 4, dtype=torch.long)
    padded = chat.rope_positions(torch.cat([pad, inputs.ids], 1), grids, torch.cat([pad.bool(), inputs.attend], 1))
    assert torch.equal(padded[:, :, 4:], plain)
    assert not padded[:, :, :4].any()


def test_images_and_image_tokens_must_match() -> None:
    ids = torch.tensor([[9, 9, 9]])
    with pytest.raises(DataError, match="3 image tokens but 4 image features"):
        rope_positions(ids, torch.tensor([[1, 4, 4]]), ids.bool(), image_pad=9, merge=2)
    with pytest.raises(DataError, match="no image"):
        rope_positions(ids, torch.zeros(0, 3, dtype=torch.long), ids.bool(), image_pad=9, merge=2)


def pictures(*shapes: tuple[int, int]) -> list[np.ndarray]:
    random = np.random.default_rng(0)
    return [random.integers(0, 256, (*shape, 3), dtype=np.uint8) for shape in shapes]


@pytest.mark.parametrize("shapes", [[(96, 96)] * 3, [(64, 96), (96, 64), (96, 64)], [(32, 32)]])
def test_patches_equal_the_stock_processor(chat: ChatVLM, shapes: list[tuple[int, int]]) -> None:
    images = pictures(*shapes)
    assert all(fits(chat.image_processor, *shape) for shape in shapes)
    pixels, grids = chat.encode_images(images)
    stock = chat.image_processor(images=images, return_tensors="pt")
    torch.testing.assert_close(pixels, stock["pixel_values"], rtol=1e-5, atol=1e-6)
    assert torch.equal(grids, stock["image_grid_thw"])


def test_odd_sizes_are_resized_as_the_stock_processor_does(chat: ChatVLM) -> None:
    images = pictures((96, 96), (200, 130), (70, 40), (96, 96))
    pixels, grids = chat.encode_images(images)
    stock = chat.image_processor(images=images, return_tensors="pt")
    torch.testing.assert_close(pixels, stock["pixel_values"], rtol=1e-5, atol=1e-6)
    assert torch.equal(grids, stock["image_grid_thw"])


def test_one_token_per_32_by_32_pixels(chat: ChatVLM) -> None:
    _, grids = chat.encode_images(pictures((96, 96), (32, 64)))
    assert chat.image_token_counts(grids) == [9, 2]


def test_no_images(chat: ChatVLM) -> None:
    pixels, grids = chat.encode_images([])
    assert pixels.shape == (0, 1536)
    assert grids.shape == (0, 3)
    assert chat.image_token_counts(grids) == []


def test_a_fitted_image_is_what_the_processor_would_have_made_of_it(chat: ChatVLM) -> None:
    for image in pictures((96, 96), (200, 130), (33, 70)):
        fitted = fit_image(chat.image_processor, image)
        assert fitted.dtype == np.uint8
        assert fits(chat.image_processor, *fitted.shape[:2])
        for one, other in zip(chat.encode_images([image]), chat.encode_images([fitted])):
            torch.testing.assert_close(one, other, rtol=1e-5, atol=1e-6)
