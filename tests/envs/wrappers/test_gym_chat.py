import gymnasium
import numpy as np
import pytest
from gymnasium import spaces

from lookact.envs.wrappers.gym_chat import GymChat, read_words
from lookact.errors import EnvError, ParseError
from lookact.rollout.collect import collect
from lookact.rollout.samplers.random_actor import RandomActor
from lookact.types import EpisodeSpec


class Line(gymnasium.Env):
    """Walk along a line of five cells to its right end; a seed says where the walk begins."""

    observation_space = spaces.Discrete(5)
    action_space = spaces.Discrete(2)

    def __init__(self, picture=None):
        self.picture = picture

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.cell = int(self.np_random.integers(0, 3))
        return self.cell, {"began": self.cell}

    def step(self, action):
        self.cell = min(4, max(0, self.cell + (1 if action else -1)))
        return self.cell, float(self.cell == 4), self.cell == 4, False, {}

    def render(self):
        if self.picture is not None:
            return self.picture
        picture = np.zeros((4, 20, 3), dtype=np.uint8)
        picture[:, 4 * self.cell : 4 * self.cell + 4] = 255
        return picture


def chat(**changes):
    return GymChat(Line(), instruction="Go right.", actions={"left": 0, "right": 1}, max_turns=6, **changes)


def test_a_walk_to_the_end_succeeds_and_is_seen():
    env = chat()
    seen, info = env.reset(seed=3, options={})
    assert seen.text == "Go right. Turn 1 of 6."
    assert seen.images["view"][0, 4 * info["began"], 0] == 255
    for _ in range(4 - info["began"]):
        seen, reward, terminated, truncated, info = env.step('I go on. {"action": "Right"}')
    assert (reward, terminated, truncated, info["success"], info["valid_action"]) == (1.0, True, False, True, True)


def test_an_invalid_action_is_told_counted_and_not_taken():
    env = chat(invalid_reward=-0.1)
    env.reset(seed=0, options={})
    cell = env.env.cell
    seen, reward, terminated, truncated, info = env.step('{"action": "jump"}')
    assert env.env.cell == cell
    assert seen.text == "Invalid: action must be one of left, right. Go right. Turn 2 of 6."
    assert (reward, terminated, truncated, info["valid_action"]) == (-0.1, False, False, False)
    for _ in range(5):
        *_, truncated, info = env.step("no idea")
    assert truncated
    assert info["turn"] == 6
    with pytest.raises(EnvError, match="call reset"):
        env.step("left")


def test_a_group_begins_alike_whatever_its_episodes_seeds():
    env = chat()
    begun = [env.reset(seed=seed, options={"start_seed": 11})[1]["began"] for seed in range(5)]
    assert len(set(begun)) == 1
    assert len({env.reset(seed=seed, options={"start_seed": seed})[1]["began"] for seed in range(20)}) > 1


def test_an_environment_may_be_made_by_its_seed():
    made = []
    env = GymChat(lambda seed: made.append(seed) or Line(), instruction="Go.", actions={"left": 0, "right": 1})
    with pytest.raises(EnvError, match="call reset first"):
        _ = env.env
    env.reset(seed=1, options={"start_seed": 5})
    env.reset(seed=2, options={"start_seed": 6})
    assert made == [5, 6]


def test_pictures_are_scaled_and_an_environment_that_draws_nothing_is_refused():
    seen, _ = chat(image_size=32).reset(seed=0, options={})
    assert seen.images["view"].shape == (32, 32, 3)
    bare = GymChat(Line(picture="no"), instruction="Go.", actions={"left": 0})
    with pytest.raises(EnvError, match="rgb_array"):
        bare.reset(seed=0, options={})


@pytest.mark.parametrize(
    ("reply", "action"),
    [("left", 0), ("I turn LEFT, then right", 1), ('{"action": " Left "}', 0), ("go straight right", 1)],
)
def test_words_and_json_are_read(reply, action):
    assert read_words({"left": 0, "right": 1})(reply) == action


@pytest.mark.parametrize("reply", ["", "leftish", '{"action": 1}', '{"move": "left"}', '{"action": "left"'])
def test_what_names_no_action_is_told(reply):
    with pytest.raises(ParseError):
        read_words({"left": 0, "right": 1})(reply)


def test_collect_runs_it():
    specs = [EpisodeSpec(id=str(i), group=i // 2, seed=i, options={"start_seed": i // 2}) for i in range(4)]
    words = ("left", "right", "perhaps")
    episodes = collect(specs, [chat() for _ in range(3)], RandomActor(lambda rng: words[rng.integers(3)]))
    assert [episode.error for episode in episodes] == [None] * 4
    assert all(episode.terminated or len(episode.turns) == 6 for episode in episodes)
