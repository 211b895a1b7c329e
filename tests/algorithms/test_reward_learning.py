import numpy as np
import pytest
import torch

from lookact.algorithms.reward_learning import (
    LearnedReward,
    Query,
    RewardLearner,
    draw_pairs,
    k_centre,
    orders,
    round_size,
    select_pairs,
    shown_steps,
    teacher_labeller,
    vlm_labeller,
)
from lookact.data.preferences import PreferenceStore
from lookact.data.replay import Replay
from lookact.errors import DataError
from lookact.judges.teachers import TEACHERS
from lookact.models.reward_model import ImageRewards, StateRewards
from lookact.types import Preference


def true_reward(states):
    return np.tanh(states[..., 0]) - 0.5 * states[..., 1] ** 2


def judged(pairs, length, seed, teacher="oracle"):
    """Random segments of 4 numbers, and a teacher's verdicts on them."""
    segments = np.random.default_rng(seed).normal(size=(2, pairs, length, 4)).astype(np.float32)
    rewards = true_reward(segments).astype(np.float64)
    verdicts, _ = TEACHERS[teacher].prefer(rewards[0], rewards[1], seed=seed)
    store = PreferenceStore(capacity=pairs, shape=(length, 4))
    store.add(segments[0], segments[1], verdicts)
    return store


def rank_agreement(model, states):
    """Share of random pairs that the learned reward orders as the true one does."""
    learned, true = model(torch.from_numpy(states)).mean(dim=0).detach().numpy(), true_reward(states)
    one, two = np.arange(len(states)), np.random.default_rng(9).permutation(len(states))
    differing = np.abs(true[one] - true[two]) > 0.1
    return float(((learned[one] > learned[two]) == (true[one] > true[two]))[differing].mean())


@pytest.mark.parametrize(("length", "teacher"), [(1, "oracle"), (4, "oracle"), (1, "mistake")])
def test_the_order_of_a_known_reward_is_recovered(length, teacher):
    model = StateRewards(4, hidden=(64, 64), generator=torch.Generator().manual_seed(0))
    learner = RewardLearner(model, lr=2e-3)
    metrics = learner.fit(judged(300, length, 0, teacher), epochs=25, batch_size=64, target_accuracy=0.97, seed=0)
    held_out = np.random.default_rng(5).normal(size=(400, 4)).astype(np.float32)
    assert rank_agreement(model, held_out) > 0.85
    assert metrics["reward/accuracy"] > 0.85


@pytest.mark.slow
def test_pictures_can_be_ordered_too():
    # the higher the bright bar stands, the better
    heights = np.random.default_rng(0).integers(4, 44, size=(2, 60))
    frames = np.zeros((2, 60, 1, 48, 48, 3), np.uint8)
    for side in range(2):
        for index, height in enumerate(heights[side]):
            frames[side, index, 0, 44 - height : 48 - height] = 255
    store = PreferenceStore(capacity=60, shape=(1, 48, 48, 3), dtype=torch.uint8)
    store.add(frames[0], frames[1], np.where(heights[0] == heights[1], -1, heights[1] > heights[0]))
    model = ImageRewards((48, 48), members=2, generator=torch.Generator().manual_seed(0))
    RewardLearner(model, lr=1e-3).fit(store, epochs=25, batch_size=30, target_accuracy=0.99, seed=0)
    tall = np.zeros((2, 48, 48, 3), np.uint8)
    tall[0, 38:42], tall[1, 6:10] = 255, 255
    low, high = model(torch.from_numpy(tall)).mean(dim=0).tolist()
    assert high > low + 0.5


def test_fitting_ends_early_once_it_agrees():
    learner = RewardLearner(StateRewards(4, hidden=(64,), generator=torch.Generator().manual_seed(0)), lr=5e-3)
    metrics = learner.fit(judged(50, 1, 0), epochs=500, batch_size=50, target_accuracy=0.9, seed=0)
    assert 1 < metrics["reward/epochs"] < 500
    assert metrics["reward/accuracy"] >= 0.9


