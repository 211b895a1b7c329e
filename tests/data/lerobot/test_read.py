import io
import json
import shutil

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from PIL import Image

from lookact.data.lerobot.read import Demonstration, Wanted, read_demonstrations, read_info, read_stats
from lookact.data.lerobot.video import write_video
from lookact.data.lerobot.write import write_demonstrations
from lookact.errors import DataError

LENGTHS = (4, 7, 3)


def demonstration(number: int, length: int) -> Demonstration:
    rng = np.random.default_rng(number)
    shades = 40 * number + 10 * np.arange(length)
    frames = np.broadcast_to(shades[:, None, None, None], (length, 32, 48, 3)).astype(np.uint8)
    return Demonstration(
        task=f"put thing {number % 2} away",
        images={"head": frames, "wrist": 255 - frames},
        states=rng.normal(size=(length, 11)).astype(np.float32),
        actions=rng.uniform(-1, 1, (length, 4)).astype(np.float32),
    )


DEMOS = [demonstration(number, length) for number, length in enumerate(LENGTHS)]


@pytest.fixture(scope="module")
def written(tmp_path_factory):
    folder = tmp_path_factory.mktemp("demos") / "set"
    assert write_demonstrations(folder, iter(DEMOS), fps=10, robot="panda") == 3
    return folder


@pytest.fixture
def copy(written, tmp_path):
    return shutil.copytree(written, tmp_path / "copy")


def test_numbers_come_back_exactly_and_frames_within_the_codecs_error(written):
    found = list(read_demonstrations(written, Wanted(("head", "wrist"), 11, 4, (32, 48))))
    assert [len(demo) for demo in found] == list(LENGTHS)
    for demo, original in zip(found, DEMOS):
        assert demo.task == original.task
        assert np.array_equal(demo.states, original.states)
        assert np.array_equal(demo.actions, original.actions)
        for camera, frames in original.images.items():
            assert np.abs(demo.images[camera].astype(int) - frames).max() <= 4


def test_the_folder_has_lerobots_files_and_columns(written):
    files = {str(path.relative_to(written)) for path in written.rglob("*") if path.is_file()}
    assert files == {
        "meta/info.json",
        "meta/stats.json",
        "meta/tasks.parquet",
        "meta/episodes/chunk-000/file-000.parquet",
        "data/chunk-000/file-000.parquet",
        "videos/observation.images.head/chunk-000/file-000.mp4",
        "videos/observation.images.wrist/chunk-000/file-000.mp4",
    }
    info = read_info(written)
    assert (info["codebase_version"], info["total_episodes"], info["total_frames"], info["fps"]) == ("v3.0", 3, 14, 10)
    assert info["splits"] == {"train": "0:3"}
    assert info["features"]["observation.images.head"]["shape"] == [32, 48, 3]
    steps = pq.ParquetFile(written / "data/chunk-000/file-000.parquet").read()
    assert set(steps.column_names) == set(info["features"]) - {"observation.images.head", "observation.images.wrist"}
    assert steps["index"].to_pylist() == list(range(14))
    assert steps["frame_index"].to_pylist() == [0, 1, 2, 3, 0, 1, 2, 3, 4, 5, 6, 0, 1, 2]
    assert steps["task_index"].to_pylist() == [0] * 4 + [1] * 7 + [0] * 3
    assert steps.schema.field("action").type == pa.list_(pa.float32(), 4)
    rows = pq.ParquetFile(written / "meta/episodes/chunk-000/file-000.parquet").read().to_pylist()
    assert [(row["dataset_from_index"], row["dataset_to_index"]) for row in rows] == [(0, 4), (4, 11), (11, 14)]
    assert rows[1]["videos/observation.images.wrist/from_timestamp"] == pytest.approx(0.4)
    assert rows[1]["tasks"] == ["put thing 1 away"]
    assert rows[2]["data/file_index"] == 0


def test_tasks_are_the_index_that_lerobot_looks_them_up_by(written):
    about = json.loads(pq.ParquetFile(written / "meta/tasks.parquet").schema_arrow.metadata[b"pandas"])
    assert about["index_columns"] == ["task"]


