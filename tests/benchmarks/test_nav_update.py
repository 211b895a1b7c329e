import numpy as np
import pytest
import torch

from benchmarks.nav_update import by_episode, by_turn, credited, learn, sample_episodes, split_turns, whole_step


def test_one_sequence_a_turn_gives_the_gradient_of_one_sequence_an_episode(chat, load):
    segments = credited(sample_episodes(chat, load))
    turns = [turn for segment in segments for turn in split_turns(segment, load.turns)]
    gradients, losses = [], []
    for form in (segments, turns):
        chat.zero_grad()
        losses.append(learn(chat, form, load))
        gradients.append(torch.cat([p.grad.flatten() for p in chat.parameters() if p.grad is not None]))
    assert gradients[0].abs().max() > 1e-3
    torch.testing.assert_close(gradients[0], gradients[1], atol=1e-5, rtol=1e-5)
    np.testing.assert_allclose(*losses, atol=1e-5)


def test_split_turns_hold_every_unit_once_behind_all_that_came_before(chat, load):
    segment = credited(sample_episodes(chat, load))[0]
    parts = split_turns(segment, load.turns)
    sampled = np.concatenate([part.ids[part.positions] for part in parts])
    np.testing.assert_array_equal(sampled, segment.ids[segment.positions])
    assert [len(part.images) for part in parts] == [1, 2, 3]
    np.testing.assert_array_equal(parts[-1].ids, segment.ids)


@pytest.mark.slow
def test_both_sides_learn_from_the_same_units(folder, load):
    episodes, turns = by_episode(folder, load)(), by_turn(folder, load)()
    assert episodes["units"] == turns["units"]
    assert turns["sequences"] == load.turns * episodes["sequences"] == load.turns * load.environments
    assert turns["tokens"] > episodes["tokens"]


@pytest.mark.slow
def test_the_whole_step_learns_from_every_sampled_token(folder, load):
    step, update = whole_step(folder, load), by_episode(folder, load)
    assert step()["sampled_tokens"] == update()["units"]
