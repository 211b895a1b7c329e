import numpy as np
import pytest

from benchmarks import worlds
from lookact.envs.rooms.generate import generate_room
from lookact.envs.rooms.render import Camera, Renderer


def test_the_bare_cast_casts_the_rays_of_the_frames():
    room, camera = generate_room(0), Camera.square(32)
    poses = room.trajectory[:3]
    tree, mesh = worlds.bare_tree(room)
    hits = tree.run(*worlds.frame_rays(poses, camera), output=True)
    frames = Renderer(room).render(poses, camera)
    assert mesh is not None
    assert (hits["primID"] >= 0).mean() > 0.9
    distances = np.where(hits["primID"] >= 0, hits["tfar"], 0.0)
    np.testing.assert_array_equal(distances.reshape(frames.depth.shape), frames.depth)


def test_calls_hold_every_view_once():
    views = np.arange(5 * 16).reshape(5, 4, 4).astype(float)
    for together, count in ((True, 1), (False, 5)):
        calls = worlds.calls(views, together)
        assert len(calls) == count
        np.testing.assert_array_equal(np.concatenate(calls), views)


@pytest.mark.slow
def test_the_bench_runs_and_tells_every_ratio(monkeypatch):
    monkeypatch.setattr(worlds, "SIZES", (64,))
    result = worlds.main(repetitions=1)
    assert [row["name"].split(",")[0] for row in result["rows"]] == ["RGB-D 64x64"] * 2 + ["rooms generated in memory"]
    assert all(row["ratio"] > 0 and len(row["met"]) == len(row["aims"]) for row in result["rows"])
