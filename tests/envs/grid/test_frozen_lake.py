import pytest

pytest.importorskip("pygame", reason="needs lookact[grid]")

from lookact.envs.grid.frozen_lake import cell_classes, expert_actions, layout_of, make_frozen_lake, map_bytes


def test_gymnasiums_own_map_is_crossed_in_six_moves():
    env = make_frozen_lake(layout="4x4")
    seen, info = env.reset(seed=0, options={})
    assert seen.images["view"].shape == (128, 128, 3)
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


def test_a_random_start_lies_on_any_ice_of_the_map_and_its_seed_says_which():
    env, starts = make_frozen_lake(layout="4x4", random_start=True, cell_pixels=16), set()
    for seed in range(200):
        seen, _ = env.reset(seed=0, options={"start_seed": seed})
        starts.add(layout_of(env.env)[1])
    # SFFF FHFH FFFH HFFG: the corner and ten cells of ice
    assert starts == {(0, 0), (0, 1), (0, 2), (0, 3), (1, 0), (1, 2), (2, 0), (2, 1), (2, 2), (3, 1), (3, 2)}
    assert seen.images["view"].shape == (64, 64, 3)
    again, _ = env.reset(seed=5, options={"start_seed": 199})
    assert (again.images["view"] == seen.images["view"]).all()


def test_a_random_start_is_never_walled_in():
    env = make_frozen_lake(size=4, frozen=0.5, random_start=True)
    for seed in range(60):
        env.reset(seed=0, options={"start_seed": seed})
        assert expert_actions(env.env) is not None


def test_a_blind_player_sees_black_and_nothing_else_changes():
    blind, sighted = make_frozen_lake(blind=True), make_frozen_lake()
    (seen, _), (picture, _) = (env.reset(seed=1, options={}) for env in (blind, sighted))
    assert seen.images["view"].shape == picture.images["view"].shape
    assert not seen.images["view"].any()
    assert seen.text == picture.text


def test_the_bytes_of_a_map_are_those_that_the_environment_draws():
    env = make_frozen_lake(size=4, frozen=0.8)
    env.reset(seed=0, options={"start_seed": 3})
    assert env.env.unwrapped.desc.tobytes() == map_bytes(3, size=4, frozen=0.8)
