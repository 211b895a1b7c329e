import csv
import threading
from contextlib import ExitStack
from dataclasses import replace

import numpy as np
import pytest
import torch
from safetensors.torch import load_file

from lookact.algorithms.judge_diary import read_diary
from lookact.algorithms.judge_training import QUERY_COLUMNS
from lookact.algorithms.reward_learning import LearnedReward
from lookact.data.episode_store import EpisodeStore
from lookact.data.pictures import decode_picture
from lookact.data.preferences import load_pairs
from lookact.data.replay import Replay
from lookact.envs.control.classic import Classic
from lookact.errors import ConfigError, DataError, JudgeError
from lookact.judges.teachers import TEACHERS, Teacher
from lookact.models.reward_model import StateRewards
from lookact.models.sac import SACLearner
from lookact.recipes.pref_sac import train as pref_sac
from lookact.recipes.pref_sac.config import PRESETS, EnvConfig
from lookact.recipes.pref_sac.evaluate import evaluate, make_env, make_sac
from lookact.recipes.pref_sac.judge import open_feedback
from lookact.training.checkpoint import load_checkpoint
from lookact.training.run import Run, open_run
from lookact.training.trackers import Table

DEBUG = PRESETS["debug"]
TRIAL = 1
"""Questions to a server before the first step."""


@pytest.fixture
def cfg():
    """Five episodes of ten steps with an oracle, in a ring that wraps."""
    return replace(
        DEBUG,
        env=EnvConfig(horizon=10, image_size=48),
        judge=replace(DEBUG.judge, kind="oracle"),
        learn=replace(DEBUG.learn, episodes=5, replay_capacity=35),
        feedback=replace(DEBUG.feedback, total=14),
        evaluation=replace(DEBUG.evaluation, every=2),
    )


def rows(folder, name="vlm_query_log.csv"):
    """A table without its times of day."""
    with (folder / name).open() as file:
        return [{key: cell for key, cell in row.items() if key != "timestamp"} for row in csv.DictReader(file)]


def state_of(folder, step):
    """Everything that a checkpoint remembers, times of day aside."""
    checkpoint = load_checkpoint(folder / f"checkpoint-{step}")
    ring = Replay(capacity=35, state_size=3, action_size=1)
    ring.read(checkpoint.weights("replay"))
    items = dict(checkpoint.state)
    items["queries"] = [row[:3] + row[4:] for row in items["queries"]["rows"]]
    return {"items": items, "replay": ring.state_dict(), "weights": weights_of(folder, step)}


def weights_of(folder, step):
    return {name: load_file(folder / f"checkpoint-{step}" / name / "model.safetensors") for name in ("sac", "reward")}


def same(one, two):
    """Whether nested plain data and tensors are equal to the last bit."""
    if isinstance(one, torch.Tensor):
        return torch.equal(one, two)
    if isinstance(one, dict):
        return one.keys() == two.keys() and all(same(one[key], two[key]) for key in one)
    if isinstance(one, list | tuple):
        return len(one) == len(two) and all(map(same, one, two))
    return one == two


class Killed(Exception):
    pass


def killed_at(monkeypatch, episode):
    """A run dies as it logs this episode."""
    log = Run.log

    def dying(self, metrics, step, **how):
        if step == episode:
            raise Killed
        log(self, metrics, step, **how)

    monkeypatch.setattr(Run, "log", dying)


@pytest.mark.slow
@pytest.mark.parametrize("episode", [3, 5])
def test_a_killed_and_resumed_run_ends_as_an_unbroken_one(cfg, train, tmp_path, monkeypatch, episode, kept_in):
    whole = train(pref_sac.main, cfg, "whole")
    with monkeypatch.context() as patch:
        killed_at(patch, episode)
        with pytest.raises(Killed):
            train(pref_sac.main, cfg, "broken")
    resumed = train(pref_sac.main, cfg, "broken", resume=True)
    assert resumed == whole
    assert kept_in(tmp_path / "broken") == kept_in(tmp_path / "whole")
    assert kept_in(tmp_path / "whole").keys() == {
        *("step-000002", "step-000004", "step-000005", "after-greedy", "random")
    }
    assert same(state_of(tmp_path / "whole", 5), state_of(tmp_path / "broken", 5))
    for name in ("vlm_query_log.csv", "eval.csv"):
        assert rows(tmp_path / "broken", name) == rows(tmp_path / "whole", name)


