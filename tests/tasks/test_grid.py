import json

import pytest

pytest.importorskip("pygame", reason="needs lookact[grid]")

from lookact.cli import main


@pytest.mark.slow
@pytest.mark.parametrize(("recipe", "task"), [("rloo", "frozen-lake"), ("ppo", "frozen-lake"), ("rloo", "spatial-vqa")])
def test_a_recipe_learns_and_is_evaluated_on_another_task(recipe, task, tmp_path, capsys):
    words = ["--preset", "debug", "--out", str(tmp_path), "--learn.iterations", "2"]
    # after debug's few demonstrations most groups of answers have equal returns
    words += ["--learn.groups", "16"] if recipe == "rloo" else []
    assert main(["train", recipe, "--task", task, *words]) == 0
    (run,) = tmp_path.glob(f"*/{task}-debug-seed0")
    rows = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
    assert all(row["rollout/error_rate"] == 0.0 for row in rows)
    assert any(value > 0 for row in rows for key, value in row.items() if key.endswith("grad_norm"))
    # the run's own file says which task it is of
    name = run.parent.name
    out = ["--out", str(tmp_path / "eval"), "--json"]
    capsys.readouterr()
    assert main(["eval", name, "--checkpoint", str(run / "checkpoint-2"), "--episodes", "4", *out]) == 0
    json.loads(capsys.readouterr().out)


@pytest.mark.learn
def test_frozen_lake_is_learned_from_pictures(tmp_path):
    """About forty seconds of one core, of which benchmarks/grid has records."""
    words = ["--preset", "small", "--env.layout", "4x4", "--env.random_start", "true", "--out", str(tmp_path)]
    start = ["--vision_pretraining.rooms", "150", "--sft.demonstrations", "600"]
    short = ["--learn.iterations", "10", "--evaluation.every", "100"]
    assert main(["train", "ppo", "--task", "frozen-lake", *words, *start, *short]) == 0
    (result,) = tmp_path.glob("*/*/result.json")
    assert json.loads(result.read_text())["after"]["greedy"]["success_rate"] > 0.9
