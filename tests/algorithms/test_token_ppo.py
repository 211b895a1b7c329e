"""Advantages on ragged multi-turn masks against sums written out, and the way to them and back to micro-batches."""

from dataclasses import replace

import numpy as np
import pytest
import torch

from lookact.algorithms.token_ppo import (
    EpisodeTensors,
    apply_kl_penalty,
    lay_out,
    make_minibatches,
    mismatch_weights,
    token_advantages,
)
from lookact.data.packing import Segment
from lookact.errors import TokenMismatch
from lookact.ops.mismatch import MismatchLimits

MASK = torch.tensor([[1, 1, 0, 1, 1, 0, 1], [0, 1, 1, 0, 0, 0, 0]]).bool()
TURNS = torch.tensor([[0, 0, 0, 1, 1, 1, 2], [0, 0, 1, 1, -1, -1, -1]])
# a turn's reward often stands on its last unit, which need not count
REWARDS = torch.tensor([[0.0, 0.0, 1.0, 0.0, 0.0, 2.0, 4.0], [0.0, 0.5, 0.0, 3.0, 0.0, 0.0, 0.0]])
VALUES = torch.tensor([[0.3, 0.1, 9.0, 0.2, 0.4, 9.0, 0.5], [9.0, 0.7, 0.6, 9.0, 0.0, 0.0, 0.0]])
TENSORS = EpisodeTensors(
    mask=MASK,
    turns=TURNS,
    rewards=REWARDS,
    engine_logprobs=torch.zeros_like(REWARDS),
    logprobs=torch.zeros_like(REWARDS),
    values=VALUES,
    reference_logprobs=None,
)
# the counted units of each row with the rewards that fall to them: value, reward, turn
UNITS = [
    [(0.3, 0.0, 0), (0.1, 1.0, 0), (0.2, 0.0, 1), (0.4, 2.0, 1), (0.5, 4.0, 2)],
    [(0.7, 0.5, 0), (0.6, 3.0, 1)],
]
FADING = {"gamma": 0.9, "lam": 0.8, "gamma_turn": 0.7, "lam_turn": 0.6}


def brute_gae(values, rewards, gamma, lam):
    """The sum over all later steps, written out."""
    after = [*values[1:], 0.0]
    deltas = [r + gamma * v_next - v for v, r, v_next in zip(values, rewards, after)]
    return [sum((gamma * lam) ** (k - t) * deltas[k] for k in range(t, len(deltas))) for t in range(len(deltas))]


def counted(advantages):
    assert (advantages[~MASK] == 0).all()
    return [row[mask].tolist() for row, mask in zip(advantages, MASK)]


def test_monte_carlo_is_return_minus_value():
    expected = [
        [sum(0.9 ** (k - t) * row[k][1] for k in range(t, len(row))) - row[t][0] for t in range(len(row))]
        for row in UNITS
    ]
    for row, wanted in zip(counted(token_advantages(TENSORS, method="monte_carlo", **FADING)), expected):
        assert row == pytest.approx(wanted)


def test_gae_runs_over_counted_tokens():
    for row, units in zip(counted(token_advantages(TENSORS, method="gae", **FADING)), UNITS):
        values, rewards, _ = zip(*units)
        assert row == pytest.approx(brute_gae(values, rewards, 0.9, 0.8))


def turn_level(units):
    """Each turn's first value and summed reward, and its advantage."""
    kinds = sorted({turn for *_, turn in units})
    values = [next(v for v, _, turn in units if turn == kind) for kind in kinds]
    rewards = [sum(r for _, r, turn in units if turn == kind) for kind in kinds]
    return kinds, values, brute_gae(values, rewards, 0.7, 0.6)


def test_turn_credit_is_the_same_for_all_of_a_turns_tokens():
    for row, units in zip(counted(token_advantages(TENSORS, method="turn", **FADING)), UNITS):
        kinds, _, advantages = turn_level(units)
        assert row == pytest.approx([advantages[kinds.index(turn)] for *_, turn in units])


def test_bilevel_credit_runs_inside_a_turn_towards_what_comes_after_it():
    for row, units in zip(counted(token_advantages(TENSORS, method="bilevel", **FADING)), UNITS):
        kinds, values, advantages = turn_level(units)
        expected = []
        for place, kind in enumerate(kinds):
            own = [(v, r) for v, r, turn in units if turn == kind]
            beyond = 0.7 * (values[place + 1] + 0.6 * advantages[place + 1]) if place + 1 < len(kinds) else 0.0
            rewards = [*(r for _, r in own[:-1]), own[-1][1] + beyond]
            expected += brute_gae([v for v, _ in own], rewards, 0.9, 0.8)
        assert row == pytest.approx(expected)


def test_the_four_methods_differ():
    kinds = ("monte_carlo", "gae", "turn", "bilevel")
    told = [tuple(token_advantages(TENSORS, method=kind, **FADING).flatten().tolist()) for kind in kinds]
    assert len(set(told)) == 4


