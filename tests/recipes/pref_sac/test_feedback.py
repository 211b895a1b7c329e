import numpy as np
import pytest
import torch

from lookact.data.preferences import PreferenceStore
from lookact.data.replay import Replay
from lookact.errors import DataError
from lookact.judges.teachers import TEACHERS
from lookact.recipes.pref_sac.config import Feedback, label_path
from lookact.recipes.pref_sac.feedback import (
    Labeller,
    Question,
    by_judge,
    by_teacher,
    load_labels,
    question_of,
    save_labels,
    session_size,
)
from lookact.recipes.pref_sac.tables import QUERY_COLUMNS, Table
from lookact.types import Preference


@pytest.fixture
def replay():
    """Eight steps of one episode: in step i the state is i, the frame is all i, and the true reward is 10 - i."""
    ring = Replay(capacity=8, state_size=1, action_size=1, frame_shape=(2, 2, 3))
    for i in range(8):
        frame = np.full((2, 2, 3), i, np.uint8)
        ring.add([i - 1], [0], 0.0, [i], terminated=False, truncated=False, frame=frame, score=10.0 - i)
    return ring


def make_store(length=1):
    return PreferenceStore(capacity=16, shape=(length, 1))


def pairs_of(*pairs):
    return np.array(pairs)[..., None]


def test_the_judge_is_shown_the_last_frame_and_the_log_told_the_summed_score(replay):
    question = question_of(replay, np.array([[[0, 1], [4, 5]]]))
    assert question.frames[0, 0, 0, 0, 0] == 1
    assert question.frames[0, 1, 0, 0, 0] == 5
    assert question.scores.tolist() == [[[10.0, 9.0], [6.0, 5.0]]]


def test_every_answer_is_logged_and_only_preferences_are_kept(replay, tmp_path):
    told = iter([0, 1, -1, -1])
    log, store = Table(tmp_path / "log.csv", QUERY_COLUMNS), make_store()
    labeller = Labeller(lambda question, session: [next(told) for _ in question.scores], store, log, "state")
    metrics = labeller.ask(replay, pairs_of([0, 1], [2, 3], [4, 5], [6, 6]), session=3)
    assert [row[:3] for row in log.rows] == [
        ["10.0", "9.0", "0"], ["8.0", "7.0", "1"], ["6.0", "5.0", "-1"], ["4.0", "4.0", "-1"],
    ]  # fmt: skip
    assert {row[4] for row in log.rows} == {"3"}
    assert store.first.flatten().tolist() == [0.0, 2.0]
    assert store.labels.tolist() == [0.0, 1.0]
    # the first was right, the second wrong; the others were not decided
    assert metrics["judge/accuracy"] == 0.5
    assert metrics["judge/pairs"] == 4
    assert (metrics["judge/no_preference"], metrics["judge/identical"], metrics["judge/kept"]) == (1, 1, 2)


def test_a_judge_of_pictures_gets_pairs_in_order_and_the_goal():
    class Brighter:
        def compare(self, pairs, goal):
            assert goal == "to shine"
            return [Preference(a, b, int(b.mean() > a.mean())) for a, b in pairs]

    frames = np.zeros((2, 2, 4, 4, 3), np.uint8)
    frames[0, 1], frames[1, 0] = 9, 9
    assert by_judge(Brighter(), "to shine")(Question(frames, np.zeros((2, 2, 1))), 0) == [1, 0]


@pytest.mark.parametrize("kind", TEACHERS)
def test_every_teacher_answers_negative_rewards_as_it_does_positive_ones(kind):
    scores = np.random.default_rng(0).normal(size=(200, 2, 3)) - 1000.0
    answer = by_teacher(TEACHERS[kind], seed=0)
    verdicts = np.array(answer(Question(None, scores), 0))
    assert verdicts.tolist() == answer(Question(None, scores), 0)
    decided = verdicts >= 0
    assert decided.mean() > 0.5
    right = (verdicts == (scores[:, 1].sum(1) > scores[:, 0].sum(1)))[decided].mean()
    assert right == 1.0 if kind in ("oracle", "skip", "equal") else 0.6 < right < 1.0


def test_sessions_shrink_or_grow_and_never_exceed_the_total():
    sizes = {
        schedule: [
            session_size(Feedback(schedule=schedule, session=40), asked=0, done=done) for done in (0.1, 0.5, 0.9)
        ]
        for schedule in ("uniform", "decaying", "growing")
    }
    assert sizes == {"uniform": [40, 40, 40], "decaying": [72, 40, 8], "growing": [8, 40, 72]}
    assert session_size(Feedback(total=400, session=40), asked=390, done=0.5) == 10
    assert session_size(Feedback(total=400, session=40), asked=400, done=0.5) == 0


@pytest.mark.parametrize("nothing", [None, "", "None", "null"])
def test_there_are_many_ways_to_say_no_path(nothing):
    assert label_path(nothing) is None


def test_a_path_is_a_path(tmp_path):
    assert label_path(str(tmp_path)) == tmp_path


def test_labels_of_one_run_begin_another(tmp_path):
    store = make_store()
    store.add(np.array([[[1.0]], [[2.0]]], np.float32), np.array([[[3.0]], [[4.0]]], np.float32), [0, 1])
    save_labels(store, tmp_path)
    again = make_store()
    assert load_labels(again, tmp_path) == 2
    assert torch.equal(again.second, store.second)
    assert torch.equal(again.labels, store.labels)
    assert again.counts["pairs"] == 2


def test_labels_of_another_task_or_of_nowhere_are_refused(tmp_path):
    with pytest.raises(DataError, match="no labels at"):
        load_labels(make_store(), tmp_path)
    save_labels(make_store(length=2), tmp_path)
    with pytest.raises(DataError, match="another task"):
        load_labels(make_store(), tmp_path)