def test_statistics_are_those_of_all_steps(written):
    stats = read_stats(written)
    actions = np.concatenate([demo.actions for demo in DEMOS]).astype(np.float64)
    assert np.allclose(stats["action"]["mean"], actions.mean(0))
    assert np.allclose(stats["action"]["std"], actions.std(0))
    assert np.allclose(stats["action"]["min"], actions.min(0))
    assert stats["action"]["count"].tolist() == [14]
    for name, share in (("q01", 1), ("q10", 10), ("q50", 50), ("q90", 90), ("q99", 99)):
        assert np.allclose(stats["action"][name], np.percentile(actions, share, axis=0))
    head = np.concatenate([demo.images["head"].reshape(-1, 3) for demo in DEMOS]) / 255
    assert stats["observation.images.head"]["mean"].shape == (3, 1, 1)
    assert np.allclose(stats["observation.images.head"]["mean"].ravel(), head.mean(0))
    assert stats["observation.images.head"]["q50"].shape == (3, 1, 1)
    lower = np.percentile(head, 50, axis=0, method="inverted_cdf")
    assert np.allclose(stats["observation.images.head"]["q50"].ravel(), lower)


def test_a_foreign_set_with_several_files_and_other_names_is_read(tmp_path):
    """As another recorder might write it: a file an episode, plain lists, more columns, channels first, no index."""
    folder = tmp_path / "foreign"
    rows = []
    for number, demo in enumerate(DEMOS):
        columns = {
            "observation.state": pa.array(demo.states.astype(np.float64).tolist()),
            "action": pa.array(demo.actions.tolist(), pa.list_(pa.float32())),
            "episode_index": [number] * len(demo),
            "task_index": [number] * len(demo),
            "next.done": [False] * len(demo),
        }
        save(folder / f"data/chunk-001/file-{number:03d}.parquet", pa.table(columns))
        video = folder / f"videos/observation.image/chunk-000/file-{number:03d}.mp4"
        write_video(video, demo.images["head"], fps=5)
        place = {"chunk_index": 0, "file_index": number, "from_timestamp": 0.0}
        rows.append(
            {"episode_index": number, "length": len(demo), "data/chunk_index": 1, "data/file_index": number}
            | {f"videos/observation.image/{name}": value for name, value in place.items()}
            | {"stats/action/mean": [0.0]}
        )
    # episodes need not stand in order
    save(folder / "meta/episodes/chunk-000/file-000.parquet", pa.Table.from_pylist(rows[::-1]))
    texts = [demo.task + f" {number}" for number, demo in enumerate(DEMOS)]
    save(
        folder / "meta/tasks.parquet",
        pa.table({"task_index": [0, 1, 2], "__index_level_0__": pa.array(texts, pa.large_string())}),
    )
    info = {
        "codebase_version": "v3.0",
        "fps": 5,
        "data_path": "data/chunk-{chunk_index:03d}/file-{file_index:03d}.parquet",
        "video_path": "videos/{video_key}/chunk-{chunk_index:03d}/file-{file_index:03d}.mp4",
        "features": {
            "observation.state": {"dtype": "float32", "shape": [11]},
            "action": {"dtype": "float32", "shape": [4]},
            "observation.image": {"dtype": "video", "shape": [3, 32, 48]},
        },
    }
    (folder / "meta/info.json").write_text(json.dumps(info))
    found = list(read_demonstrations(folder, Wanted(("observation.image",), 11, 4, (32, 48))))
    assert [demo.task for demo in found] == texts
    for demo, original in zip(found, DEMOS):
        assert np.array_equal(demo.actions, original.actions)
        assert np.array_equal(demo.states, original.states)
        assert np.abs(demo.images["observation.image"].astype(int) - original.images["head"]).max() <= 4


def save(path, table) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    pq.write_table(table, path)


@pytest.mark.parametrize(
    ("wanted", "told"),
    [
        (Wanted(action_size=8), r"action has shape \[4\], \[8\] is wanted"),
        (Wanted(state_size=32), r"observation.state has shape \[11\], \[32\] is wanted"),
        (Wanted(cameras=("head", "chest")), "no video of chest, only of head, wrist"),
        (Wanted(image_size=(84, 84)), r"frames of head are \[32, 48\], \[84, 84\] are wanted"),
    ],
)
def test_a_set_with_other_features_is_refused_before_the_first_episode(written, wanted, told):
    with pytest.raises(DataError, match=told):
        next(read_demonstrations(written, wanted))


