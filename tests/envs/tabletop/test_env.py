import gymnasium
import numpy as np
import pytest
from gymnasium.utils.env_checker import check_env

import lookact.envs  # noqa: F401  registers the environment
from lookact.envs.tabletop.env import FACTS_SIZE, Tabletop, observe
from lookact.envs.tabletop.experts import expert_action
from lookact.envs.tabletop.sizes import STATE_SIZE
from lookact.envs.tabletop.tasks import TASKS
from lookact.errors import ConfigError, EnvError


def roll(env: Tabletop, seed: int, actions: np.ndarray) -> list:
    """Every observation, reward and flag of an episode."""
    trace = [env.reset(seed=seed)[0]]
    for action in actions:
        shown, *rest = env.step(action)
        trace += [shown, *rest[:3]]
    return trace


def assert_same(first: list, second: list) -> None:
    for one, other in zip(first, second, strict=True):
        if isinstance(one, dict):
            assert all(np.array_equal(one[name], other[name]) for name in one)
        else:
            assert one == other


def random_actions(count: int, size: int = 4) -> np.ndarray:
    return np.random.default_rng(1).uniform(-1, 1, (count, size)).astype(np.float32)


@pytest.mark.parametrize(
    "settings",
    [{"render_mode": "rgb_array"}, {"cameras": (), "task": "push", "control": "delta_qpos"}, {"task": "reach"}],
)
def test_gymnasium_finds_nothing_wrong(settings, recwarn):
    env = gymnasium.make("lookact/Tabletop-v0", **settings).unwrapped
    check_env(env, skip_render_check="render_mode" not in settings)
    env.close()
    assert [str(warning.message) for warning in recwarn] == []


def test_same_seed_same_episode_bit_for_bit():
    actions = random_actions(12)
    first, second = Tabletop(image_size=48), Tabletop(image_size=48)
    second.reset(seed=99)
    assert_same(roll(first, 5, actions), roll(second, 5, actions))
    assert_same(roll(first, 5, actions), roll(second, 5, actions))
    first.close()
    second.close()


def test_another_seed_is_another_episode():
    env = Tabletop(cameras=())
    assert not np.array_equal(env.reset(seed=1)[0]["state"], env.reset(seed=2)[0]["state"])


def test_scene_seed_keeps_the_look_and_start_seed_the_places():
    env = Tabletop(cameras=())
    env.reset(options={"scene_seed": 1, "start_seed": 2})
    look, start, words = env.look.objects, env.start.objects.copy(), env.instruction
    env.reset(options={"scene_seed": 1, "start_seed": 3})
    assert (env.look.objects, env.instruction) == (look, words)
    assert not np.array_equal(env.start.objects, start)
    env.reset(options={"scene_seed": 4, "start_seed": 2})
    assert np.array_equal(env.start.objects, start)


def test_dense_rewards_add_up_to_the_progress_made():
    for task in TASKS:
        env = Tabletop(cameras=(), task=task)
        _, info = env.reset(seed=3)
        begun, total = info["progress"], 0.0
        for action in random_actions(20):
            _, reward, terminated, _, info = env.step(action)
            total += reward
            if terminated:
                break
        assert total == pytest.approx(info["progress"] - begun, abs=1e-12)


def test_sparse_reward_is_one_where_the_task_is_done():
    env = Tabletop(cameras=(), task="reach", reward="sparse")
    env.reset(seed=0)
    rewards, terminated = [], False
    while not terminated:
        _, reward, terminated, truncated, info = env.step(expert_action(env))
        rewards.append(reward)
    assert rewards == [0.0] * (len(rewards) - 1) + [1.0]
    assert info["success"]
    assert not truncated


@pytest.mark.parametrize("reward", ["dense", "sparse"])
def test_the_success_bonus_is_added_at_the_step_that_succeeds(reward):
    plain, paid = (Tabletop(cameras=(), task="reach", reward=reward, success_bonus=bonus) for bonus in (0.0, 2.5))
    plain.reset(seed=0)
    paid.reset(seed=0)
    terminated = False
    while not terminated:
        action = expert_action(plain)
        (_, own, terminated, *_), (_, more, *_) = plain.step(action), paid.step(action)
        assert more - own == pytest.approx(2.5 if terminated else 0.0, abs=1e-12)


