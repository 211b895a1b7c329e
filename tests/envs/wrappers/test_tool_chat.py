"""An environment class as TRL's documentation of `environment_factory` asks for, as a chat environment."""

import PIL.Image
import pytest

from lookact.envs.wrappers.tool_chat import ToolChat, describe, tools_of
from lookact.errors import ConfigError, EnvError
from lookact.rollout.collect import collect, make_specs
from lookact.rollout.samplers.random_actor import RandomActor


class Counter:
    """Text in, text out: add until the sum is the target, then say so."""

    def __init__(self):
        self.reward = 0.0

    def reset(self, target, **columns):
        self.columns, self.target, self.total = columns, target, 0
        return f"The target is {target}."

    def add(self, number: int, times: int = 1) -> str:
        """
        Add a number to the sum.

        Args:
            number: what to add
            times: how often
        """
        if number < 0:
            raise ValueError("only upwards")
        self.total += number * times
        self.reward = float(self.total == self.target)
        return f"The sum is {self.total}."

    def _hidden(self):
        raise AssertionError


ROWS = [{"prompt": [{"role": "user", "content": "Reach the target."}], "target": target} for target in (3, 5)]


def begun(**how):
    env = ToolChat(Counter, rows=ROWS, **how)
    seen, info = env.reset(seed=0, options={"start_seed": 1})
    return env, seen, info


def test_the_prompt_the_tools_and_the_first_observation_are_shown():
    env, seen, info = begun()
    assert seen.text == "Reach the target. add(number, times): Add a number to the sum.\nThe target is 5."
    assert info["valid_action"]
    assert env.env.columns == {"prompt": ROWS[1]["prompt"]}
    assert list(tools_of(env.env)) == ["add"]


@pytest.mark.parametrize(
    "call",
    [
        '{"name": "add", "arguments": {"number": 5}}',
        '<tool_call>{"name": "add", "arguments": {"number": 5}}</tool_call>',
        '{"type": "function", "function": {"name": "add", "arguments": {"number": 5}}}',
        'five it is {"action": "add(5)"}',
        '{"action": "add(1, 5)"}',
    ],
)
def test_a_call_is_read_in_every_form(call):
    env, _, _ = begun(max_turns=1)
    seen, reward, terminated, truncated, info = env.step(call)
    assert (seen.text, reward, terminated, truncated) == ("The sum is 5.", 1.0, False, True)
    assert info["success"]
    assert info["valid_action"]


def test_the_reward_comes_once_at_the_end_and_a_reply_without_a_call_ends_the_episode():
    env, _, _ = begun()
    assert env.step('{"action": "add(5)"}')[1:4] == (0.0, False, False)
    _, reward, terminated, _, info = env.step("done")
    assert (reward, terminated, info["valid_action"], info["success"]) == (1.0, True, False, True)
    with pytest.raises(EnvError, match="the episode is over"):
        env.step("more")


def test_what_a_tool_raises_is_told():
    env, _, _ = begun()
    for call, told in (
        ('{"action": "add(-1)"}', "ValueError: only upwards"),
        ('{"name": "add", "arguments": {"amount": 1}}', "TypeError: Counter.add() got an unexpected keyword argument"),
    ):
        seen, reward, terminated, _, info = env.step(call)
        assert told in seen.text
        assert (reward, terminated, info["valid_action"]) == (0.0, False, False)


def test_reward_functions_get_what_trl_gives_them():
    asked = []

    def near(environments, prompts, completions, target, **kwargs):
        asked.append((prompts, completions, target))
        return [1.0 - abs(env.total - env.target) / 10 for env in environments]

    env, _, _ = begun(reward_funcs=(near, lambda environments, **_: [0.5]), max_turns=1)
    assert env.step('{"action": "add(4)"}')[1] == pytest.approx(1.4)
    assert asked == [([ROWS[1]["prompt"]], ['{"action": "add(4)"}'], [5])]


def test_images_in_blocks_become_pictures():
    class Looking(Counter):
        def reset(self, **columns):
            self.done = False
            image = PIL.Image.new("RGB", (6, 4), (9, 8, 7))
            return [{"type": "image", "image": image}, {"type": "image", "image": image}, {"type": "text", "text": "x"}]

        def stop(self):
            """Stop."""
            self.done = True

    env = ToolChat(Looking)
    seen, _ = env.reset(seed=0, options={})
    assert {name: image.shape for name, image in seen.images.items()} == {"view": (4, 6, 3), "view_1": (4, 6, 3)}
    assert seen.images["view"][0, 0].tolist() == [9, 8, 7]
    assert env.step('{"action": "stop()"}')[2]


def test_a_group_has_one_row_and_episodes_are_collected():
    specs = make_specs(0, "train", groups=3, size=2)
    actor = RandomActor(lambda rng: f'{{"action": "add({rng.integers(1, 6)})"}}')
    episodes = collect(specs, [ToolChat(Counter, rows=ROWS, max_turns=2) for _ in range(2)], actor)
    first = [episode.turns[0].observation.text for episode in episodes]
    assert first[::2] == first[1::2]
    assert len(set(first)) == 2
    assert all(len(episode.turns) == 2 and episode.error is None for episode in episodes)


def test_what_is_no_tool_environment_is_one_line():
    class Bare:
        def reset(self): ...

    class Undocumented(Bare):
        def act(self): ...

    class Unpaid(Bare):
        def act(self):
            """Act."""
            return 3

    for cls, line in ((Bare, "has no public method beside reset"), (Undocumented, "act has no docstring")):
        with pytest.raises(EnvError, match=line):
            ToolChat(cls).reset(seed=0, options={})
    env = ToolChat(Unpaid, max_turns=1)
    env.reset(seed=0, options={})
    with pytest.raises(EnvError, match="has no reward, and no get_reward"):
        env.step('{"action": "act()"}')
    with pytest.raises(ConfigError, match="at least one row"):
        ToolChat(Unpaid, rows=())
    assert describe(tools_of(Unpaid())) == "act(): Act."