def test_what_can_be_torn_is_told_by_name(copy):
    broken = {
        "data/chunk-000/file-000.parquet": "file-000.parquet is torn or no parquet file",
        "meta/tasks.parquet": "tasks.parquet is torn or no parquet file",
        "videos/observation.images.wrist/chunk-000/file-000.mp4": "can't be decoded|ends after",
        "meta/info.json": "info.json is not JSON",
    }
    for name, told in broken.items():
        whole = (copy / name).read_bytes()
        (copy / name).write_bytes(whole[: len(whole) // 2])
        with pytest.raises(DataError, match=told) as error:
            list(read_demonstrations(copy))
        assert "\n" not in str(error.value)
        (copy / name).unlink()
        with pytest.raises(DataError, match="missing"):
            list(read_demonstrations(copy))
        (copy / name).write_bytes(whole)
    assert len(list(read_demonstrations(copy))) == 3


def test_missing_steps_are_noticed(copy):
    path = copy / "data/chunk-000/file-000.parquet"
    pq.write_table(pq.ParquetFile(path).read().slice(0, 9), path)
    with pytest.raises(DataError, match="holds 5 of 7 steps of episode 1"):
        list(read_demonstrations(copy))


def test_an_older_version_is_sent_to_the_converter(copy):
    info = json.loads((copy / "meta/info.json").read_text())
    (copy / "meta/info.json").write_text(json.dumps(info | {"codebase_version": "v1.6"}))
    with pytest.raises(DataError, match=r"is v1.6, not v3 or v2: convert"):
        next(read_demonstrations(copy))


def png(frame) -> dict:
    file = io.BytesIO()
    Image.fromarray(frame).save(file, "PNG")
    return {"bytes": file.getvalue(), "path": None}


@pytest.fixture
def older(tmp_path):
    """The v2.1 layout: a parquet and an mp4 file an episode, JSON Lines below meta, one camera as images."""
    folder, per_chunk = tmp_path / "older", 2
    lines = {"episodes": [], "tasks": [], "episodes_stats": []}
    for number, demo in enumerate(DEMOS):
        chunk, steps = f"chunk-{number // per_chunk:03d}", len(demo)
        columns = {
            "observation.state": pa.array(demo.states.tolist(), pa.list_(pa.float32())),
            "action": pa.array(demo.actions.tolist(), pa.list_(pa.float32())),
            "observation.images.hand": [png(frame) for frame in demo.images["wrist"]],
            "episode_index": [number] * steps,
            "task_index": [number] * steps,
        }
        save(folder / f"data/{chunk}/episode_{number:06d}.parquet", pa.table(columns))
        video = folder / f"videos/{chunk}/observation.images.top/episode_{number:06d}.mp4"
        write_video(video, demo.images["head"], fps=5)
        lines["episodes"].append({"episode_index": number, "tasks": [demo.task], "length": steps})
        lines["tasks"].append({"task_index": number, "task": f"{demo.task} {number}"})
        numbers = demo.actions.astype(np.float64)
        stats = {name: getattr(numbers, name)(0).tolist() for name in ("min", "max", "mean", "std")}
        lines["episodes_stats"].append({"episode_index": number, "stats": {"action": stats | {"count": [steps]}}})
    for name, rows in lines.items():
        (folder / "meta").mkdir(exist_ok=True)
        (folder / f"meta/{name}.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    info = {
        "codebase_version": "v2.1",
        "fps": 5,
        "chunks_size": per_chunk,
        "data_path": "data/chunk-{episode_chunk:03d}/episode_{episode_index:06d}.parquet",
        "video_path": "videos/chunk-{episode_chunk:03d}/{video_key}/episode_{episode_index:06d}.mp4",
        "features": {
            "observation.state": {"dtype": "float32", "shape": [11]},
            "action": {"dtype": "float32", "shape": [4]},
            "observation.images.top": {"dtype": "video", "shape": [32, 48, 3]},
            "observation.images.hand": {"dtype": "image", "shape": [32, 48, 3]},
        },
    }
    (folder / "meta/info.json").write_text(json.dumps(info))
    return folder


def test_the_older_layout_is_read_with_images_and_renamed_cameras(older):
    wanted = Wanted(("head", "wrist"), 11, 4, (32, 48), {"top": "head", "hand": "wrist"})
    found = list(read_demonstrations(older, wanted))
    assert [demo.task for demo in found] == [f"{demo.task} {number}" for number, demo in enumerate(DEMOS)]
    for demo, original in zip(found, DEMOS):
        assert np.array_equal(demo.actions, original.actions)
        assert np.array_equal(demo.states, original.states)
        assert np.abs(demo.images["head"].astype(int) - original.images["head"]).max() <= 4
        # images have no codec's error
        assert np.array_equal(demo.images["wrist"], original.images["wrist"])
    assert len(next(iter(read_demonstrations(older, wanted, only=2)))) == LENGTHS[2]
    with pytest.raises(DataError, match="no video of head, wrist, only of hand, top: rename its cameras"):
        next(read_demonstrations(older, Wanted(("head", "wrist"))))
    with pytest.raises(DataError, match="no camera front to rename, only hand, top"):
        next(read_demonstrations(older, Wanted(renames={"front": "head"})))


def test_statistics_of_episodes_are_joined(older):
    stats = read_stats(older)["action"]
    actions = np.concatenate([demo.actions for demo in DEMOS]).astype(np.float64)
    for name in ("min", "max", "mean", "std"):
        assert np.allclose(stats[name], getattr(actions, name)(0))
    assert stats["count"].tolist() == [14]


def test_what_is_torn_in_the_older_layout_is_one_line(older):
    table = pq.ParquetFile(older / "data/chunk-000/episode_000000.parquet").read()
    images = table["observation.images.hand"].to_pylist()
    for cell, told in (
        ({"bytes": b"GIF89a"}, "no PNG or JPEG"),
        ({"path": "/etc/passwd", "bytes": None}, "holds no file"),
    ):
        broken = table.set_column(2, "observation.images.hand", pa.array([cell, *images[1:]]))
        save(older / "data/chunk-000/episode_000000.parquet", broken)
        with pytest.raises(DataError, match=told):
            list(read_demonstrations(older))
    save(older / "data/chunk-000/episode_000000.parquet", table)
    for name, told in {
        "tasks": "cannot be read",
        "episodes": "no parquet file",
        "episodes_stats": "cannot be read",
    }.items():
        kept = (older / f"meta/{name}.jsonl").read_text()
        (older / f"meta/{name}.jsonl").unlink()
        with pytest.raises(DataError, match=told):
            read_stats(older) if name == "episodes_stats" else list(read_demonstrations(older))
        (older / f"meta/{name}.jsonl").write_text(kept + "{torn")
        with pytest.raises(DataError, match="is not a JSON object"):
            read_stats(older) if name == "episodes_stats" else list(read_demonstrations(older))
        (older / f"meta/{name}.jsonl").write_text(kept)
    assert len(list(read_demonstrations(older))) == 3


def test_an_interrupted_writing_leaves_no_folder_that_looks_whole(tmp_path):
    def interrupted():
        yield DEMOS[0]
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        write_demonstrations(tmp_path / "set", interrupted(), fps=10, robot="panda")
    assert not (tmp_path / "set").exists()
    assert write_demonstrations(tmp_path / "set", DEMOS[:1], fps=10, robot="panda") == 1
    with pytest.raises(DataError, match="already there"):
        write_demonstrations(tmp_path / "set", DEMOS, fps=10, robot="panda")


def test_demonstrations_of_two_kinds_or_none_are_refused(tmp_path):
    odd = Demonstration("other", DEMOS[0].images, DEMOS[0].states, DEMOS[0].actions[:, :3])
    with pytest.raises(DataError, match="keep one robot"):
        write_demonstrations(tmp_path / "set", [DEMOS[0], odd], fps=10, robot="panda")
    uneven = Demonstration("uneven", DEMOS[0].images, DEMOS[0].states[:2], DEMOS[0].actions)
    with pytest.raises(DataError, match="one of each a step"):
        write_demonstrations(tmp_path / "set", [uneven], fps=10, robot="panda")
    with pytest.raises(DataError, match="no demonstration"):
        write_demonstrations(tmp_path / "set", [], fps=10, robot="panda")


@pytest.mark.parametrize(
    "pattern",
    [
        "data/{chunk_index:01000000000d}.parquet",
        "data/{x}.parquet",
        "data/{chunk_index.__class__}",
        "{",
        "../{file_index}",
        "/etc/{file_index}",
        7,
    ],
)
def test_a_hostile_pattern_is_one_line(copy, pattern):
    for name in ("data_path", "video_path"):
        info = read_info(copy)
        (copy / "meta/info.json").write_text(json.dumps(info | {name: pattern}))
        with pytest.raises(DataError, match=r"pattern|LeRobot"):
            list(read_demonstrations(copy))
        (copy / "meta/info.json").write_text(json.dumps(info))


@pytest.mark.parametrize("column", [[[1.0], [1.0, 2.0]], ["a", "b"]])
def test_a_ragged_or_text_column_is_one_line(copy, column):
    path = copy / "data/chunk-000/file-000.parquet"
    table = pq.ParquetFile(path).read()
    values = [column[0], *[column[1]] * (len(table) - 1)]
    table = table.set_column(table.column_names.index("action"), "action", pa.array(values))
    pq.write_table(table, path)
    with pytest.raises(DataError, match="not as LeRobot writes"):
        list(read_demonstrations(copy))