def test_what_a_run_leaves_behind(cfg, train, tmp_path):
    result = train(pref_sac.main, cfg)
    asked = rows(tmp_path / "run")
    assert len(asked) == 14
    assert [row["train_iter"] for row in asked] == ["0"] * 6 + ["1"] * 6 + ["2"] * 2
    for row in asked:
        first, second = float(row["ground_truth_score_1"]), float(row["ground_truth_score_2"])
        assert int(row["vlm_predicted_label"]) == int(second > first)
    evals = rows(tmp_path / "run", "eval.csv")
    assert [row["step"] for row in evals] == ["20", "40", "50"]
    assert {"success_rate", "episode_return"} <= set(evals[0])
    assert set(result["agent"]["ci"]) == {"success_rate", "episode_return"}
    items = state_of(tmp_path / "run", 5)["items"]
    assert items["labels"]["counts"]["pairs"] == 14
    assert_learned(tmp_path / "run", items["scale"])


def assert_learned(folder, scale):
    """Every slot of the wrapped ring carries what the reward says of it now."""
    ring = Replay(capacity=35, state_size=3, action_size=1)
    ring.read(folder / "checkpoint-5" / "replay")
    model = StateRewards(3, hidden=(16,), generator=torch.Generator())
    model.load_state_dict(weights_of(folder, 5)["reward"])
    reward = LearnedReward(model, "state")
    reward.load_state_dict(scale)
    assert len(ring) == 35
    np.testing.assert_allclose(ring.rewards.numpy(), reward(ring.slots(np.arange(35))), atol=1e-5)


def test_the_true_reward_needs_no_judge_and_asks_nothing(cfg, train, tmp_path):
    train(pref_sac.main, replace(cfg, reward="true"))
    assert rows(tmp_path / "run") == []
    ring = Replay(capacity=35, state_size=3, action_size=1)
    ring.read(tmp_path / "run" / "checkpoint-5" / "replay")
    assert np.array_equal(ring.rewards.numpy(), ring.slots(np.arange(35)).scores)


@pytest.mark.slow
def test_labels_of_an_earlier_run_count_towards_the_total(cfg, train, tmp_path):
    train(pref_sac.main, cfg, "first")
    cached = replace(cfg.feedback, cached_label_path=str(tmp_path / "first"))
    train(pref_sac.main, replace(cfg, feedback=cached), "second")
    assert rows(tmp_path / "second") == []
    assert state_of(tmp_path / "second", 5)["items"]["labels"]["counts"]["kept"] == 14
    longer = replace(cfg, feedback=replace(cached, segment_length=2))
    with pytest.raises(DataError, match="another task"):
        train(pref_sac.main, longer, "third")


@pytest.mark.slow
@pytest.mark.parametrize("strategy", ["disagreement", "entropy", "k_centre"])
@pytest.mark.parametrize("inputs", ["state", "frame"])
def test_every_way_to_choose_works_with_states_and_with_pictures(cfg, train, tmp_path, strategy, inputs):
    asked = replace(cfg.feedback, strategy=strategy, segment_length=2, candidates=3)
    chosen = replace(cfg, feedback=asked, reward_model=replace(cfg.reward_model, inputs=inputs))
    train(pref_sac.main, replace(chosen, learn=replace(cfg.learn, episodes=3)))
    assert len(rows(tmp_path / "run")) == 12


def served_by(cfg, server, lost):
    client = replace(cfg.judge.client, url=server.url, on_timeout=lost, timeout_s=0.2, concurrency=1)
    return replace(cfg, judge=replace(cfg.judge, kind="server", client=client))


@pytest.fixture
def unbroken(cfg, train, tmp_path, bright_server):
    """The rows and weights of a run whose server stayed."""
    server = bright_server()
    train(pref_sac.main, served_by(cfg, server, "stop"), "whole")
    server.stop()
    assert server.answered == 14 + TRIAL
    return rows(tmp_path / "whole"), weights_of(tmp_path / "whole", 5)


@pytest.mark.slow
def test_a_run_whose_server_is_killed_stops_and_goes_on_where_it_was(cfg, train, tmp_path, bright_server, unbroken):
    first = bright_server(last=13 + TRIAL)
    with pytest.raises(JudgeError, match="no answer"):
        train(pref_sac.main, served_by(cfg, first, "stop"), "broken")
    # the third round asks about two pairs: with half of it answered, none of it counts
    assert len(rows(tmp_path / "broken")) == 12
    first.stop()
    second = bright_server(port=first.port)
    train(pref_sac.main, served_by(cfg, second, "stop"), "broken", resume=True)
    second.stop()
    assert first.answered + second.answered == 14 + TRIAL
    diary = read_diary(tmp_path / "broken")
    assert [[str(score) for score in judged.true_scores] for judged in diary] == [
        [row["ground_truth_score_1"], row["ground_truth_score_2"]] for row in unbroken[0]
    ]
    assert [str(judged.verdict) for judged in diary] == [row["vlm_predicted_label"] for row in unbroken[0]]
    assert same(unbroken, (rows(tmp_path / "broken"), weights_of(tmp_path / "broken", 5)))


