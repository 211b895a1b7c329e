import numpy as np

from lookact.envs.tabletop.control import REACH_LOW
from lookact.envs.tabletop.env import Tabletop
from lookact.envs.tabletop.pretraining_images import UNNAMED, labelled_image, project
from lookact.envs.tabletop.scene import COLOURS


def test_labels_are_the_true_positions():
    env = Tabletop(cameras=("head",), image_size=32)
    for seed in range(6):
        image = labelled_image(env, seed)
        now = env.situation()
        assert np.allclose(image.positions, np.concatenate([now.object - now.tool, now.target - now.tool]), atol=1e-6)
        # the state's last three numbers are where the tool is
        assert np.allclose(image.state[-3:], now.tool, atol=1e-6)
        assert image.images["head"].shape == (32, 32, 3)
        assert now.tool[2] > REACH_LOW[2] - 0.01


def test_other_tasks_have_labels_of_their_own_things():
    env = Tabletop(cameras=("head",), image_size=32, task="open_drawer", distractors=1)
    apart = []
    for seed in range(12):
        image = labelled_image(env, seed)
        handle = env.data.geom("target0_handle").xpos
        assert np.allclose(image.positions[:3], handle - env.situation().tool, atol=1e-6)
        assert image.named.tolist() == [UNNAMED, list(COLOURS).index(env.look.targets[0])]
        apart.append(np.linalg.norm(image.positions[3:5] - image.positions[:2]))
    # the drawer is open by any amount
    assert min(apart) < 0.03
    assert max(apart) > 0.07
    env = Tabletop(cameras=("head",), image_size=32, task="stack", control="ee_delta_yaw", objects="long")
    for seed in range(4):
        image = labelled_image(env, seed)
        assert np.allclose(image.positions[3:5], (env.data.body("target0").xpos - env.situation().tool)[:2], atol=1e-6)


def test_the_same_seed_is_the_same_image_and_others_differ():
    env = Tabletop(cameras=("wrist",), image_size=32)
    first, other, again = (labelled_image(env, seed) for seed in (5, 6, 5))
    assert np.array_equal(first.images["wrist"], again.images["wrist"])
    assert np.array_equal(first.positions, again.positions)
    assert not np.array_equal(first.positions, other.positions)


def test_things_are_seen_far_near_and_between_the_fingers():
    env = Tabletop(cameras=("wrist",), image_size=16)
    apart = np.array([np.linalg.norm(labelled_image(env, seed).positions[:3]) for seed in range(40)])
    # half of them are far, up to chance
    assert 13 <= (apart >= 0.05).sum() <= 30
    assert 4 <= (apart < 0.015).sum() <= 24
    assert (apart > 0.1).sum() >= 4
    assert ((apart > 0.015) & (apart < 0.1)).sum() >= 4


def test_a_rearranged_scene_is_where_it_was_told_to_be():
    env = Tabletop(cameras=())
    env.reset(seed=0)
    place, thing = np.array([0.5, 0.1, 0.1]), np.array([0.5, -0.1, 0.2])
    shown = env.rearrange(place, 0.5, thing)
    now = env.situation()
    assert np.linalg.norm(now.tool - place) < 0.005
    assert np.allclose(now.object, thing)
    assert abs(float(shown["state"][7]) - 0.5) < 1e-6
    # and goes on from there: nothing holds it, so it falls
    env.step(np.zeros(4, np.float32))
    assert env.situation().object[2] < 0.2


def test_a_thing_is_found_where_its_colour_is():
    env = Tabletop(cameras=("head", "wrist"), image_size=64)
    for seed in range(12):
        image = labelled_image(env, seed)
        for camera, spots in image.keypoints.items():
            assert spots.shape == (2, 2)
            if np.isnan(spots[1]).any() or np.abs(spots[1]).max() > 0.9:
                continue
            across, down = ((spots[1] + 1) * 32).astype(int)
            patch = image.images[camera][down - 2 : down + 3, across - 2 : across + 3].astype(float)
            # a stand is of one strong colour, table, arm and floor are dull
            assert (patch.max(axis=-1) - patch.min(axis=-1)).max() > 90


def test_the_middle_of_a_picture_is_what_a_camera_looks_at_and_what_is_behind_it_is_not_in_it():
    env = Tabletop(cameras=("head",), image_size=16)
    env.reset(seed=0)
    eye = env.data.cam_xpos[env.model.camera("head").id]
    forward = -env.data.cam_xmat[env.model.camera("head").id].reshape(3, 3)[:, 2]
    places = np.stack([eye + 0.5 * forward, eye - 0.5 * forward])
    middle, behind = project(env, "head", places)
    assert np.allclose(middle, 0, atol=1e-6)
    assert np.isnan(behind).all()


def test_an_image_says_which_colours_its_instruction_names():
    env = Tabletop(image_size=16, distractors=1)
    for seed in range(5):
        image = labelled_image(env, seed)
        words = image.instruction.replace(",", " ").replace("?", " ").split()
        told = {word: words[place + 1] for place, word in enumerate(words) if word in COLOURS}
        thing, stand = (list(COLOURS)[number] for number in image.named)
        assert told[stand] == "stand"
        assert told[thing] != "stand"
    reach = Tabletop(task="reach", image_size=16)
    assert labelled_image(reach, 0).named[1] == UNNAMED
