import pytest
import torch

from lookact.models.vlm.kernels.decoder import decoder_layer, is_plain, mask_rows, pick
from lookact.models.vlm.loading import load_chat


@pytest.mark.parametrize("padded", [False, True])
def test_a_layer_equals_the_stock_one(chat, padded: bool) -> None:
    text = chat.causal.model.language_model
    hidden = torch.randn(2, 6, 128, generator=torch.Generator().manual_seed(0))
    rotary = text.rotary_emb(hidden, torch.arange(6).expand(3, 2, 6))
    mask = torch.ones(6, 6, dtype=torch.bool).tril().expand(2, 1, 6, 6).clone()
    mask[1, :, 2:, 1] = not padded
    stock = text.layers[0](hidden, attention_mask=mask, position_embeddings=rotary)
    assert is_plain(text.layers[0])
    ours = decoder_layer(text.layers[0], hidden, mask if padded else None, rotary)
    torch.testing.assert_close(ours, stock, rtol=1e-5, atol=1e-5)


def test_other_attention_goes_through_the_stock_layer(tiny_folder, conversations) -> None:
    eager, sdpa = load_chat(tiny_folder, attention="eager"), load_chat(tiny_folder)
    assert not is_plain(eager.causal.model.language_model.layers[0])
    inputs = conversations(eager, [2, 1])
    torch.testing.assert_close(eager.evaluate(inputs).logprobs, sdpa.evaluate(inputs).logprobs, rtol=1e-5, atol=1e-5)


def test_rows_of_a_causal_mask() -> None:
    rows = mask_rows(None, torch.tensor([[0, 2]]), length=3, total=5)
    assert rows[0, 0].tolist() == [[True, True, True, False, False], [True] * 5]


def test_pick() -> None:
    states = torch.arange(6.0).view(2, 3, 1)
    assert pick(states, torch.tensor([[2, 0], [1, 1]])).squeeze(-1).tolist() == [[2.0, 0.0], [4.0, 4.0]]
