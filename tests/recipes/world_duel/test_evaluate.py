from dataclasses import replace

import numpy as np
import pytest
import torch

from lookact.algorithms.world_model import encode_sequences, generate_sequences, run_memory
from lookact.algorithms.world_model_evaluation import baseline_numbers, image_error
from lookact.data.sequences import TokenSequences
from lookact.recipes.world_duel.config import PRESETS, EnvConfig
from lookact.recipes.world_duel.data import Data, FrozenExplorer, explore, open_model, open_state
from lookact.recipes.world_duel.evaluate import duel_report, frozen_explorer_errors, noise_share, shuffled_actions

CONFIG = replace(PRESETS["debug"], env=EnvConfig(name="memory_curtain", num_envs=2, steps_per_episode=8))
ROWS = 3


@pytest.fixture(scope="module")
def world_model():
    model = open_model(CONFIG)
    model.vq.codebooks.normal_(generator=torch.Generator().manual_seed(0))
    return model


def sequences(world_model, steps):
    generator = torch.Generator().manual_seed(1)
    tokens, codes = world_model.vq.spec.tokens, world_model.vq.spec.codes
    return TokenSequences(
        wrist=torch.randint(codes, (ROWS, steps + 1, tokens), generator=generator).to(torch.int16),
        head=torch.zeros(ROWS, steps + 1, tokens, dtype=torch.int16),
        head_seen=torch.zeros(ROWS, dtype=torch.bool),
        state=torch.rand(ROWS, steps + 1, 1, generator=generator),
        actions=2 * torch.rand(ROWS, steps, 8, generator=generator) - 1,
        text_ids=world_model.tokenize(["remember"] * ROWS),
        mask=torch.ones(ROWS, steps, dtype=torch.bool),
    )


def test_random_actions_of_the_same_sizes_keep_nothing_but_the_sizes(world_model):
    made = sequences(world_model, 6)
    mixed, own = shuffled_actions(made, CONFIG.seed), made.actions.numpy()
    assert mixed.shape == own.shape
    for one, other in zip(np.abs(mixed).reshape(-1, 8).T, np.abs(own).reshape(-1, 8).T):
        assert np.sort(one) == pytest.approx(np.sort(other))
    assert (np.sign(mixed) != np.sign(own)).any()


def test_a_frame_that_comes_as_predicted_has_no_error(world_model):
    made = sequences(world_model, 1)
    assert (image_error(world_model, made, stride=1) > 0).all()
    encoded = encode_sequences(world_model, made)
    made.wrist[:, 1:] = generate_sequences(world_model, encoded, run_memory(world_model, encoded)[:, :-1], stride=1).to(
        torch.int16
    )
    assert image_error(world_model, made, stride=1).tolist() == [0.0] * ROWS


def test_copying_and_the_commonest_token_by_hand(world_model):
    made = sequences(world_model, 2)
    made.wrist[:] = 3
    made.wrist[0, 1:] = 5
    frames = torch.zeros(ROWS, 3, 32, 32, 3, dtype=torch.uint8)
    found = baseline_numbers(world_model, encode_sequences(world_model, made), frames)
    # the first row changes once in two steps; four of six frames to come hold threes
    assert found["copy_accuracy"].tolist() == [0.5, 1.0, 1.0]
    assert found["majority_accuracy"].tolist() == [0.0, 1.0, 1.0]


def test_the_frozen_explorers_episodes_stay_while_the_world_model_learns():
    state = open_state(CONFIG, None)
    state.world_model.vq.codebooks.normal_(generator=torch.Generator().manual_seed(0))
    state.explorer.model.load_state_dict(state.world_model.state_dict())
    found, random = (explore(state.explorer, state.envs, CONFIG.env, 0, split, 0)[1] for split in ("explore", "other"))
    data = Data(None, None, random, ())
    state.frozen_explorer.episodes.add(found)
    state.frozen_explorer.initial_errors = frozen_explorer_errors(state, data, stride=1)
    first = duel_report(state, data, stride=1)
    assert first["frozen_explorer_error"] == first["frozen_explorer_error_before"] > 0
    assert first["random_error"] == first["random_error_before"] > 0
    with torch.no_grad():
        state.world_model.codebook_head.heads.biases[0].add_(0.1)
    again = FrozenExplorer()
    again.load_state_dict(state.frozen_explorer.state_dict())
    later = duel_report(replace(state, frozen_explorer=again), data, stride=1)
    assert later["frozen_explorer_error_before"] == first["frozen_explorer_error_before"]
    assert later["frozen_explorer_error"] != first["frozen_explorer_error"]
    for name in ("frozen_explorer", "random"):
        change = later[f"{name}_error"] - later[f"{name}_error_before"]
        assert later[f"{name}_error_change"] == pytest.approx(change)
        low, high = later["ci"][f"{name}_error_change"]
        assert low <= change <= high


def test_the_share_of_the_reward_that_noise_takes(world_model):
    state = torch.zeros(ROWS, 8, 11)
    state[0, 1:, 9] = 1.0
    rewards = torch.ones(ROWS, 7)
    rewards[0] = 2.0
    shares = noise_share(rewards, replace(sequences(world_model, 7), state=state))
    assert shares["rollout/noise_rate"] == pytest.approx(1 / 3)
    assert shares["reward/noise_share"] == pytest.approx(0.5)
