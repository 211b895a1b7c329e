"""CLIP as a judge, with a tiny CLIP of random weights."""

import json
from dataclasses import replace

import numpy as np
import pytest
import torch
from transformers import CLIPConfig, CLIPImageProcessorPil, CLIPModel, CLIPProcessor, CLIPTokenizer

from lookact.algorithms.judge_diary import read_diary
from lookact.errors import ConfigError
from lookact.judges.similarity import SimilarityJudge
from lookact.recipes.pref_sac.config import PRESETS, EnvConfig
from lookact.recipes.pref_sac.preflight import check_judge
from lookact.recipes.pref_sac.train import main

GOAL = "to hold it"


@pytest.fixture(scope="module")
def clip(tmp_path_factory):
    """The folder of a CLIP that reads letters and pictures of 32 pixels."""
    folder = tmp_path_factory.mktemp("clip")
    letters = [chr(code) for code in range(ord("a"), ord("z") + 1)]
    words = [*letters, *(f"{letter}</w>" for letter in letters), "<|startoftext|>", "<|endoftext|>"]
    (folder / "vocab.json").write_text(json.dumps({word: place for place, word in enumerate(words)}))
    (folder / "merges.txt").write_text("#version: 0.2\n")
    tokenizer = CLIPTokenizer(str(folder / "vocab.json"), str(folder / "merges.txt"), model_max_length=16)
    size = {"hidden_size": 16, "intermediate_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2}
    ends = {"bos_token_id": len(words) - 2, "eos_token_id": len(words) - 1, "pad_token_id": len(words) - 1}
    text = {**size, **ends, "vocab_size": len(words), "max_position_embeddings": 16}
    torch.manual_seed(0)
    model = CLIPModel(
        CLIPConfig(text_config=text, vision_config={**size, "image_size": 32, "patch_size": 16}, projection_dim=8)
    )
    model.save_pretrained(folder)
    images = CLIPImageProcessorPil(size={"shortest_edge": 32}, crop_size={"height": 32, "width": 32})
    CLIPProcessor(images, tokenizer).save_pretrained(folder)
    return folder


@pytest.fixture
def images():
    return list(np.random.default_rng(0).integers(0, 255, (4, 40, 40, 3), dtype=np.uint8))


def test_the_image_nearer_to_the_goal_is_better_whichever_comes_first(clip, images):
    judge = SimilarityJudge(str(clip))
    scores = judge.similarities(images, GOAL)
    assert np.abs(scores).max() <= 1
    order = np.argsort(scores)
    worst, best = images[order[0]], images[order[-1]]
    told = judge.compare([(worst, best), (best, worst), (best, best)], GOAL)
    assert [preference.verdict for preference in told] == [1, 0, -1]
    assert told[0].raw_text == f"{scores[order[0]]:.5f} {scores[order[-1]]:.5f}"
    assert (judge.counts["pairs"], judge.counts["identical"], judge.counts["requests"]) == (3, 1, 0)
    assert judge.compare([], GOAL) == []


def test_a_score_depends_on_the_image_and_the_goal_alone(clip, images):
    judge = SimilarityJudge(str(clip))
    together, alone = judge.similarities(images, GOAL), judge.similarities(images[2:3], GOAL)
    np.testing.assert_allclose(together[2:3], alone, atol=1e-6)
    assert np.abs(together - judge.similarities(images, "to let it go")).max() > 1e-4


def test_a_run_is_labelled_by_similarity(clip, train, tmp_path):
    debug = PRESETS["debug"]
    cfg = replace(
        debug,
        env=EnvConfig(horizon=10, image_size=48),
        judge=replace(debug.judge, kind="similarity", clip_source=str(clip)),
    )
    train(main, cfg)
    diary = read_diary(tmp_path / "run")
    assert len(diary) == cfg.feedback.total
    for pair in diary:
        first, second = map(float, pair.replies[0].split())
        assert pair.verdict in (int(second > first), -1)


def test_what_is_no_clip_is_refused(tiny_folder):
    judge = replace(PRESETS["debug"].judge, kind="similarity", clip_source=str(tiny_folder))
    with pytest.raises(ConfigError, match="choose a clip checkpoint"):
        check_judge(replace(PRESETS["debug"], judge=judge))