def test_the_success_bonus_comes_once_where_success_ends_nothing_and_in_the_next_episode_again():
    env = Tabletop(
        cameras=(), task="reach", reward="sparse", success_bonus=4.0, max_steps=20, terminate_on_success=False
    )
    for seed in (0, 1):
        env.reset(seed=seed)
        rewards = []
        for step in range(20):
            # state goes along to an environment made alike
            if step == 19:
                kept = env.state_dict()
                env.load_state_dict(kept)
            rewards.append(env.step(expert_action(env))[1])
        assert rewards.count(5.0) == 1
        assert rewards.index(5.0) < rewards.index(1.0)
        assert set(rewards) == {0.0, 5.0, 1.0}


def test_running_out_of_steps_truncates_and_does_not_terminate():
    env = Tabletop(cameras=(), max_steps=3)
    env.reset(seed=0)
    flags = [env.step(np.zeros(4, np.float32))[2:4] for _ in range(3)]
    assert flags == [(False, False), (False, False), (False, True)]
    with pytest.raises(EnvError, match="call reset"):
        env.step(np.zeros(4, np.float32))


def test_success_at_the_last_step_terminates_and_does_not_truncate():
    env = Tabletop(cameras=(), task="reach")
    env.reset(seed=0)
    needed = 1
    while not env.step(expert_action(env))[2]:
        needed += 1
    env = Tabletop(cameras=(), task="reach", max_steps=needed)
    env.reset(seed=0)
    for _ in range(needed):
        _, _, terminated, truncated, _ = env.step(expert_action(env))
    assert (terminated, truncated) == (True, False)


def test_with_a_fixed_horizon_success_ends_nothing():
    env = Tabletop(cameras=(), task="reach", max_steps=20, terminate_on_success=False)
    env.reset(seed=0)
    steps = [env.step(expert_action(env)) for _ in range(20)]
    assert not any(step[2] for step in steps)
    assert [step[3] for step in steps] == [False] * 19 + [True]
    assert steps[-1][4]["success"]


def test_an_action_that_is_no_number_moves_nothing_and_is_marked():
    env = Tabletop(cameras=())
    shown, _ = env.reset(seed=0)
    after, _, _, _, info = env.step(np.array([np.nan, 0, 0, 0], np.float32))
    assert not info["valid_action"]
    assert np.allclose(after["state"][8:11], shown["state"][8:11], atol=1e-4)


def test_a_saved_episode_goes_on_bit_for_bit():
    env, other = (Tabletop(image_size=48) for _ in range(2))
    env.reset(seed=3)
    for _ in range(9):
        env.step(expert_action(env))
    state = env.state_dict()
    shown = env.shown()
    actions = random_actions(6)
    other.reset(seed=8)
    loaded = other.load_state_dict(state)
    assert all(np.array_equal(shown[name], loaded[name]) for name in shown)
    for action in actions:
        first, second = env.step(action), other.step(action)
        assert all(np.array_equal(first[0][name], second[0][name]) for name in first[0])
        assert first[1:] == second[1:]
    env.close()
    other.close()


def test_state_alone_tells_where_things_are():
    env = Tabletop(cameras=())
    shown, info = env.reset(seed=0)
    now = env.situation()
    assert list(shown) == ["state"]
    assert shown["state"].shape == (FACTS_SIZE,)
    assert shown["state"][STATE_SIZE : STATE_SIZE + 3] == pytest.approx(now.object)
    assert env.look.objects[0][1] in info["instruction"]


def test_with_cameras_the_state_is_the_arms_own():
    env = Tabletop(image_size=32)
    shown, info = env.reset(seed=0)
    seen = observe(shown, info)
    env.close()
    assert list(seen.images) == ["head", "wrist"]
    assert seen.state.shape == (STATE_SIZE,)
    assert seen.state[7] == pytest.approx(1.0)
    assert seen.text == shown["instruction"]


