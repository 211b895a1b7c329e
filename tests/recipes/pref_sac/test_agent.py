import itertools

import numpy as np
import pytest

from lookact.recipes.pref_sac.agent import held_actions


@pytest.mark.parametrize(("held", "length"), [(0.0, 1.0), (0.8, 5.0)])
def test_random_actions_are_held_as_long_as_they_should_be(held, length):
    actions = np.stack([*itertools.islice(held_actions(held, 2, np.random.default_rng(0)), 5000)])
    assert actions.dtype == np.float32
    assert np.abs(actions).max() <= 1
    changes = (actions[1:] != actions[:-1]).any(axis=1).sum()
    assert 5000 / (changes + 1) == pytest.approx(length, rel=0.1)