def test_a_run_waits_for_a_server_that_is_killed_and_comes_back(cfg, train, tmp_path, bright_server, unbroken):
    first, later = bright_server(last=8 + TRIAL), []

    def come_back():
        first.thread.join(60.0)
        later.append(bright_server(port=first.port))

    waiting = threading.Thread(target=come_back)
    waiting.start()
    train(pref_sac.main, served_by(cfg, first, "wait"), "broken")
    waiting.join(60.0)
    later[0].stop()
    assert first.answered + later[0].answered == 14 + TRIAL
    assert same(unbroken, (rows(tmp_path / "broken"), weights_of(tmp_path / "broken", 5)))


def test_a_run_asks_a_trial_question_before_its_first_step(cfg, train, tmp_path, bright_server):
    server = bright_server(last=0)
    with pytest.raises(JudgeError, match="no answer"):
        train(pref_sac.main, served_by(cfg, server, "stop"))
    assert (tmp_path / "run" / "metrics.jsonl").read_text() == ""


def test_pictures_for_the_judge_are_apart_from_the_frames_of_the_reward(cfg, train, tmp_path, bright_server):
    server = bright_server()
    cfg = served_by(cfg, server, "stop")
    segments = replace(cfg.feedback, segment_length=4, frames=2)
    view = replace(cfg.env, judge_image_size=96)
    cfg = replace(cfg, env=view, feedback=segments, reward_model=replace(cfg.reward_model, inputs="frame"))
    train(pref_sac.main, cfg)
    server.stop()
    ring = Replay(capacity=35, state_size=3, action_size=1, frame_shape=(48, 48, 3), pictures=True)
    ring.read(tmp_path / "run" / "checkpoint-5" / "replay")
    assert decode_picture(ring.pictures(np.array([0]))[0]).shape == (96, 96, 3)
    # the judge saw two steps of four, and these two are summed
    first, _, labels = load_pairs(tmp_path / "run" / "labels" / "00000.safetensors")
    assert first.shape == (len(labels), 2, 48, 48, 3)


def test_critics_are_reset_at_the_first_fit_however_late_it_comes(cfg, train, monkeypatch):
    resets, bonus = [], []
    reset, entropy = SACLearner.reset_critics, pref_sac.state_entropy_rewards
    monkeypatch.setattr(SACLearner, "reset_critics", lambda *given: (resets.append(len(bonus)), reset(*given)))
    monkeypatch.setattr(pref_sac, "state_entropy_rewards", lambda *given: (bonus.append(1), entropy(*given))[1])

    def label(teacher, seed):
        # nothing is preferred in the first round
        return lambda query, number: [-1 if number == 0 else 0] * len(query.true_rewards)

    monkeypatch.setattr("lookact.recipes.pref_sac.judge.teacher_labeller", label)
    train(pref_sac.main, cfg)
    # two episodes of ten steps on the exploration bonus, one of them since nothing was preferred; then a reset, once
    assert resets == [20]
    assert len(bonus) == 20


def test_a_judge_without_preferences_leaves_the_run_without_reward_but_alive(cfg, train, tmp_path, monkeypatch):
    monkeypatch.setitem(TEACHERS, "equal", Teacher(equal=1e9))
    train(pref_sac.main, replace(cfg, judge=replace(cfg.judge, kind="equal")))
    assert {row["vlm_predicted_label"] for row in rows(tmp_path / "run")} == {"-1"}


def test_a_checkpoint_and_a_random_policy_are_measured(cfg, train, tmp_path):
    train(pref_sac.main, cfg)
    measured = [
        evaluate(cfg, checkpoint=checkpoint, episodes=2, greedy=True, dummy=checkpoint is None, folder=tmp_path)
        for checkpoint in (tmp_path / "run" / "checkpoint-5", None)
    ]
    for report in measured:
        assert report["episodes"] == 2
        low, high = report["ci"]["episode_return"]
        assert low <= report["episode_return"] <= high
        assert 0.0 <= report["success_rate"] <= 1.0
    first, _ = EpisodeStore(tmp_path / "episodes").episodes()
    assert len(first.turns) == cfg.env.horizon
    assert first.turns[0].observation.images["camera"].shape == (48, 48, 3)
    assert first.total_reward == pytest.approx(sum(turn.reward for turn in first.turns))
    assert first.last is not None
    assert measured[0] != measured[1]