def test_distractors_lie_beside_the_named_object():
    env = Tabletop(cameras=(), distractors=2)
    env.reset(seed=0)
    heights = [env.data.body(f"object{index}").xpos[2] for index in range(3)]
    assert min(heights) > 0.015
    assert env.action_space.shape == (4,)


@pytest.mark.parametrize("wrong", [{"task": "juggle"}, {"shift": "time"}, {"reward": "shaped"}, {"cameras": ("tail",)}])
def test_unknown_settings_are_refused_with_what_is_known(wrong):
    with pytest.raises(ConfigError, match="choose"):
        Tabletop(**wrong)


def test_touching_and_moving_things_is_told():
    env = Tabletop(cameras=(), distractors=1)
    _, info = env.reset(seed=0)
    assert (info["contact"], info["displacement"]) == (False, 0.0)
    told = [info]
    while not (told[-1]["success"] or len(told) > 40):
        told.append(env.step(expert_action(env))[4])
    # before it is touched nothing moves but what settles; carried, it is as far as the stand
    first = next(step for step, one in enumerate(told) if one["contact"])
    assert 2 < first < len(told)
    assert told[first - 1]["displacement"] < 0.005
    way = np.linalg.norm(env.situation().object - env._rest[0])
    assert told[-1]["displacement"] == pytest.approx(way, abs=0.01)
    assert way > 0.05


def test_a_critic_may_be_told_the_true_state():
    env = Tabletop(cameras=("wrist",), image_size=16, true_state=True)
    shown, _ = env.reset(seed=0)
    assert env.observation_space["true_state"].contains(shown["true_state"])
    now = env.situation()
    assert np.allclose(shown["true_state"][:3], 10 * (now.object - now.tool), atol=1e-6)
    assert np.allclose(shown["true_state"][3:6], 10 * (now.target - now.object), atol=1e-6)
    # the policy's own part is as without it
    plain, _ = Tabletop(cameras=("wrist",), image_size=16).reset(seed=0)
    assert set(shown) - set(plain) == {"true_state"}
    assert np.array_equal(shown["state"], plain["state"])


def test_latency_executes_an_action_one_step_later():
    late, prompt = Tabletop(cameras=(), shift="latency"), Tabletop(cameras=())
    actions = random_actions(6)
    starts = [env.reset(seed=3)[0]["state"] for env in (late, prompt)]
    assert np.array_equal(*starts)
    seen = [late.step(action)[0]["state"] for action in actions]
    expected = [prompt.step(action)[0]["state"] for action in actions]
    # before its first action the arm only settles where it is
    assert np.abs(seen[0][8:11] - starts[0][8:11]).max() < 0.002
    assert np.abs(np.array(seen[1:]) - np.array(expected[:-1]))[:, 8:11].max() < 0.003


def test_dynamics_differ_where_they_are_shifted_alone():
    env, plain = Tabletop(cameras=(), shift="dynamics", distractors=1), Tabletop(cameras=(), distractors=1)
    env.reset(seed=1)
    plain.reset(seed=1)
    ratio = env.model.geom_friction[:, 0] / plain.model.geom_friction[:, 0]
    assert np.allclose(ratio, env.dynamics.friction)
    bodies = [plain.model.body(f"object{number}").id for number in (0, 1)]
    assert np.allclose(env.model.body_mass[bodies] / plain.model.body_mass[bodies], env.dynamics.mass)
    assert np.allclose(np.delete(env.model.body_mass, bodies), np.delete(plain.model.body_mass, bodies))


def test_an_object_mask_is_where_the_objects_are_drawn():
    env = Tabletop(task="reach", image_size=64, distractors=0)
    env.reset(seed=0)
    now = env.situation()
    shown = env.rearrange(now.tool, 1.0, now.object)
    mask = env.object_mask("head")
    assert 0 < mask.mean() < 0.1
    # nothing was moved for it
    assert np.array_equal(env._draw(("head",))["head"], shown["head"])
    moved = env.rearrange(now.tool, 1.0, now.object + np.array([0.0, 0.15, 0.0]))["head"]
    other = env.object_mask("head")
    assert not (mask & other).any()
    # between the pictures, only where the object was and where it is anything changes
    assert ((shown["head"] != moved).any(axis=2) <= (mask | other)).all()
    env.close()
