import numpy as np
import torch

from lookact.rollout.samplers.single_sequence import BLOCK, SingleSequenceDecoder

TOKENS = [5 + 7 * step % 200 for step in range(2 * BLOCK + 5)]


def stream(chat):
    image = np.random.default_rng(0).integers(0, 255, (64, 64, 3), dtype=np.uint8)
    pixels, grids = chat.encode_images([image])
    pads = [chat.image_pad_id] * chat.image_token_counts(grids)[0]
    prompt = np.array([3, *pads, 4, 5], dtype=np.int64)
    return prompt, pixels, grids


@torch.no_grad()
def test_the_moments_of_asking_change_nothing_to_the_last_bit(chat):
    given = stream(chat)
    often, once = SingleSequenceDecoder(chat, *given), SingleSequenceDecoder(chat, *given)
    asked = [often.hidden(TOKENS[:n]) for n in range(len(TOKENS) + 1)]
    assert torch.equal(asked[-1], once.hidden(TOKENS))
    for n in (0, 1, BLOCK, BLOCK + 1, 2 * BLOCK):
        assert torch.equal(asked[n], SingleSequenceDecoder(chat, *given).hidden(TOKENS[:n]))


@torch.no_grad()
def test_blocks_equal_one_pass_over_the_whole(chat):
    prompt, pixels, grids = stream(chat)
    ids = torch.tensor([[*prompt.tolist(), *TOKENS]])
    positions = chat.rope_positions(ids, grids, torch.ones_like(ids, dtype=torch.bool))
    whole = chat.backbone(ids, None, positions, pixels, grids)[:, -1]
    torch.testing.assert_close(
        SingleSequenceDecoder(chat, prompt, pixels, grids).hidden(TOKENS), whole, atol=1e-5, rtol=1e-5
    )