def test_a_soft_label_of_one_half_pulls_rewards_together():
    store = PreferenceStore(capacity=1, shape=(1, 4))
    first, second = np.ones((1, 1, 4), np.float32), -np.ones((1, 1, 4), np.float32)
    store.add(first, second, [0.5])
    model = StateRewards(4, hidden=(16,), generator=torch.Generator().manual_seed(0))
    learner = RewardLearner(model, lr=1e-2)
    for _ in range(10):
        metrics = learner.fit(store, epochs=20, batch_size=1, target_accuracy=2.0, seed=0)
    assert metrics["reward/gap"] < 0.02


def test_members_go_their_own_ways():
    ways = orders(3, 50, np.random.default_rng(0), bootstrap=False)
    assert all(sorted(way) == list(range(50)) for way in ways.tolist())
    assert ways[0].tolist() != ways[1].tolist()
    drawn = orders(3, 50, np.random.default_rng(0), bootstrap=True)
    assert all(len(set(way)) < 50 for way in drawn.tolist())


def test_an_interrupted_fit_goes_on_as_the_unbroken_one():
    store, learners = judged(40, 1, 0), []
    for _ in range(2):
        model = StateRewards(4, hidden=(8,), generator=torch.Generator().manual_seed(0))
        learners.append(RewardLearner(model))
    whole, broken = learners
    for learner in learners:
        learner.fit(store, epochs=2, batch_size=16, target_accuracy=2.0, seed=0)
    model = StateRewards(4, hidden=(8,), generator=torch.Generator().manual_seed(1))
    model.load_state_dict(broken.model.state_dict())
    resumed = RewardLearner(model)
    resumed.load_state_dict(broken.state_dict())
    for learner in (whole, resumed):
        learner.fit(store, epochs=2, batch_size=16, target_accuracy=2.0, seed=0)
    for name, tensor in whole.model.state_dict().items():
        assert torch.equal(tensor, resumed.model.state_dict()[name])


def test_nothing_to_learn_from_is_told():
    learner = RewardLearner(StateRewards(4, generator=torch.Generator().manual_seed(0)))
    with pytest.raises(DataError, match="nothing but -1"):
        learner.fit(PreferenceStore(capacity=3, shape=(1, 4)), epochs=1, batch_size=1, target_accuracy=1.0, seed=0)


def filled_replay(kind, steps=60, capacity=40):
    rng = np.random.default_rng(0)
    replay = Replay(
        capacity=capacity, state_size=3, action_size=1, frame_shape=(48, 48, 3) if kind == "frame" else None
    )
    for _ in range(steps):
        frame = rng.integers(256, size=(48, 48, 3), dtype=np.uint8) if kind == "frame" else None
        replay.add(
            rng.normal(size=3), np.zeros(1), 0.0, rng.normal(size=3), terminated=False, truncated=False, frame=frame
        )
    return replay


def make_reward(kind, **how):
    generator = torch.Generator().manual_seed(0)
    model = StateRewards(3, generator=generator) if kind == "state" else ImageRewards((48, 48), generator=generator)
    return LearnedReward(model, kind, chunk=16, **how)


@pytest.mark.parametrize("kind", ["state", "frame"])
def test_a_relabelled_replay_has_mean_zero_and_deviation_one_and_keeps_the_order(kind):
    replay, reward = filled_replay(kind), make_reward(kind)
    reward.relabel(replay)
    slots = replay.slots(np.arange(40))
    raw = reward.model(torch.from_numpy(slots.features(kind))).mean(dim=0)
    assert replay.rewards.mean().item() == pytest.approx(0, abs=1e-4)
    assert replay.rewards.std(correction=0).item() == pytest.approx(1, abs=1e-3)
    assert torch.equal(replay.rewards.argsort(), raw.argsort())


def test_a_sharpened_reward_keeps_the_order_and_pays_the_best_most_of_all():
    replay, reward = filled_replay("state"), make_reward("state", sharpness=4.0)
    reward.relabel(replay)
    raw = reward.model(torch.from_numpy(replay.slots(np.arange(40)).next_states)).mean(dim=0)
    paid = replay.rewards.sort().values
    assert torch.equal(replay.rewards.argsort(), raw.argsort())
    assert paid[-1].item() == pytest.approx(1.0, rel=0.05)
    assert np.exp(-6.0) < paid[0].item() <= np.exp(-4.0)
    assert paid.median() < 0.3


