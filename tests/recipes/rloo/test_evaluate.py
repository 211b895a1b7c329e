import json
import os
import signal
from dataclasses import replace

import pytest
import torch

from lookact.algorithms.vlm_settings import SFT, VisionPretraining
from lookact.data.episode_store import MANIFEST, EpisodeStore
from lookact.recipes.rloo.evaluate import make_evaluator, open_checkpoint
from lookact.recipes.rloo.train import collect, evaluate, main

pytestmark = pytest.mark.slow


def test_the_random_policy_is_measured_and_its_walks_are_kept(nav_config, tmp_path):
    asked = {"checkpoint": None, "episodes": 6, "greedy": False, "dummy": True, "folder": tmp_path}
    result = evaluate(nav_config, **asked)
    assert result["episodes"] == 6
    assert result["valid_action_rate"] == 1.0
    assert set(result["ci"]) >= {"success_rate", "spl", "valid_action_rate"}
    assert evaluate(nav_config, **asked) == result
    # both evaluations kept the same six, with poses that lie on their maps
    kept = list(EpisodeStore(tmp_path / "episodes").episodes())
    assert [episode.id for episode in kept] == [f"test-00000-{number:04d}-00" for number in range(6)]
    for episode in kept:
        seen = [*(turn.observation for turn in episode.turns), episode.last]
        places = episode.floor_map.to_pixels([each.state[:2] for each in seen])
        assert ((places > 0) & (places < episode.floor_map.picture.shape[0])).all()
        assert all(each.depth is None for each in seen)


def test_a_checkpoint_can_be_measured_and_gives_what_the_run_saw(nav_started, train, tmp_path):
    cfg = replace(nav_started, evaluation=replace(nav_started.evaluation, final_episodes=6))
    result = train(main, cfg)
    for name, greedy in (("greedy", True), ("sampled", False)):
        measured = evaluate(
            cfg, checkpoint=tmp_path / "run/checkpoint-2", episodes=6, greedy=greedy, dummy=False, folder=tmp_path
        )
        assert measured == result["after"][name]


def test_the_supervised_start_is_taken_up_again_and_not_learned_twice(nav_started, train, tmp_path):
    cfg = replace(
        nav_started,
        vision_pretraining=VisionPretraining(rooms=2, epochs=1),
        sft=SFT(demonstrations=4, epochs=1, batch_size=4),
        learn=replace(nav_started.learn, iterations=0),
        evaluation=replace(nav_started.evaluation, final_episodes=4),
    )
    first = train(main, cfg)
    written = {path: path.stat().st_mtime_ns for path in (tmp_path / "run/sft").iterdir()}
    assert {"metrics.json", "vision_pretraining.jsonl", "sft.jsonl", "model.safetensors"} <= {
        path.name for path in written
    }
    again = train(main, cfg, resume=True)
    assert (again["before"], again["after"]) == (first["before"], first["after"])
    assert again["before"] == again["after"]
    assert written == {path: path.stat().st_mtime_ns for path in (tmp_path / "run/sft").iterdir()}


def test_collection_fills_a_folder_in_the_format_of_the_manifest(nav_started, tmp_path):
    counts = collect(nav_started, checkpoint=None, episodes=5, out=tmp_path)
    rows = [json.loads(line) for line in (tmp_path / MANIFEST).read_text().splitlines()]
    assert (counts["episodes"], counts["collected"], counts["kept"]) == (5, 5, 0)
    assert sum(counts["methods"].values()) == sum(row["num_turns"] for row in rows)
    assert sum(counts["qualities"].values()) == 5
    assert counts["dropout_rate"] == pytest.approx(sum(not row["is_valid"] for row in rows) / 5)
    for row in rows:
        assert row["question"].startswith("Find the ")
        assert all((row["scene_id"], row["question_id"]))
        saved = torch.load(tmp_path / f"{row['episode_id']}_tensors.pt", weights_only=True)
        assert len(saved["turns"]) == row["num_turns"]
        assert saved["turns"][0]["input_token_length"] == len(saved["turns"][0]["prompt_ids"])


def test_a_collection_that_is_killed_ends_like_one_that_was_not(nav_started, tmp_path):
    cfg = replace(nav_started, evaluation=replace(nav_started.evaluation, num_envs=2))
    collect(cfg, checkpoint=None, episodes=10, out=tmp_path / "whole")
    manifest = tmp_path / "broken" / MANIFEST
    child = os.fork()
    if child == 0:
        add, left = EpisodeStore.add, iter(range(3, -1, -1))

        def deadly(store, episode):
            if next(left) == 0:
                os.kill(os.getpid(), signal.SIGKILL)
            return add(store, episode)

        EpisodeStore.add = deadly
        try:
            collect(cfg, checkpoint=None, episodes=10, out=tmp_path / "broken")
        finally:
            os._exit(1)
    assert os.WTERMSIG(os.waitpid(child, 0)[1]) == signal.SIGKILL
    with manifest.open("a") as file:
        file.write('{"episode_id": "torn')
    counts = collect(cfg, checkpoint=None, episodes=10, out=tmp_path / "broken")
    assert (counts["kept"], counts["collected"], counts["episodes"]) == (3, 7, 10)
    assert manifest.read_text() == (tmp_path / "whole" / MANIFEST).read_text()
    pairs = zip(EpisodeStore(tmp_path / "whole").episodes(), EpisodeStore(tmp_path / "broken").episodes(), strict=True)
    for one, other in pairs:
        for a, b in zip(one.turns, other.turns, strict=True):
            assert a.decision.token_ids.tolist() == b.decision.token_ids.tolist()


def test_instructions_reach_every_prompt(nav_started, nav_start, tmp_path):
    cfg = replace(nav_started, instructions="You walk.")
    collect(cfg, checkpoint=None, episodes=1, out=tmp_path)
    chat = open_checkpoint(cfg, nav_start)
    make_evaluator(cfg, tmp_path / "run").report(chat, "sampled", split="test", episodes=1, greedy=False)
    for folder in (tmp_path, tmp_path / "run/episodes/sampled"):
        (episode,) = EpisodeStore(folder).episodes()
        prompt = chat.tokenizer.decode(episode.turns[0].decision.prompt_ids)
        assert prompt.startswith("<|im_start|>system\nYou walk.<|im_end|>\n")
