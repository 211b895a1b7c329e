"""Rollouts in scripted envs: what ends where is decided letter by letter."""

from types import SimpleNamespace

import gymnasium
import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from lookact.batch import ActorOutput, ControlInputs
from lookact.envs.vector.vector_env import InlineVectorEnv
from lookact.models.actor_critic import sample_gaussian
from lookact.rollout.vector_rollout import collect_rollout
from state_policy import StatePolicy

GAMMA, LAM = 0.9, 0.8


class Scripted(gymnasium.Env):
    """Step by step: `-` goes on, `t` terminates, `e` is cut, `x` is a step that did not happen."""

    observation_space = gymnasium.spaces.Dict(
        {
            "state": gymnasium.spaces.Box(-100, 100, (3,), np.float32),
            "head": gymnasium.spaces.Box(0, 255, (4, 4, 3), np.uint8),
            "instruction": gymnasium.spaces.Text(20),
        }
    )
    action_space = gymnasium.spaces.Box(-3, 3, (1,), np.float32)

    def __init__(self, script):
        self.script, self.clock, self.done = script, 0, []

    def reset(self, *, seed=None, options=None):
        self.name, self.steps = seed, 0
        return self.shown(), {}

    def shown(self):
        head = np.full((4, 4, 3), self.clock, np.uint8)
        return {
            "state": np.array([self.name, self.steps, self.clock], np.float32),
            "head": head,
            "instruction": f"e{self.name}",
        }

    def step(self, action):
        kind = self.script[self.clock]
        before = self.shown()
        self.done.append(float(action[0]))
        self.clock += 1
        self.steps += 1
        info = {"success": kind == "t"}
        if kind == "x":
            return before, 0.0, False, True, info | {"worker_restarted": True}
        return self.shown(), self.pay(), kind == "t", kind == "e", info

    def pay(self):
        return 0.5 * self.clock - 1.0


def envs_of(scripts):
    envs = iter([Scripted(script) for script in scripts])
    return InlineVectorEnv(lambda: next(envs), len(scripts), plan_episode=lambda row, episode: (10 * row + episode, {}))


def states_policy(seed=0):
    return StatePolicy(3, 1, hidden=4, seed=seed)


def value(policy, name, steps, clock):
    state = torch.tensor([[name, steps, clock]], dtype=torch.float32)
    inputs = ControlInputs(torch.zeros(1, 1), state, {}, torch.zeros(1, 0).long(), torch.zeros(1, 0, 1))
    with torch.no_grad():
        return float(policy(inputs).values)


def expected_credit(policy, script, row):
    """Advantages of one row, None where a step did not happen, as explicit sums of (γλ)^l δ inside each episode."""
    out, episode, begun = [None] * len(script), 0, 0
    while begun < len(script):
        name = 10 * row + episode
        end = next((t for t in range(begun, len(script)) if script[t] != "-"), len(script) - 1)
        counted = [t for t in range(begun, end + 1) if script[t] != "x"]
        values = {t: value(policy, name, t - begun, t) for t in range(begun, end + 2)}
        deltas = []
        for t in counted:
            # after a terminal step comes nothing; a step that did not happen is bootstrapped by where it began
            after = 0.0 if script[t] == "t" else values[t + 1]
            deltas.append(0.5 * (t + 1) - 1.0 + GAMMA * after - values[t])
        for place, t in enumerate(counted):
            out[t] = sum((GAMMA * LAM) ** l * delta for l, delta in enumerate(deltas[place:]))
        begun, episode = end + 1, episode + 1
    return out


@settings(max_examples=60)
@given(
    scripts=st.integers(1, 6).flatmap(
        lambda n: st.lists(st.text("-tex", min_size=n, max_size=n), min_size=1, max_size=3)
    )
)
def test_credit_is_the_brute_force_sum_with_every_kind_of_end_in_every_position(scripts):
    from lookact.algorithms.control_ppo import compute_advantages

    policy, steps = states_policy(), len(scripts[0])
    rollout = collect_rollout(policy, envs_of(scripts), noise=torch.zeros(steps, len(scripts), 1))
    found = compute_advantages(rollout, rollout.rewards, gamma=GAMMA, lam=LAM)
    for row, script in enumerate(scripts):
        wanted = expected_credit(policy, script, row)
        assert rollout.mask[:, row].tolist() == [credit is not None for credit in wanted]
        assert found[:, row].tolist() == pytest.approx([credit or 0.0 for credit in wanted], abs=1e-5)


class Counter(torch.nn.Module):
    """Does one more than what it last did, and counts its steps in its memory; sees each frame once."""

    spec = SimpleNamespace(cameras=("head",), history=2, action_size=1, sample_size=1)
    device, frozen_vision = torch.device("cpu"), True

    def __init__(self):
        super().__init__()
        self.seen, self.texts = [], []

    def features(self, images, text_ids):
        self.seen += images["head"][:, 0, 0, 0].tolist()
        return {"head": images["head"][:, :1, 0, :1].float() / 2}

    def tokenize(self, texts):
        self.texts += texts
        return torch.tensor([[ord(text[0]), int(text[1:])] for text in texts])

    def start_carry(self, rows):
        return torch.zeros(1, rows, 1)

    def actor(self, inputs):
        critic_features = inputs.carry[0] + 100 * inputs.images["head"][:, 0]
        return ActorOutput(inputs.history[:, -1:] + 1.0, torch.zeros(1), critic_features, inputs.carry + 1)

    def sample(self, inputs, noise):
        return sample_gaussian(self, inputs, noise)

    def executed(self, actions):
        return actions

    def normalise_actions(self, actions):
        return actions

    def value(self, critic_features):
        return critic_features.squeeze(1)

    def forward(self, inputs):
        output = self.actor(inputs)
        return output.with_values(self.value(output.critic_features))