def test_a_task_that_can_not_be_drawn_here_is_measured_without_pictures(cfg, tmp_path, monkeypatch, caplog):
    def blind(env):
        raise RuntimeError("no OpenGL here")

    monkeypatch.setattr(Classic, "render", blind)
    evaluate(cfg, checkpoint=None, episodes=1, greedy=False, dummy=True, folder=tmp_path)
    (episode,) = EpisodeStore(tmp_path / "episodes").episodes()
    assert episode.turns[0].observation.images == {}
    assert "no OpenGL here" in caplog.text


def test_several_processes_are_refused(cfg, train, monkeypatch):
    monkeypatch.setattr(pref_sac, "world_size", lambda: 2)
    with pytest.raises(ConfigError, match="leave --processes out"):
        train(pref_sac.main, cfg)


def test_every_label_is_logged_and_only_preferences_are_kept(cfg, tmp_path, monkeypatch):
    """In step i the state is i and the true reward is 10 - i."""
    ring = Replay(capacity=8, state_size=1, action_size=1)
    for i in range(8):
        ring.add([i - 1], [0], 0.0, [i], terminated=False, truncated=False, score=10.0 - i)
    pairs = np.array([[0, 1], [2, 3], [4, 5], [6, 6]])[..., None]
    monkeypatch.setattr(pref_sac, "draw_pairs", lambda *given, **how: pairs)
    with ExitStack() as closing, open_run(tmp_path / "run", {}, tensorboard=False) as run:
        feedback = open_feedback(cfg, ring, run, closing)
    feedback = replace(feedback, label=lambda query, number: [0, 1, -1, -1])
    log, store = Table(tmp_path / "log.csv", QUERY_COLUMNS), feedback.store
    metrics = pref_sac.label_queries(cfg, feedback, ring, log, 3, 4)
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


@pytest.mark.parametrize(("sticky_prob", "length"), [(0.0, 1.0), (0.8, 5.0)])
def test_random_actions_repeat_as_often_as_they_should(cfg, sticky_prob, length):
    cfg = replace(cfg, env=EnvConfig(horizon=3000), learn=replace(cfg.learn, sticky_action_prob=sticky_prob))
    ring, learner = Replay(capacity=3000, state_size=3, action_size=1), SACLearner(make_sac(cfg), lr=1e-3)
    metrics = pref_sac.run_episode(cfg, make_env(cfg.env), learner, ring, None, 1)
    assert "loss/critic" not in metrics
    actions = ring.slots(np.arange(3000)).actions[:, 0]
    assert np.abs(actions).max() <= 1
    changes = (actions[1:] != actions[:-1]).sum()
    assert 3000 / (changes + 1) == pytest.approx(length, rel=0.1)


def test_a_checkpoint_of_full_takes_little_beside_its_replay(tmp_path):
    """With all pairs asked and gradients taken; the optimisers hold two numbers for each weight."""
    full = PRESETS["full"]
    cfg = replace(
        full, env=replace(full.env, task="Pendulum-v1"), judge=replace(full.judge, kind="oracle"), device="cpu"
    )
    learner, replay = SACLearner(make_sac(cfg), lr=1e-3), Replay(capacity=2, state_size=3, action_size=1)
    ring = Replay(capacity=2, state_size=39, action_size=4, frame_shape=(cfg.env.image_size, cfg.env.image_size, 3))
    queries = Table(tmp_path / "log.csv", QUERY_COLUMNS)
    queries.extend([(0.123456789, 0.987654321, 1, "2026-01-01T00:00:00", 100)] * cfg.feedback.total)
    replay.add([0, 0, 0], [0], 0.0, [0, 0, 0], False, False)
    pref_sac.sac_update(learner, replay.sample(4, torch.Generator()), torch.Generator(), cfg.learn)
    with ExitStack() as closing, open_run(tmp_path / "run", {}, tensorboard=False) as run:
        feedback = open_feedback(cfg, ring, run, closing)
        frames = np.random.default_rng(0).integers(256, size=(2, 64, 1, *ring.feature_shape("frame")), dtype=np.uint8)
        feedback.store.add(frames[0], frames[1], np.ones(64))
        feedback.learner.fit(feedback.store, epochs=1, batch_size=64, target_accuracy=1.0, seed=0)
        weights = {"sac": learner.sac, "reward": feedback.learner.model}
        run.save(1, weights=weights, state={"sac": learner, "queries": queries, **feedback.state}, metrics={})
        assert sum(file.stat().st_size for file in (run.folder / "checkpoint-1").rglob("*")) < 20e6
