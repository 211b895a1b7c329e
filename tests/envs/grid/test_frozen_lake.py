import pytest

pytest.importorskip("pygame", reason="needs lookact[grid]")

from lookact.envs.grid.frozen_lake import CELL, cell_classes, expert_actions, make_frozen_lake


def test_gymnasiums_own_map_is_crossed_in_six_moves():
    env = make_frozen_lake(layout="4x4")
    seen, info = env.reset(seed=0, options={})
    assert seen.images["view"].shape == (4 * CELL, 4 * CELL, 3)
    plan = expert_actions(env.env)
    assert len(plan) == 6
    for word in plan:
        seen, reward, terminated, truncated, info = env.step(f'{{"action": "{word}"}}')
    assert (reward, terminated, info["success"]) == (1.0, True, True)
    # SFFF FHFH FFFH HFFG: four holes; the player stands on the gift
    labels = cell_classes(env.env)
    assert labels[..., 0].sum() == 4
    assert labels[3, 3].tolist() == [0, 1, 1]


def test_random_maps_differ_by_start_and_can_all_be_crossed():
    env, maps = make_frozen_lake(size=4, frozen=0.7), set()
    for seed in range(20):
        env.reset(seed=99, options={"start_seed": seed})
        maps.add(env.env.unwrapped.desc.tobytes())
        for word in expert_actions(env.env):
            *_, info = env.step(word)
        assert info["success"]
    assert len(maps) > 15


def test_a_hole_ends_the_walk_without_success():
    env = make_frozen_lake(layout="4x4")
    env.reset(seed=0, options={})
    env.step("right")
    _, reward, terminated, _, info = env.step("down")
    assert (reward, terminated, info["success"]) == (0.0, True, False)