def test_history_memory_and_texts_begin_anew_with_each_episode():
    policy, envs = Counter(), envs_of(["--e-t-", "-t----"])
    rollout = collect_rollout(policy, envs, noise=torch.zeros(6, 2, 1))
    inputs = rollout.inputs
    assert inputs.actions[:, 0, 0].tolist() == [1, 2, 3, 1, 2, 1]
    assert inputs.actions[:, 1, 0].tolist() == [1, 2, 1, 2, 3, 4]
    assert inputs.history[:, 0, :, 0].tolist() == [[0, 0], [0, 1], [1, 2], [0, 0], [0, 1], [0, 0]]
    assert inputs.carry[:, 1, 0].tolist() == [0, 1, 0, 1, 2, 3]
    assert inputs.text_ids[:, 0, 1].tolist() == [0, 0, 0, 1, 1, 2]
    # row 0 is cut at step 2: after three steps, on the frame of clock 3
    assert rollout.truncated_values[2, 0] == 3 + 100 * 3 / 2
    assert rollout.truncated_values.count_nonzero() == 1
    assert rollout.last_values.tolist() == [1 + 300, 4 + 300]


def test_frames_are_encoded_once_and_kept_as_features():
    policy = Counter()
    rollout = collect_rollout(policy, envs_of(["--e--"]), noise=torch.zeros(5, 1, 1))
    # five steps, what a cut episode ended on, and what is seen at the end; texts once each
    assert sorted(policy.seen) == [0, 1, 2, 3, 3, 4, 5]
    assert policy.texts == ["e0", "e1"]
    assert rollout.inputs.images["head"].shape == (5, 1, 1, 1)
    policy.frozen_vision = False
    policy.actor = lambda inputs: ActorOutput(inputs.history[:, -1:], torch.zeros(1), inputs.carry[0], inputs.carry)
    assert (
        collect_rollout(policy, envs_of(["---"]), noise=torch.zeros(3, 1, 1)).inputs.images["head"].dtype == torch.uint8
    )


def test_worlds_are_given_what_they_can_do_and_scores_are_of_what_was_drawn():
    envs = envs_of(["---"])
    rollout = collect_rollout(Counter(), envs, noise=torch.tensor([4.0, 0.0, -9.0]).view(3, 1, 1))
    # 1 + 4 is cut to 3, and remembered as 3
    assert rollout.inputs.actions.flatten().tolist() == [5.0, 4.0, 4.0 - 9.0]
    assert envs.envs[0].done == [3.0, 3.0, -3.0]
    half = 0.5 * np.log(2 * np.pi)
    assert rollout.logprobs.flatten().tolist() == pytest.approx([-8 - half, -half, -40.5 - half])


def test_episodes_are_told_with_what_they_came_to():
    rollout = collect_rollout(states_policy(), envs_of(["-t-e", "--x-"]), noise=torch.zeros(4, 2, 1))
    told = [(each.reward, each.steps, each.success, each.failed) for each in rollout.episodes]
    assert told == [(-0.5, 2, True, False), (-0.5, 3, False, True), (1.5, 2, False, False)]


def test_a_row_rolls_out_alike_beside_others_and_alone():
    policy = states_policy()
    noise = torch.randn(5, 2, 1, generator=torch.Generator().manual_seed(0))
    both = collect_rollout(policy, envs_of(["--e--", "-t---"]), noise=noise)
    alone = collect_rollout(policy, envs_of(["--e--"]), noise=noise[:, :1])
    torch.testing.assert_close(both.inputs.actions[:, :1], alone.inputs.actions)
    torch.testing.assert_close(both.values[:, :1], alone.values)


class Halves:
    """Scripted envs in two parts that tell when they are asked for what."""

    def __init__(self, scripts, told):
        first = len(scripts) - len(scripts) // 2
        self.num_envs, self.restarts = len(scripts), 0
        self.parts = tuple(
            Half(scripts[start:end], start, told, name)
            for name, start, end in (("A", 0, first), ("B", first, len(scripts)))
        )
        self.action_space = Scripted.action_space


class Half(InlineVectorEnv):
    def __init__(self, scripts, first, told, name):
        envs = iter([Scripted(script) for script in scripts])
        super().__init__(
            lambda: next(envs), len(scripts), plan_episode=lambda row, episode: (10 * (first + row) + episode, {})
        )
        self.told, self.name = told, name

    def send(self, actions):
        self.told.append(f"send {self.name}")
        super().send(actions)

    def receive(self):
        self.told.append(f"receive {self.name}")
        return super().receive()


def test_parts_take_turns_and_come_out_as_one_rollout():
    scripts, noise, told = ["--e-t-", "-t----", "---x--"], torch.randn(6, 3, 1), []
    together = collect_rollout(Counter(), envs_of(scripts), noise=noise)
    apart = collect_rollout(Counter(), Halves(scripts, told), noise=noise)
    for name in ("logprobs", "values", "rewards", "terminated", "truncated", "truncated_values", "mask", "last_values"):
        assert torch.equal(getattr(apart, name), getattr(together, name)), name
    for name in ("actions", "state", "text_ids", "history", "carry"):
        assert torch.equal(getattr(apart.inputs, name), getattr(together.inputs, name)), name
    assert torch.equal(apart.inputs.images["head"], together.inputs.images["head"])
    assert sorted(map(str, apart.episodes)) == sorted(map(str, together.episodes))
    # B steps while A's next action is made up, and the other way round
    assert told[:6] == ["send A", "send B", "receive A", "send A", "receive B", "send B"]
    assert told[-2:] == ["receive A", "receive B"]
