import math

import numpy as np
import pytest
import torch

from lookact.algorithms.keypoint_pretraining import (
    drop_words,
    jitter_colours,
    keypoint_error,
    keypoint_loss,
    make_head,
    naming_loss,
    predict,
)
from lookact.envs.tabletop.pretraining_images import NAMED, UNNAMED
from lookact.models.vla.checkpoint import make_vla
from lookact.models.vla.encoders import TextSpec, VisionSpec
from lookact.models.vla.policy import PolicySpec
from lookact.training.optim import build_adamw

VISION, TEXT = VisionSpec(image_size=16, patch=4, hidden=32, layers=1, pool_queries=2), TextSpec(hidden=32, length=8)


def looks(count: int) -> tuple[dict[str, torch.Tensor], torch.Tensor, torch.Tensor, dict[str, torch.Tensor]]:
    """A white square somewhere, whose place is the fact, and where in the picture its middle is."""
    stream = torch.Generator().manual_seed(0)
    corners = torch.randint(0, 13, (count, 2), generator=stream)
    frames = torch.zeros(count, 16, 16, 3, dtype=torch.uint8)
    for frame, (across, down) in zip(frames, corners.tolist()):
        frame[down : down + 4, across : across + 4] = 255
    spots = ((corners + 2) / 8 - 1).unsqueeze(1)
    return {"head": frames}, torch.zeros(count, 1), (corners - 6) / 60, {"head": spots}


def test_eyes_learn_where_things_are():
    images, states, facts, spots = looks(64)
    vla = make_vla(PolicySpec(("head",), 1, 2), VISION, TEXT, corpus=["a"], seed=0)
    head = make_head(vla, 2, 0)
    text_ids = vla.tokenize(["a"] * 64)
    loss_fn = keypoint_loss(vla, head, images, text_ids, states, facts, spots, seed=0)
    optimizer = build_adamw({"eyes": vla.vision_encoder, "pooled": vla.pooled, "head": head}, lr=3e-3)
    errors = []
    for step in range(60):
        loss, metrics = loss_fn(list(range(64)), step)
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        errors.append(float(metrics["pretraining/error_cm"]))
    assert errors[0] > 4
    assert errors[-1] < 1.5
    told, where = predict(vla, head, images, text_ids, states)
    assert told.shape == (64, 2)
    assert where.shape == (64, 1, 2, 2)
    # the first glance goes to the square, which is half a picture wide of the middle on average
    assert (where[:, 0, 0] - spots["head"][:, 0]).abs().mean() < 0.15
    # what the loss_fn calls an error is the distance in centimetres
    assert abs(100 * float((told - facts).abs().mean().detach()) - errors[-1]) < 1.0


def test_glances_are_drawn_to_what_the_picture_shows_and_to_nothing_else():
    where = torch.tensor([[[[0.5, 0.0], [0.2, 0.2], [9.0, 9.0]]]], requires_grad=True)
    spots = torch.tensor([[[[0.0, 0.25], [float("nan"), float("nan")]]]])
    error = keypoint_error(where, spots)
    assert float(error.detach()) == 0.375
    error.backward()
    assert where.grad[0, 0].tolist() == [[0.5, -0.5], [0.0, 0.0], [0.0, 0.0]]
    hidden = keypoint_error(where, torch.full((1, 1, 2, 2), float("nan")))
    assert float(hidden.detach()) == 0.0


def test_colour_jitter_scales_whole_pictures():
    frames = torch.tensor([100, 50, 0], dtype=torch.uint8).expand(64, 2, 2, 3)
    seen = jitter_colours(frames, torch.Generator().manual_seed(0))
    assert seen.dtype == torch.uint8
    assert torch.equal(seen, seen[:, :1, :1].expand_as(seen))
    gains = seen[:, 0, 0, 0] / 100
    assert float(gains.min()) >= 0.66
    assert float(gains.max()) <= 1.38
    assert float(gains.std()) > 0.1
    assert int(seen[..., 2].max()) == 0


PAD, UNKNOWN, BEGIN, END, RED, CUBE = 0, 1, 2, 3, 10, 11
KEPT = {PAD, UNKNOWN, BEGIN, END, RED, CUBE}
SENTENCE = [BEGIN, 20, 21, RED, CUBE, 22, END]


def dropped(rate: float, rows: int = 400, length: int = 12, seed: int = 0) -> list[list[int]]:
    ids = torch.tensor([SENTENCE + [PAD] * (length - len(SENTENCE))] * rows)
    found = drop_words(ids, KEPT, unknown=UNKNOWN, pad=PAD, rate=rate, rng=np.random.default_rng(seed))
    assert found.shape == ids.shape
    return [[word for word in row if word != PAD] for row in found.tolist()]


def test_word_dropout_keeps_names_together_and_in_order():
    for row in dropped(0.4):
        assert (row[0], row[-1]) == (BEGIN, END)
        place = row.index(RED)
        assert row[place + 1] == CUBE
        assert [word for word in row if word not in KEPT] == [word for word in (20, 21, 22) if word in row]


def test_word_dropout_hides_at_its_rate_and_leaves_out_half_as_many():
    rows = dropped(0.3, rows=4000)
    # of three words that name nothing 0.45 are missing, a third of those left out: unknown ones are the rest and added
    left = sum(word in (20, 21, 22) for row in rows for word in row) / (3 * len(rows))
    assert abs(left - 0.55) < 0.03
    assert len({tuple(row) for row in rows}) > 50
    assert dropped(0.3, seed=1) == dropped(0.3, seed=1) != dropped(0.3, seed=2)


def test_word_dropout_at_rate_0_only_adds_unknown_words():
    rows = dropped(0.0)
    assert all([word for word in row if word != UNKNOWN] == SENTENCE for row in rows)
    assert 0 < sum(UNKNOWN in row for row in rows) < len(rows)


def test_a_sentence_that_grows_too_long_is_cut_to_its_length_and_still_ends():
    rows = dropped(0.0, length=len(SENTENCE))
    assert all(len(row) == len(SENTENCE) and row[-1] == END for row in rows)
    assert any(UNKNOWN in row for row in rows)


def test_naming_is_the_mean_cross_entropy_of_what_is_named():
    scores = torch.zeros(2, sum(NAMED))
    scores[0, 1] = 100.0
    # the first row's object is told for sure, the second's is a guess among all colours; one target is not named
    named = torch.tensor([[1, 0], [2, UNNAMED]])
    guess = math.log(NAMED[0])
    assert float(naming_loss(scores, named)) == pytest.approx((guess / 2 + guess) / 2)
    assert float(naming_loss(scores, torch.tensor([[1, UNNAMED], [1, UNNAMED]]))) == pytest.approx(guess / 2)