def test_a_new_transition_gets_what_relabelling_gives_it():
    replay, reward = filled_replay("state"), make_reward("state")
    reward.relabel(replay)
    one = reward.of(replay.slots(np.array([7])).next_states)
    assert one[0] == pytest.approx(replay.rewards[7].item(), abs=1e-5)


def test_scale_and_shift_are_kept():
    reward, other = make_reward("state"), make_reward("state")
    reward.relabel(filled_replay("state"))
    other.load_state_dict(reward.state_dict())
    assert (other.shift, other.scale) == (reward.shift, reward.scale)


def test_equal_rewards_stay_finite():
    replay, reward = filled_replay("state"), make_reward("state")
    with torch.no_grad():
        for parameter in reward.model.parameters():
            parameter.zero_()
    reward.relabel(replay)
    assert replay.rewards.tolist() == [0.0] * 40


SIZE = 48


def filled(values, *, episode=10):
    """A replay of states (value, -value) and grey frames, as many as there are values between 0 and 1."""
    replay = Replay(capacity=len(values), state_size=2, action_size=1, frame_shape=(SIZE, SIZE, 3))
    for i, value in enumerate(values):
        state, frame = np.array([value, -value]), np.full((SIZE, SIZE, 3), round(255 * value), np.uint8)
        last = (i + 1) % episode == 0
        replay.add(state, np.zeros(1), 0.0, state, terminated=False, truncated=last, frame=frame)
    return replay


def as_pairs(*pairs):
    return np.array(pairs, dtype=np.int64)[..., None]


def linear_members(weights):
    """State rewards in which member i answers tanh(weights[i] * value)."""
    model = StateRewards(2, members=len(weights), hidden=(), generator=torch.Generator().manual_seed(0))
    with torch.no_grad():
        model.network.weights[0].copy_(torch.tensor([[[w, 0.0]] for w in weights]))
        model.network.biases[0].zero_()
    return model


