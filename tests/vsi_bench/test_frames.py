import numpy as np
import pytest
from PIL import Image

from lookact.data.lerobot.video import read_video
from lookact.envs.rooms.arkit_frames import write_trajectory
from lookact.envs.rooms.generate import generate_room
from lookact.envs.rooms.render import Camera, Renderer
from lookact.errors import DataError
from lookact.vsi_bench.frames import find_scene, quarter_turns, sample_frames, spread


def test_frames_are_spread_from_the_first_to_the_last_and_rounded_down():
    assert spread(9, 3) == [0, 4, 8]
    assert spread(20, 4) == [0, 6, 12, 19]
    assert spread(2, 5) == [0, 1]
    with pytest.raises(DataError, match="no frames"):
        spread(0, 4)


def test_a_video_gives_the_frames_at_those_places(vsi_layout):
    source = find_scene(vsi_layout, "scannet", "scene0144_00")
    light = np.array([frame.mean() for frame in sample_frames(source, 4)])
    assert np.abs(light - (20 + 8 * np.array([0, 6, 12, 19]))).max() < 3
    every = list(read_video(source))
    assert all(np.array_equal(a, b) for a, b in zip(every, sample_frames(source, 99), strict=True))


def test_scenes_that_are_not_there_or_lead_elsewhere(vsi_layout):
    assert find_scene(vsi_layout, "scannet", "gone") is None
    for dataset, scene in (("scannet", "../arkitscenes/41069025"), ("..", "x"), ("", "x")):
        with pytest.raises(DataError, match="no name of a scene"):
            find_scene(vsi_layout, dataset, scene)


def rolled(poses, quarters):
    """The camera turned about its viewing axis, clockwise, by quarters of a turn."""
    cosine, sine = [(1, 0), (0, 1), (-1, 0), (0, -1)][quarters]
    roll = np.eye(4)
    roll[:2, :2] = [[cosine, -sine], [sine, cosine]]
    return poses @ roll


@pytest.fixture(scope="module")
def room():
    return generate_room(3)


@pytest.mark.parametrize("layout", ["3dod", "raw"])
@pytest.mark.parametrize("quarters", [0, 1, 2, 3])
def test_a_recording_made_on_its_side_or_head_stands_upright(room, quarters, layout, tmp_path):
    poses, camera = room.trajectory[:4], Camera.square(48)
    stored = Renderer(room).render(rolled(poses, quarters), camera).rgb
    upright = Renderer(room).render(poses, camera).rgb
    folder = tmp_path / "41069025"
    place = folder / "41069025_frames" if layout == "3dod" else folder
    (place / "lowres_wide").mkdir(parents=True)
    times = 0.1 * np.arange(1.0, 5)
    # in the raw layout poses and pictures have clocks of their own
    write_trajectory(place / "lowres_wide.traj", times + (0.04 if layout == "raw" else 0), rolled(poses, quarters))
    for time, picture in zip(times, stored):
        Image.fromarray(picture).save(place / "lowres_wide" / f"41069025_{time:.3f}.png")
    found = np.stack(sample_frames(folder, 4))
    # rays are cast in another order: a pixel on an edge may differ
    assert (found != upright).any(axis=-1).mean() < 0.01
    if quarters:
        assert (stored != upright).any(axis=-1).mean() > 0.1


def test_most_poses_decide_and_those_that_look_down_hardly_count():
    upright = np.array([[1.0, 0, 0, 0], [0, 0, 1, 0], [0, -1, 0, 0], [0, 0, 0, 1]])
    assert quarter_turns(upright[None]) == 0
    # looks at the floor, its head a little to the side
    down = np.array([[0.0, 1, 0, 0], [1, 0, 0, 0], [0.1, 0, -1, 0], [0, 0, 0, 1]])
    assert quarter_turns(down[None]) == 1
    assert quarter_turns(np.stack([down, down, upright])) == 0
    with pytest.raises(DataError, match="no poses"):
        quarter_turns(np.zeros((0, 4, 4)))
