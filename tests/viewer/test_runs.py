import fcntl
import os
import subprocess
import sys

import pytest

from lookact.viewer.folder import find
from lookact.viewer.runs import group_of, last_error, list_media, list_runs, run_detail, run_log, run_status


def test_runs_stand_newest_first_with_what_their_folders_tell(tmp_path, write_run):
    lines = [{"step": 1, "eval/score": 0.25}, {"step": 2, "eval/score": 0.75}]
    write_run(tmp_path / "vqa-ppo/small-seed3", lines, seed=3, result={}, changed=1000)
    write_run(tmp_path / "vqa-ppo/mine", changed=2000)
    newest, oldest = list_runs(tmp_path, find(tmp_path))
    assert (newest["name"], newest["preset"], newest["steps"], newest["headline"]) == ("mine", None, 0, None)
    group = oldest.pop("group")
    assert oldest == {
        "place": "vqa-ppo/small-seed3",
        "recipe": "vqa-ppo",
        "name": "small-seed3",
        "preset": "small",
        "seed": 3,
        "status": "finished",
        "reason": "",
        "changed": 1000.0,
        "steps": 2,
        "headline": {"key": "eval/score", "value": 0.75, "spark": [0.25, 0.75]},
    }
    assert group == newest["group"]


def test_recipe_and_preset_are_as_recorded(tmp_path, write_run):
    write_run(tmp_path / "sweep/small-seed3", [])
    (tmp_path / "sweep/small-seed3/run.json").write_text('{"recipe": "vqa-ppo", "preset": "debug"}')
    write_run(tmp_path / "sweep/my-seed0", [])
    (tmp_path / "sweep/my-seed0/run.json").write_text('{"recipe": "vqa-ppo", "preset": null, "config": "my.yaml"}')
    told = {row["name"]: (row["recipe"], row["preset"]) for row in list_runs(tmp_path, find(tmp_path))}
    assert told == {"small-seed3": ("vqa-ppo", "debug"), "my-seed0": ("vqa-ppo", None)}


def test_seeds_of_one_config_are_one_group():
    assert group_of("a", {"seed": 0, "lr": 1}) == group_of("a", {"lr": 1, "seed": 5})
    assert group_of("a", {"seed": 0, "lr": 1}) != group_of("a", {"seed": 0, "lr": 2})
    assert group_of("a", {"seed": 0}) != group_of("b", {"seed": 0})


def test_a_run_without_a_config_is_a_group_of_its_own(tmp_path, write_run):
    for name in ("a", "b"):
        (write_run(tmp_path / name) / "config.yaml").unlink()
    assert [row["group"] for row in list_runs(tmp_path, find(tmp_path))] == ["a", "b"]


def test_all_of_a_run(tmp_path, write_run, write_episodes):
    folder = write_run(tmp_path / "run", config={"learn": {"lr": 0.1}}, result={"x": float("inf")}, log="hello\n")
    (folder / "samples").mkdir()
    (folder / "samples/a.png").write_bytes(b"png")
    write_episodes(folder / "episodes")
    detail = run_detail(tmp_path, "run", find(tmp_path))
    assert detail["config"] == {"seed": 0, "learn": {"lr": 0.1}}
    assert detail["result"] == {"x": None}
    assert detail["versions"] is None
    assert detail["files"] == ["metrics.jsonl"]
    assert [row["place"] for row in detail["media"]] == ["run/samples/a.png"]
    assert detail["stores"] == [{"place": "run/episodes", "episodes": 2}]
    assert run_log(tmp_path, "run") == {"text": "hello\n"}


def test_a_torn_config_is_none_not_a_failure(tmp_path, write_run):
    (write_run(tmp_path / "run") / "config.yaml").write_text("a: [1")
    assert run_detail(tmp_path, "run", find(tmp_path))["config"] is None


ERROR = (
    "2026-01-01 10:00:00,123 INFO lookact.training.run: saved checkpoint-1\n"
    "2026-01-01 10:00:01,123 DEBUG lookact.training.run: the run ended with an error\n"
    "Traceback (most recent call last):\n"
    '  File "x.py", line 1, in main\n'
    "{end}\n"
)
STOPPED = ERROR.format(end="lookact.errors.TrainingStopped: the loss is not finite")
LATER = "2026-01-01 11:00:00,000 INFO lookact.training.run: going on from checkpoint-1 after step 1\n"