@pytest.mark.parametrize("length", [1, 4])
def test_pairs_are_of_different_segments_within_episodes(length):
    replay = filled(np.linspace(0, 1, 30))
    pairs = draw_pairs(replay, length=length, count=200, rng=np.random.default_rng(0))
    assert pairs.shape == (200, 2, length)
    assert (pairs[:, 0, 0] != pairs[:, 1, 0]).all()
    assert (pairs // 10 == pairs[..., :1] // 10).all()
    assert np.array_equal(pairs, pairs[..., :1] + np.arange(length))


def test_too_few_segments_are_told():
    with pytest.raises(DataError, match="1 segments of 10 steps"):
        draw_pairs(filled(np.ones(10)), length=10, count=1, rng=np.random.default_rng(0))


def test_disagreement_picks_the_pairs_on_which_members_part():
    replay, model = filled([0.5, 0.5, 0.0, 1.0, 0.4, 0.6]), linear_members([2.0, 2.0, -2.0])
    # equal values: all members say one half; apart: two say the second, one the first; the farther, the more
    pairs = as_pairs([0, 1], [4, 5], [2, 3])
    chosen = select_pairs("disagreement", pairs, count=2, replay=replay, model=model, kind="state")
    assert chosen[..., 0].tolist() == [[2, 3], [4, 5]]


def test_members_that_agree_strongly_are_not_asked_about():
    replay, model = filled([0.0, 1.0, 0.5, 0.6]), linear_members([3.0, 3.0, 3.0])
    pairs = as_pairs([0, 1], [2, 3])
    # certain of the first pair, unsure of the second, and of one mind on both
    assert select_pairs("entropy", pairs, count=1, replay=replay, model=model, kind="state")[0, :, 0].tolist() == [2, 3]


def test_k_centre_spreads_out():
    # three heaps: the point farthest from the mean, then the heap farthest from it, then the third heap
    points = torch.tensor([[0.0], [0.1], [10.0], [10.1], [4.0], [4.1]])
    assert k_centre(points, 3).tolist() == [3, 0, 5]
    assert sorted(k_centre(points, 99).tolist()) == list(range(6))
    assert k_centre(torch.zeros(4, 2), 4).tolist() == [0, 1, 2, 3]


@pytest.mark.parametrize("strategy", ["uniform", "disagreement", "entropy", "k_centre"])
@pytest.mark.parametrize("kind", ["state", "frame"])
def test_every_strategy_works_with_states_and_with_pictures(strategy, kind):
    replay = filled(np.linspace(0, 1, 30))
    generator = torch.Generator().manual_seed(0)
    model = StateRewards(2, generator=generator) if kind == "state" else ImageRewards((SIZE, SIZE), generator=generator)
    pairs = draw_pairs(replay, length=2, count=12, rng=np.random.default_rng(1))
    chosen = select_pairs(strategy, pairs, count=5, replay=replay, model=model, kind=kind)
    assert chosen.shape == (5, 2, 2)
    offered = {pair.tobytes() for pair in pairs}
    assert len({pair.tobytes() for pair in chosen} & offered) == 5


def test_features_are_of_the_moment_after_the_action():
    replay = Replay(capacity=2, state_size=1, action_size=1)
    replay.add(np.array([1]), np.zeros(1), 0.0, np.array([2]), terminated=False, truncated=False)
    assert replay.features(np.array([[[0]]]), "state").tolist() == [[[[2.0]]]]
    with pytest.raises(DataError, match="no frames"):
        replay.features(np.array([0]), "frame")


@pytest.fixture
def replay():
    """Eight steps of one episode: in step i the state is i, the frame is all i, and the true reward is 10 - i."""
    ring = Replay(capacity=8, state_size=1, action_size=1, frame_shape=(2, 2, 3))
    for i in range(8):
        frame = np.full((2, 2, 3), i, np.uint8)
        ring.add([i - 1], [0], 0.0, [i], terminated=False, truncated=False, frame=frame, score=10.0 - i)
    return ring


def test_the_judge_is_shown_every_step_side_by_side_and_the_log_told_their_scores(replay):
    query = Query.of(replay, np.array([[[0, 1], [4, 5]]]), shown=True)
    assert query.frames.shape == (1, 2, 2, 4, 3)
    assert query.frames[0, :, 0, :, 0].tolist() == [[0, 0, 1, 1], [4, 4, 5, 5]]
    assert query.true_rewards.tolist() == [[[10.0, 9.0], [6.0, 5.0]]]
    assert Query.of(replay, np.array([[[0, 1], [4, 5]]]), shown=False).frames is None


@pytest.mark.parametrize(("count", "steps"), [(1, [7]), (2, [3, 7]), (3, [1, 4, 7]), (8, list(range(8)))])
def test_shown_steps_are_evenly_spaced_and_end_with_the_last(count, steps):
    assert shown_steps(np.arange(8)[None, None], count).tolist() == [[steps]]


def test_a_judge_of_pictures_gets_pairs_in_order_and_the_goal():
    class Brighter:
        def compare(self, pairs, goal):
            assert goal == "to shine"
            return [Preference(a, b, int(b.mean() > a.mean())) for a, b in pairs]

    frames = np.zeros((2, 2, 4, 4, 3), np.uint8)
    frames[0, 1], frames[1, 0] = 9, 9
    assert vlm_labeller(Brighter(), "to shine")(Query(frames, np.zeros((2, 2, 1))), 0) == [1, 0]


@pytest.mark.parametrize("kind", TEACHERS)
def test_every_teacher_answers_negative_rewards_as_it_does_positive_ones(kind):
    scores = np.random.default_rng(0).normal(size=(200, 2, 3)) - 1000.0
    label = teacher_labeller(TEACHERS[kind], seed=0)
    verdicts = np.array(label(Query(None, scores), 0))
    assert verdicts.tolist() == label(Query(None, scores), 0)
    decided = verdicts >= 0
    assert decided.mean() > 0.5
    right = (verdicts == (scores[:, 1].sum(1) > scores[:, 0].sum(1)))[decided].mean()
    assert right == 1.0 if kind in ("oracle", "skip", "equal") else 0.6 < right < 1.0


def test_rounds_shrink_or_grow_and_never_exceed_the_total():
    sizes = {
        schedule: [round_size(schedule, average=40, total=400, asked=0, done=done) for done in (0.1, 0.5, 0.9)]
        for schedule in ("uniform", "decaying", "growing")
    }
    assert sizes == {"uniform": [40, 40, 40], "decaying": [72, 40, 8], "growing": [8, 40, 72]}
    assert round_size("uniform", average=40, total=400, asked=390, done=0.5) == 10
    assert round_size("uniform", average=40, total=400, asked=400, done=0.5) == 0
