"""Tasks and rewards that other people got wrong: one line each through the real command line, and nothing is lost."""

import sys
from pathlib import Path

import pytest

from lookact.cli import main

ENV = """
import gymnasium
import numpy as np
from gymnasium import spaces
from lookact.envs import GymChat
from lookact.tasks import GymTask


class Env(gymnasium.Env):
    observation_space, action_space = spaces.Discrete(1), spaces.Discrete(2)
    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        return 0, {{}}
    def step(self, action):
        return {step}
    def render(self):
        return {picture}


def make_env():
    return GymChat(Env(), instruction="Which?", actions={{"left": 0, "right": 1}}, max_turns=1)


TASK = GymTask(make_env, image_size=32, actions=("left", "right"), expert=lambda env: ["left"])
NOTHING = 3
"""
GOOD_STEP = "0, float(action == 0), True, False, {}"
PICTURE = "np.zeros((32, 32, 3), dtype=np.uint8)"
REWARDS = """
def nan(episode):
    return float("nan")
def two_too_many(episode):
    return [0.0] * (len(episode.turns) + 2)
def words(episode):
    return "good"
def fails(episode):
    return episode.no_such_thing
NUMBER = 3
"""
SMALL = (
    "--preset=debug --vision_pretraining.rooms=0 --sft.demonstrations=2 --sft.epochs=1 --learn.iterations=1 "
    "--learn.groups=1 --learn.group_size=2 --sampling.max_tokens=8 --evaluation.final_episodes=0"
)


@pytest.fixture(autouse=True)
def elsewhere(tmp_path, monkeypatch):
    """A working folder with a file of rewards."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", list(sys.path))
    Path("own_rewards.py").write_text(REWARDS)


def write_task(name: str, *, step: str = GOOD_STEP, picture: str = PICTURE) -> None:
    Path(name).write_text(ENV.format(step=step, picture=picture))


def refusal(capsys, *words) -> str:
    capsys.readouterr()
    assert main(words) == 2
    line = capsys.readouterr().err.strip().splitlines()[-1]
    assert line.startswith("lookact: ")
    return line


@pytest.mark.parametrize(
    ("name", "broken", "line"),
    [
        ("four_parts", {"step": "0, 1.0, True, False"}, "Env.step() gave 4 values: return (observation, reward,"),
        ("word_reward", {"step": "0, 'much', True, False, {}"}, "Env.step() gave the reward 'much': give a finite"),
        ("nan_reward", {"step": "0, float('nan'), True, False, {}"}, "Env.step() gave the reward nan: give a finite"),
        ("raising", {"step": "1 / 0"}, "raising.py:TASK does not run: ZeroDivisionError: division by zero"),
        ("undrawn", {"picture": "None"}, "render() gave no (h, w, 3) uint8 picture: make the environment with"),
    ],
)
def test_a_chat_environment_that_breaks_the_rules_is_refused_before_any_work(name, broken, line, capsys):
    write_task(f"{name}.py", **broken)
    told = refusal(capsys, "train", "rloo", "--task", f"{name}.py:TASK", *SMALL.split())
    assert line in told
    assert not list(Path().glob("runs/*/*"))


@pytest.mark.parametrize("recipe", ["rloo", "vla-ppo", "pref-sac", "world-duel"])
@pytest.mark.parametrize(
    ("task", "line"),
    [
        ("no_such_module:TASK", "there is no module no_such_module: check the name, or install what has it"),
        ("nothere.py:TASK", "nothere.py does not exist: check the path"),
        ("own_rewards.py:MISSING", "own_rewards.py has no MISSING: write MODULE:NAME"),
        ("own_rewards.py:NUMBER", "own_rewards.py:NUMBER is no "),
        ("typo.py:TASK", "typo.py could not be imported: SyntaxError"),
    ],
)
def test_a_task_that_is_none_is_one_line(recipe, task, line, capsys):
    Path("typo.py").write_text("TASK = (")
    assert line in refusal(capsys, "train", recipe, "--task", task, "--preset", "debug")
    assert not Path("runs").exists()


def test_chat_tasks_and_control_tasks_are_told_apart(capsys):
    write_task("chat_task.py")
    control = "from lookact.envs import ControlTask\nfrom dot_env import Dot\nTASK = ControlTask(Dot)\n"
    Path("control_task.py").write_text(control)
    line = refusal(capsys, "train", "vla-ppo", "--task", "chat_task.py:TASK", "--preset", "debug")
    assert "chat_task.py:TASK is a chat task: recipes rloo and ppo take it" in line
    line = refusal(capsys, "train", "rloo", "--task", "control_task.py:TASK", "--preset", "debug")
    assert "control_task.py:TASK is a control task: recipes vla-ppo, pref-sac and world-duel take it" in line


@pytest.mark.parametrize(
    ("reward", "line"),
    [
        ("nothere:fine", "there is no module nothere"),
        ("own_rewards.py:missing", "own_rewards.py has no missing"),
        ("own_rewards.py:NUMBER", "own_rewards.py:NUMBER is no function: it is a int"),
        ("own_rewards.py:nan*much", "'much' is no number; write MODULE:NAME*0.5"),
    ],
)
@pytest.mark.parametrize("recipe", ["rloo", "ppo"])
def test_a_reward_that_is_none_is_refused_before_any_work(recipe, reward, line, capsys):
    assert line in refusal(capsys, "train", recipe, "--preset", "debug", "--reward_functions", reward)
    assert not Path("runs").exists()


@pytest.mark.slow
def test_a_reward_that_pays_nonsense_ends_the_run_and_what_was_learned_is_kept(capsys):
    write_task("good_task.py")
    words = ["train", "rloo", "--task", "good_task.py:TASK", *SMALL.split(), "--name", "mine", "--auto-resume"]
    for name, line in {
        "nan": "own_rewards.py:nan gave a reward that is not finite in episode",
        "two_too_many": "own_rewards.py:two_too_many gave 3 rewards for 1 turns: give one number, or one a turn",
        "words": "own_rewards.py:words gave 'good': give one number, or one a turn",
        "fails": "own_rewards.py:fails failed: AttributeError: 'Episode' object has no attribute 'no_such_thing'",
    }.items():
        assert line in refusal(capsys, *words, "--reward_functions", f"own_rewards.py:{name}")
        # the supervised start is not done again
        assert Path("runs/nav-rloo/mine/sft").is_dir()
    assert main(words) == 0
