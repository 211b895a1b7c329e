import json

import numpy as np
import pytest

from benchmarks import preferences
from benchmarks.preferences import (
    EPISODES,
    SOURCES,
    RewardJudge,
    row_of,
    table_of,
    variants_table,
    words_of,
    write_record,
    write_variants,
)
from lookact.algorithms.judge_training import LabelledImages, measure_judge
from lookact.cli import main
from lookact.cli.recipes import load_settings
from lookact.config import override


@pytest.mark.parametrize("task", EPISODES)
@pytest.mark.parametrize("source", SOURCES)
def test_every_run_of_the_record_has_settings_that_the_recipe_knows(task, source):
    words = words_of(task, source, 1)
    preset = words[words.index("--preset") + 1]
    cfg = override(
        load_settings("pref-sac").PRESETS[preset], [word for word in words if word not in ("--preset", preset)]
    )
    assert cfg.env.task == f"{task.removesuffix('-fixed')}-v3"
    assert cfg.env.fixed_start == task.endswith("-fixed")
    assert cfg.seed == 1
    rounds = (
        1 + (cfg.learn.episodes - cfg.learn.random_episodes - cfg.learn.unsupervised_episodes) // cfg.feedback.every
    )
    assert rounds * cfg.feedback.pairs_per_round >= cfg.feedback.total
    # a judge of other tasks has not seen the one it judges
    assert cfg.env.task not in cfg.judge.sft.tasks
    assert len(cfg.judge.sft.tasks) == (8 if source == "others" else 0)


def test_clips_weights_are_those_that_are_given():
    words = words_of("drawer-open", "similarity", 4, "here/clip")
    assert words[words.index("--judge.clip_source") + 1] == "here/clip"


def test_seeds_are_added_up_and_labels_counted_where_they_were_decided(tmp_path):
    rows = []
    for seed, wins in ((1, 0.5), (2, 1.0)):
        folder = tmp_path / str(seed)
        (folder / "judge").mkdir(parents=True)
        report = {"success_rate": wins, "episode_return": 10.0 * seed, "episodes": 10, "ci": {}}
        result = {"agent": report, "random": report, "judge": {}}
        (folder / "result.json").write_text(json.dumps(result))
        (folder / "judge" / "report.json").write_text("{}")
        # right, wrong, undecided, and right but of equals
        pairs = ["0,1,1", "0,1,0", "0,1,-1", "2,2,1"]
        lines = ["a,b,label,timestamp,train_iter", *(f"{pair},2026-01-01T00:00:00,0" for pair in pairs)]
        (folder / "vlm_query_log.csv").write_text("\n".join(lines) + "\n")
        rows.append(row_of(folder, "drawer-open", "embedded", seed))
    assert rows[0]["labels"] == {"accuracy": 0.5, "no_preference_rate": 0.25, "pairs": 4}
    rows.append(rows[0] | {"seed": 100, "tuning": True})
    line, tuning = table_of(rows).splitlines()[2:]
    assert "| 100 (tuning) | 50% |" in tuning
    cells = [cell.strip() for cell in line.split("|")[1:-1]]
    # 15 of 20: Wilson's interval by hand is 0.531 to 0.888
    assert cells[2:] == ["1, 2", "50%, 100%", "75% [53%, 89%]", "10, 20", "50%, 50%"]


def test_a_reward_in_the_order_of_the_truth_is_right_on_every_pair_and_one_in_reverse_on_none(tmp_path):
    images = np.arange(40, dtype=np.uint8)[:, None, None, None].repeat(3, axis=3)
    data = LabelledImages(images, np.arange(40.0), np.zeros((40, 1), np.float32))
    found = {}
    for name, sign in (("with", 1.0), ("against", -1.0)):
        judge = RewardJudge({image.tobytes(): sign * number for number, image in enumerate(images)})
        found[name] = measure_judge(judge, data, "", pairs=100, seed=0, folder=tmp_path)
    assert found["with"]["clear"]["accuracy"] == 1.0
    assert found["against"]["clear"]["accuracy"] == 0.0
    lines = variants_table({"run": found}).splitlines()
    assert lines[1].count("|") == lines[0].count("|") == lines[2].count("|")
    assert [line.split("|")[-3].strip().split()[0] for line in lines[2:]] == ["100%", "0%"]


@pytest.mark.slow
@pytest.mark.parametrize("source", ["oracle", "frames"])
def test_a_run_of_a_tuning_seed_is_marked_and_its_reward_judges_held_out_pairs(tmp_path, monkeypatch, source):
    monkeypatch.setattr(preferences, "HELD_OUT", 40)
    learn = "--learn.episodes 5 --learn.random_episodes 1 --learn.unsupervised_episodes 1 --learn.batch_size 16"
    feedback = "--feedback.total 24 --feedback.pairs_per_round 8 --feedback.every 1"
    quick = f"{learn} {feedback} --evaluation.episodes 1 --evaluation.final_episodes 1"
    run = ["--out", str(tmp_path), "--name", f"drawer-open-{source}-100"]
    assert main(["train", "pref-sac", *words_of("drawer-open", source, 100), *quick.split(), *run]) == 0
    write_record(tmp_path)
    assert "| 100 (tuning) |" in (tmp_path / "tasks.md").read_text()
    write_variants([("drawer-open", source, 100), ("drawer-open", source, 101)], tmp_path, None)
    (line,) = (tmp_path / "variants.md").read_text().splitlines()[2:]
    assert line.startswith(f"| drawer-open-{source}-100 | learned reward |")
