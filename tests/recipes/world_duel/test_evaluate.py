from dataclasses import replace

import numpy as np
import pytest
import torch

from lookact.data.sequences import Sequences
from lookact.recipes.world_duel.config import PRESETS, World
from lookact.recipes.world_duel.evaluate import copied, imagine_all, picture_error_on, scrambled
from lookact.recipes.world_duel.model import open_world
from lookact.recipes.world_duel.update import remember_all, to_film

CONFIG = replace(PRESETS["debug"], world=World(env="hidden", rows=2, steps_per_episode=8))
ROWS = 3


@pytest.fixture(scope="module")
def world():
    model = open_world(CONFIG)
    model.vq.codebooks.normal_(generator=torch.Generator().manual_seed(0))
    return model


def sequences(world, steps):
    generator = torch.Generator().manual_seed(1)
    tokens, codes = world.vq.spec.tokens, world.vq.spec.codes
    return Sequences(
        wrist=torch.randint(codes, (ROWS, steps + 1, tokens), generator=generator).to(torch.int16),
        head=torch.zeros(ROWS, steps + 1, tokens, dtype=torch.int16),
        head_seen=torch.zeros(ROWS, dtype=torch.bool),
        state=torch.rand(ROWS, steps + 1, 1, generator=generator),
        actions=2 * torch.rand(ROWS, steps, 8, generator=generator) - 1,
        text_ids=world.read(["remember"] * ROWS),
        counts=torch.ones(ROWS, steps, dtype=torch.bool),
    )


def test_random_actions_of_the_same_sizes_keep_nothing_but_the_sizes(world):
    made = sequences(world, 6)
    mixed, own = scrambled(made, CONFIG), made.actions.numpy()
    assert mixed.shape == own.shape
    for one, other in zip(np.abs(mixed).reshape(-1, 8).T, np.abs(own).reshape(-1, 8).T):
        assert np.sort(one) == pytest.approx(np.sort(other))
    assert (np.sign(mixed) != np.sign(own)).any()


def test_a_picture_that_comes_as_imagined_has_no_error(world):
    made = sequences(world, 1)
    assert (picture_error_on(world, made, stride=1) > 0).all()
    film = to_film(world, made)
    made.wrist[:, 1:] = imagine_all(world, film, remember_all(world, film)[:, :-1], stride=1).to(torch.int16)
    assert picture_error_on(world, made, stride=1).tolist() == [0.0] * ROWS


def test_copying_and_the_commonest_token_by_hand(world):
    made = sequences(world, 2)
    made.wrist[:] = 3
    made.wrist[0, 1:] = 5
    frames = torch.zeros(ROWS, 3, 32, 32, 3, dtype=torch.uint8)
    told = copied(world, to_film(world, made), frames)
    # the first row changes once in two steps; four of six frames to come hold threes
    assert told["copy_accuracy"].tolist() == [0.5, 1.0, 1.0]
    assert told["frequent_accuracy"].tolist() == [0.0, 1.0, 1.0]
