import errno
import os

import numpy as np
import pytest

from lookact.data.episode_store import EpisodeStore
from lookact.errors import DataError
from lookact.training import evaluation
from lookact.training.evaluation import keep_episodes, keep_evaluation, rewind_episodes, step_name
from lookact.types import Decision, Episode, Observation, Turn

NONE = np.zeros(0, np.float32)


def episodes(count, reward=0.0):
    """Endless work if all of it were drawn: whoever takes more than `count` fails."""
    seen = Observation("look", {"head": np.zeros((4, 4, 3), np.uint8)}, depth=np.zeros((4, 4), np.float32))
    for number in range(count):
        turn = Turn(seen, Decision(np.zeros(2, np.float32), NONE, NONE > 0), reward, True, False)
        yield Episode(f"e{number:02d}", number, 0, (turn,), last=seen)
    raise AssertionError("more was drawn than is kept")


def names(folder):
    return sorted(path.name for path in folder.iterdir())


def rewards(folder):
    return [episode.total_reward for episode in EpisodeStore(folder).episodes()]


def test_the_first_episodes_are_kept_without_their_depth(tmp_path):
    keep_episodes(tmp_path / "kept", episodes(3), most=3)
    kept = list(EpisodeStore(tmp_path / "kept").episodes())
    assert [episode.id for episode in kept] == ["e00", "e01", "e02"]
    assert all(each.depth is None for episode in kept for each in (episode.turns[0].observation, episode.last))


def test_a_second_evaluation_takes_the_place_of_the_first(tmp_path):
    keep_episodes(tmp_path / "kept", episodes(4, 1.0), most=4)
    keep_episodes(tmp_path / "kept", episodes(2, 2.0), most=2)
    assert rewards(tmp_path / "kept") == [2.0, 2.0]
    assert names(tmp_path) == ["kept"]


def test_only_the_newest_steps_stay_beside_the_start_and_the_end(tmp_path):
    for name in ("before-greedy", *(step_name(step) for step in (5, 10, 100, 1000)), "after-greedy"):
        keep_evaluation(tmp_path, name, episodes(8))
    assert names(tmp_path / "episodes") == [
        "after-greedy",
        "before-greedy",
        "step-000010",
        "step-000100",
        "step-001000",
    ]


@pytest.mark.parametrize("elsewhere", [False, True])
def test_going_on_from_a_step_drops_what_came_after_it(tmp_path, elsewhere):
    run = tmp_path / "run"
    for name in ("before-greedy", step_name(5), step_name(10, "student"), "after-greedy", "after-sampled"):
        keep_evaluation(run, name, episodes(8))
    if elsewhere:
        # training data that lies beside them stays where it is
        (run / "episodes/random-0000.npz").touch()
        rewind_episodes(tmp_path / "other", 5, run)
    else:
        rewind_episodes(run, 5)
    assert names(tmp_path / ("other" if elsewhere else "run") / "episodes") == ["before-greedy", "step-000005"]
    assert (run / "episodes/after-greedy").exists() == elsewhere


def test_a_replacement_cut_in_two_is_undone(tmp_path):
    keep_evaluation(tmp_path, step_name(5), episodes(8, 1.0))
    folder = tmp_path / "episodes"
    (folder / "step-000005").rename(folder / ".old-step-000005")
    (folder / ".tmp-step-000005").mkdir()
    rewind_episodes(tmp_path, 5)
    assert names(folder) == ["step-000005"]
    assert rewards(folder / "step-000005") == [1.0] * 8


def test_a_full_disk_is_told_and_leaves_what_was_there(tmp_path, monkeypatch):
    keep_episodes(tmp_path / "kept", episodes(1, 1.0), most=1)

    def full(store, episode):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(evaluation.EpisodeStore, "add", full)
    with pytest.raises(DataError, match="no space left to keep episodes"):
        keep_episodes(tmp_path / "kept", episodes(2, 2.0), most=2)
    monkeypatch.undo()
    assert names(tmp_path) == ["kept"]
    assert rewards(tmp_path / "kept") == [1.0]