def test_kl_as_reward_takes_k1_from_counted_units_only():
    tensors = replace(
        TENSORS, logprobs=torch.full_like(REWARDS, -1.0), reference_logprobs=torch.full_like(REWARDS, -3.0)
    )
    charged, metrics = apply_kl_penalty(tensors, 0.1)
    assert torch.allclose(REWARDS - charged.rewards, 0.2 * MASK)
    assert float(metrics["policy/kl"]) == pytest.approx(2.0)
    assert torch.equal(apply_kl_penalty(tensors, 0.0)[0].rewards, REWARDS)
    assert apply_kl_penalty(TENSORS, 0.1) == (TENSORS, {})


def test_the_raw_gap_is_told_before_the_weights_are_cut():
    tensors = replace(TENSORS, logprobs=torch.full_like(REWARDS, 1.5))
    weights, metrics = mismatch_weights(tensors, cap=2.0, limits=MismatchLimits(2.0, 2.0))
    assert float(metrics["policy/mismatch_gap_max"]) == 1.5
    assert weights.max() == 2.0
    assert (weights[TURNS < 0] == 0).all()


def test_engines_that_are_too_far_off_are_refused():
    far = replace(TENSORS, logprobs=torch.full_like(REWARDS, 1.5))
    with pytest.raises(TokenMismatch, match=r"1\.5 nats a token.*learn\.max_logprob_gap"):
        mismatch_weights(far, cap=2.0, limits=MismatchLimits(1.0, 1.0))


def test_an_outlier_among_a_thousand_tokens_weighs_nothing():
    nothing = torch.zeros(1, 1000)
    scored = nothing.clone()
    scored[0, 7] = 3.0
    tensors = replace(TENSORS, logprobs=scored, engine_logprobs=nothing, turns=nothing.long())
    weights, metrics = mismatch_weights(tensors, cap=2.0, limits=MismatchLimits(1.0, 1.0))
    assert (weights == 0).nonzero().tolist() == [[0, 7]]
    assert float(metrics["policy/mismatch_outliers"]) == pytest.approx(0.001)


def segment(turns, *, value):
    """A unit a listed turn; its reward is `value` plus its place."""
    n = len(turns)
    return Segment(
        ids=np.arange(n + 2),
        positions=np.arange(2, n + 2),
        mask=np.ones(n, bool),
        logprobs=np.zeros(n, np.float32),
        turns=np.array(turns),
        rewards=(value + np.arange(n)).astype(np.float32),
        images=(),
        episode_return=0.0,
        group=0,
        terminated=True,
        advantages=np.zeros(n, np.float32),
    )


EPISODES = [[segment([0, 0, 1], value=10), segment([0, 1], value=20)], [segment([0], value=30)]]
SEGMENTS = [part for parts in EPISODES for part in parts]


class Blind:
    """A model that packs no images."""

    device = torch.device("cpu")

    def encode_images(self, images):
        return torch.zeros(0, 1), torch.zeros(0, 3, dtype=torch.long)


def chunks_of(order, *, parts=2, budget=64):
    return make_minibatches(Blind(), SEGMENTS, order, parts=parts, token_budget=budget)


def test_segments_of_an_episode_follow_each_other_in_its_row():
    layout = lay_out(EPISODES)
    chunks = [chunk for minibatch in chunks_of([2, 1, 0]) for chunk in minibatch]
    rewards = layout.gather(chunks, [chunk.batch.rewards for chunk in chunks])
    assert rewards.tolist() == [[10, 11, 12, 20, 21], [30, 0, 0, 0, 0]]
    assert layout.gather_turns(chunks).tolist() == [[0, 0, 1, 2, 3], [0, -1, -1, -1, -1]]


def test_what_is_gathered_goes_back_to_where_it_was():
    layout = lay_out(EPISODES)
    chunks = [chunk for minibatch in chunks_of([1, 2, 0], parts=1) for chunk in minibatch]
    joined = layout.gather(chunks, [chunk.batch.rewards for chunk in chunks])
    for chunk in chunks:
        assert torch.equal(layout.scatter(joined, chunk), chunk.batch.rewards)


def test_every_segment_is_in_one_chunk_and_the_budget_holds():
    minibatches = chunks_of([1, 0, 2], parts=2, budget=5)
    assert sorted(n for minibatch in minibatches for chunk in minibatch for n in chunk.numbers) == [0, 1, 2]
    assert all(chunk.batch.inputs.ids.numel() <= 5 for minibatch in minibatches for chunk in minibatch)
    assert {n for chunk in minibatches[0] for n in chunk.numbers} == {0, 1}


def test_more_parts_than_segments_leave_empty_minibatches():
    assert [len(minibatch) for minibatch in chunks_of([0], parts=3)] == [1, 0, 0]
