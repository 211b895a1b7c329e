import numpy as np
import torch

from lookact.rollout.samplers.kv_cache import TurnCache
from lookact.rollout.samplers.padded_decode import extend, left_pad


def test_rows_end_together():
    ids, real = left_pad([np.array([5, 6, 7]), np.array([8])], torch.device("cpu"))
    assert ids.tolist() == [[5, 6, 7], [0, 0, 8]]
    assert real.tolist() == [[True, True, True], [False, False, True]]


@torch.no_grad()
def test_columns_fed_in_two_blocks_equal_the_stream_fed_at_once(chat):
    stream = np.array(chat.encode_text("Go to the chair. Turn 3 of 10. Turn 4 of 10."))
    positions = torch.arange(len(stream)).expand(3, 1, -1)
    ids, real = left_pad([stream], chat.device)
    whole = extend(chat, TurnCache(), real, ids, positions)
    cache, half = TurnCache(), len(stream) // 2
    extend(chat, cache, real[:, :half], ids[:, :half], positions[:, :, :half])
    parts = extend(chat, cache, real, ids[:, half:], positions[:, :, half:])
    torch.testing.assert_close(parts, whole, atol=1e-5, rtol=1e-5)