def test_the_last_error_of_a_log_is_its_last_line():
    assert last_error(STOPPED) == "lookact.errors.TrainingStopped: the loss is not finite"
    assert last_error(STOPPED + LATER) is None
    assert last_error("") is None


@pytest.mark.parametrize(
    ("log", "result", "told"),
    [
        (STOPPED, None, ("failed", "lookact.errors.TrainingStopped: the loss is not finite")),
        (
            ERROR.format(end="KeyboardInterrupt"),
            None,
            ("interrupted", "by Ctrl-C; train continues where it was with --auto-resume"),
        ),
        ("", {"after": {}}, ("finished", "")),
        (STOPPED + LATER, {"after": {}}, ("finished", "")),
    ],
)
def test_what_a_folder_tells(tmp_path, write_run, log, result, told):
    assert run_status(write_run(tmp_path / "run", log=log, result=result)) == told


def test_a_run_without_an_end_is_alive_while_it_writes(tmp_path, write_run):
    folder = write_run(tmp_path / "run", [{"step": 1}], changed=1000)
    assert run_status(folder, now=1030.0)[0] == "running"
    assert run_status(folder, now=1100.0)[0] == "stopped"


def test_a_failure_after_an_earlier_end_is_told(tmp_path, write_run):
    folder = write_run(tmp_path / "run", log=STOPPED, result={}, changed=1000)
    assert run_status(folder)[0] == "finished"
    os.utime(folder / "training.log", (2000, 2000))
    assert run_status(folder)[0] == "failed"


@pytest.mark.skipif(sys.platform != "linux", reason="locks of other processes are seen on Linux alone")
def test_a_locked_run_is_running_whatever_it_left_before(tmp_path, write_run):
    folder = write_run(tmp_path / "run", log=STOPPED, result={})
    (folder / ".lock").touch()
    code = "import fcntl, sys; f = open(sys.argv[1], 'w'); fcntl.lockf(f, fcntl.LOCK_EX); print(flush=True); input()"
    holder = subprocess.Popen(
        [sys.executable, "-c", code, str(folder / ".lock")], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    holder.stdout.readline()
    assert run_status(folder) == ("running", "")
    with (folder / ".lock").open("w") as file, pytest.raises(OSError):
        fcntl.lockf(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    holder.communicate("\n")
    assert run_status(folder) == ("finished", "")


def test_pictures_videos_and_texts_by_folder_and_kind_newest_first(tmp_path):
    names = {
        "run/samples/old.png": 1,
        "run/samples/new.png": 2,
        "run/samples/words.txt": 3,
        "run/videos/update-1/a.mp4": 4,
        "run/plots/curve.png": 5,
        "run/top.jpg": 6,
        "run/samples/weights.pt": 7,
        "run/tensorboard/x.png": 8,
        "run/checkpoint-1/y.png": 9,
    }
    for name, changed in names.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_bytes(b"12345")
        os.utime(tmp_path / name, (changed, changed))
    rows = list_media(tmp_path, "run")
    told = [(row["folder"], row["name"], row["kind"]) for row in rows]
    assert told == [
        (".", "top.jpg", "picture"),
        ("plots", "curve.png", "picture"),
        ("samples", "new.png", "picture"),
        ("samples", "old.png", "picture"),
        ("samples", "words.txt", "text"),
        ("videos/update-1", "a.mp4", "video"),
    ]
    assert rows[0]["place"] == "run/top.jpg"
    assert rows[0]["bytes"] == 5


def test_links_are_left_out(tmp_path):
    (tmp_path / "secret").mkdir()
    (tmp_path / "secret/a.png").touch()
    (tmp_path / "run/samples").mkdir(parents=True)
    (tmp_path / "run/samples/link.png").symlink_to(tmp_path / "secret/a.png")
    (tmp_path / "run/plots").symlink_to(tmp_path / "secret")
    assert list_media(tmp_path, "run") == []
