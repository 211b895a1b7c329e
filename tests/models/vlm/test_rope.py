import pytest
import torch

from lookact.errors import DataError
from lookact.models.vlm.policy import ChatVLM
from lookact.models.vlm.rope import rope_positions


def test_worked_example() -> None:
    # text, an image of 2 x 3 tokens, text: the image starts at 1 and the text after it at 1 + 3
    ids = torch.tensor([[5, 9, 9, 9, 9, 9, 9, 5]])
    positions = rope_positions(ids, torch.tensor([[1, 4, 6]]), torch.ones_like(ids).bool(), image_pad=9, merge=2)
    assert positions[:, 0].tolist() == [
        [0, 1, 1, 1, 1, 1, 1, 4],
        [0, 1, 1, 1, 2, 2, 2, 4],
        [0, 1, 2, 3, 1, 2, 3, 4],
    ]


def test_equals_the_stock_index_on_ragged_rows(chat: ChatVLM, conversations) -> None:
    inputs = conversations(chat, [3, 1, 2], sizes=[(96, 96), (64, 32), (32, 96)])
    grids = torch.cat(inputs.grids)
    kinds = (inputs.ids == chat.image_pad_id).int()
    stock, _ = chat.causal.model.get_rope_index(inputs.ids, kinds, grids, attention_mask=inputs.attend)
    assert torch.equal(chat.rope_positions(inputs.ids, grids, inputs.attend), stock)


def test_left_padding_shifts_nothing(chat: ChatVLM, conversations) -> None:
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
