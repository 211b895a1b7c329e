import numpy as np
import pytest

from lookact.judges.teachers import TEACHERS, Teacher

RNG = np.random.default_rng(0)
FIRST, SECOND = RNG.normal(size=(2, 4000, 5))


def verdicts(name, first, second, seed=0, **options):
    return TEACHERS[name].prefer(np.asarray(first), np.asarray(second), seed=seed, **options)[0].tolist()


def test_the_oracle_prefers_the_higher_score():
    assert verdicts("oracle", [[1.0, 2.0], [5.0, 0.0], [1.0, 1.0]], [[4.0, 0.0], [0.0, 4.0], [2.0, 0.0]]) == [1, 0, -1]
    assert verdicts("oracle", [1.0, 5.0], [4.0, 4.0]) == [1, 0]


def test_mistakes_come_as_often_as_said():
    truth = np.array(verdicts("oracle", FIRST, SECOND))
    wrong = (np.array(verdicts("mistake", FIRST, SECOND)) != truth).mean()
    # three standard deviations of 4000 draws at 0.1
    assert abs(wrong - 0.1) < 0.0143


def test_noise_follows_bradley_terry():
    gap = np.log(3.0)
    chosen = np.mean(verdicts("noisy", np.zeros(4000), np.full(4000, gap)))
    # sigmoid(log 3) is 3/4
    assert abs(chosen - 0.75) < 0.021
    assert verdicts("noisy", [0.0, 1e9], [1e9, 0.0]) == [1, 0]


def test_the_myopic_teacher_weighs_late_steps_more():
    # 0.9 * 1 + 0 < 0 + 0.95, though the sums say otherwise
    assert verdicts("myopic", [[1.0, 0.0]], [[0.0, 0.95]]) == [1]
    assert verdicts("oracle", [[1.0, 0.0]], [[0.0, 0.95]]) == [0]


def test_poor_pairs_are_skipped():
    found, answered = TEACHERS["skip"].prefer(np.array([0.5, 2.0, 0.0]), np.array([0.9, 0.0, 1.1]), seed=0, margin=10.0)
    assert (found.tolist(), answered.tolist()) == ([-1, 0, 1], [False, True, True])


def test_nearly_equal_pairs_are_equal_but_answered():
    found, answered = TEACHERS["equal"].prefer(np.array([5.0, 5.0]), np.array([5.9, 6.1]), seed=0, margin=10.0)
    assert (found.tolist(), answered.tolist()) == ([-1, 1], [True, True])


@pytest.mark.parametrize("name", TEACHERS)
def test_the_same_seed_gives_the_same_verdicts(name):
    assert verdicts(name, FIRST, SECOND, seed=3) == verdicts(name, FIRST, SECOND, seed=3)


@pytest.mark.parametrize("name", ["mistake", "noisy"])
def test_another_seed_draws_anew(name):
    assert verdicts(name, FIRST, SECOND, seed=3) != verdicts(name, FIRST, SECOND, seed=4)


def test_a_draw_does_not_depend_on_the_pairs_that_follow():
    assert verdicts("noisy", FIRST[:10], SECOND[:10]) == verdicts("noisy", FIRST, SECOND)[:10]


def test_a_mistake_does_not_invent_a_preference():
    assert set(Teacher(mistake=1.0).prefer(np.zeros(50), np.zeros(50), seed=0)[0]) == {-1}
    assert set(Teacher(mistake=1.0).prefer(np.zeros(50), np.ones(50), seed=0)[0]) == {0}


def test_lessons_carry_pairs_scores_and_what_was_said():
    first, second = np.array([[0.1, 0.1], [3.0, 1.0]]), np.array([[0.0, 0.0], [0.0, 1.0]])
    skipped, given = TEACHERS["skip"].teach([("a", "b"), ("c", "d")], first, second, seed=0, margin=10.0)
    assert (skipped.verdict, skipped.raw_text) == (-1, "skipped")
    assert (given.first, given.second, given.verdict, given.raw_text) == ("c", "d", 0, "0")
    assert (given.score_first, given.score_second) == (4.0, 1.0)


@pytest.mark.parametrize("order", [(0, 1, 2), (2, 1, 0), (1, 2, 0)])
def test_equal_sums_are_equal_in_whatever_order_they_were_added(order):
    rewards = np.array([0.1, 0.2, 0.3])
    first, second = np.tile(rewards, (2, 1)), np.stack([rewards[list(order)], rewards + 1e-9])
    assert TEACHERS["oracle"].prefer(first, second, seed=0)[0].tolist() == [-1, 1]
