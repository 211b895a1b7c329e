import numpy as np
import pytest
import torch

from lookact.algorithms.frame_pretraining import self_supervised, squares
from lookact.algorithms.vision_pretraining import pretrain_vision
from lookact.errors import ConfigError
from lookact.models.vlm.loading import load_chat
from lookact.models.vlm.tiny import TinySpec, make_tiny
from lookact.types import FramePair

MOVES = ((0, -16), (0, 16), (-16, 0), (16, 0))


def frame(row, column):
    """A white square of 16 pixels on black."""
    picture = np.zeros((64, 64, 3), np.uint8)
    picture[row : row + 16, column : column + 16] = 255
    return picture


def pairs():
    """Every move of the square by its own side that stays in the picture."""
    found = {}
    for row in range(0, 64, 16):
        for column in range(0, 64, 16):
            for action, (down, right) in enumerate(MOVES):
                after = row + down, column + right
                if min(after) >= 0 and max(after) < 64:
                    found[len(found)] = FramePair(frame(row, column), frame(*after), action)
    return found


def test_squares_are_the_tokens_of_an_image_row_by_row():
    image = frame(0, 32)
    seen = squares([image])
    # 2 x 2 tokens of 8 x 8 pixels of three colours; the white square is a quarter of the second
    assert seen.shape == (1, 4, 192)
    assert seen.mean(dim=2).tolist() == [[0.0, 0.25, 0.0, 0.0]]


def test_a_model_with_other_tokens_is_told_in_one_line(tmp_path):
    other = load_chat(make_tiny(tmp_path, corpus=["go"], spec=TinySpec(hidden=64, image_size=64, family="smolvlm")))
    examples = {0: FramePair(np.zeros((96, 96, 3), np.uint8), np.zeros((96, 96, 3), np.uint8), 0)}
    _, loss = self_supervised(other, examples)
    with pytest.raises(ConfigError, match="18 squares of frames, but the model makes"):
        loss(list(examples.values()))


def test_untrained_heads_guess_the_action_and_draw_the_mean_frame(chat):
    examples = pairs()
    _, loss = self_supervised(chat, examples)
    total, metrics = loss(list(examples.values()))
    assert float(metrics["loss/inverse_dynamics"]) == pytest.approx(np.log(4), rel=1e-5)
    frames = squares([pair.after for pair in examples.values()])
    spread = float((frames - frames.mean(dim=0)).square().mean() / frames.std() ** 2)
    assert float(metrics["loss/reconstruction"]) == pytest.approx(spread, rel=1e-4)
    assert float(total.detach()) == pytest.approx(np.log(4) + spread, rel=1e-4)


@pytest.mark.slow
def test_the_encoder_learns_what_moved_without_labels_and_nothing_else_moves(chat):
    examples, told = pairs(), []
    words = chat.causal.model.language_model.state_dict()
    before = {name: tensor.clone() for name, tensor in words.items()}
    pretrain_vision(
        chat, examples, total=len(examples), epochs=60, batch_size=len(examples), lr=4e-3, seed=0,
        report=lambda metrics, step: told.append(metrics),
    )  # fmt: skip
    assert told[-1]["loss/inverse_dynamics"] < 0.1
    assert told[-1]["loss/reconstruction"] < 0.3 * told[0]["loss/reconstruction"]
    assert all(torch.equal(before[name], tensor) for name, tensor in words.items())
