"""The counts and rates behind the cost model's row of the bench."""

import numpy as np
import pytest

from benchmarks.scale_costs import Measured, fit_rates, measured_work, pairs_of
from lookact.planning.costs import Rates, planned_work, rollout_seconds, shape_of, update_seconds
from lookact.rollout.collect import collect
from lookact.rollout.samplers.hf import HFSampler
from lookact.rollout.samplers.settings import Sampling
from lookact.types import EpisodeSpec, Observation


class Corridor:
    """Three turns of one picture each."""

    def reset(self, *, seed, options):
        self.turn = 0
        return self.look(), {}

    def step(self, action):
        self.turn += 1
        return self.look(), 0.0, False, self.turn == 3, {}

    def look(self):
        return Observation(text="Find the bed.", images={"camera": np.zeros((64, 64, 3), np.uint8)})

    def close(self):
        pass


def test_pairs_by_hand():
    # two tokens after three: the first looks at 3 + 1, the second at 3 + 2
    assert pairs_of(2, 3) == 9


def test_a_plan_of_equal_turns_by_hand():
    work = planned_work(episodes=2, turns=2, image_tokens=4, text_tokens=1, reply_tokens=2)
    assert (work.env_steps, work.images, work.prompt_tokens, work.sampled_tokens, work.rounds) == (4, 4, 20, 8, 4)
    first, second = pairs_of(5, 0), pairs_of(5, 7)
    assert work.prompt_pairs == 2 * (first + second)
    assert work.sampled_pairs == 2 * (pairs_of(2, 5) + pairs_of(2, 12))


def test_a_real_rollout_does_what_was_planned(chat):
    specs = [EpisodeSpec(id=str(i), group=i, seed=i) for i in range(4)]
    sampling = Sampling(max_tokens=5, min_action_tokens=1)
    # the end of a reply is never drawn: every reply has the full length
    chat.banned[chat.end_id] = True
    episodes = collect(specs, [Corridor() for _ in specs], HFSampler(chat, sampling))
    done = measured_work(episodes, image_tokens=4)
    assert (done.episodes, done.env_steps, done.images, done.sampled_tokens, done.rounds) == (4, 12, 12, 60, 15)
    text = [len(turn.decision.prompt_ids) - 4 for turn in episodes[0].turns]
    assert done.prompt_tokens == 4 * (sum(text) + 12)
    planned = planned_work(episodes=4, turns=3, image_tokens=4, text_tokens=sum(text) / 3, reply_tokens=5)
    assert planned.prompt_tokens == pytest.approx(done.prompt_tokens)
    # the opening is longer than the turns after it: pairs agree nearly, not wholly
    assert planned.prompt_pairs == pytest.approx(done.prompt_pairs, rel=0.1)
    assert planned.sampled_pairs == pytest.approx(done.sampled_pairs, rel=0.1)


def test_rates_are_found_again_from_what_they_would_take(chat):
    shape = shape_of(chat.config)
    rates = Rates(prefill=4e9, decode=1e9, decode_step_seconds=2e-3, update=6e9, env_seconds=1e-3)
    sizes = [(2, 3, 5), (8, 3, 5), (8, 6, 12), (32, 4, 3)]
    works = [planned_work(episodes=e, turns=t, image_tokens=9, text_tokens=12, reply_tokens=r) for e, t, r in sizes]
    runs = [Measured(w, rollout_seconds(shape, w, rates), update_seconds(shape, w, rates)) for w in works]
    found = fit_rates(shape, runs, env_seconds=1e-3)
    assert found.prefill == pytest.approx(rates.prefill, rel=1e-6)
    assert found.decode == pytest.approx(rates.decode, rel=1e-6)
    assert found.decode_step_seconds == pytest.approx(rates.decode_step_seconds, rel=1e-6)
    assert found.update == pytest.approx(rates.update, rel=1e-6)
