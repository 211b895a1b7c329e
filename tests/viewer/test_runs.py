from lookact.viewer.places import find
from lookact.viewer.runs import group_of, list_runs, run_detail, run_log


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
