"""What each recipe refuses before it begins: every line names what is wrong and a way out of it."""

import json
import socket
from pathlib import Path

import pytest

from lookact.algorithms import vlm_preflight
from lookact.cli.recipes import RECIPES, load_settings
from lookact.config import check, override, save_config, settings
from lookact.errors import LookActError
from lookact.extras import is_installed
from lookact.recipes.ppo import preflight as vqa_preflight
from lookact.recipes.pref_sac import preflight as pref_preflight
from lookact.recipes.rloo import preflight as nav_preflight
from lookact.recipes.vla_ppo import preflight as vla_preflight
from lookact.recipes.world_duel import preflight as world_preflight
from lookact.training.preflight import Job

PREFLIGHTS = {
    "nav-rloo": nav_preflight.preflight,
    "vqa-ppo": vqa_preflight.preflight,
    "vla-ppo": vla_preflight.preflight,
    "pref-sac": pref_preflight.preflight,
    "world-duel": world_preflight.preflight,
}
NOWHERE = "127.0.0.1:1"


def begin(recipe, *words, preset="debug", command="train", folder=Path("runs"), **job):
    """What the command line does before a recipe is loaded."""
    cfg = check(override(load_settings(recipe).PRESETS[preset], words))
    PREFLIGHTS[recipe](cfg, Job(command, folder, **job))


def refusal(recipe, *words, **how) -> str:
    with pytest.raises(LookActError) as caught:
        begin(recipe, *words, **how)
    line = str(caught.value)
    assert "\n" not in line
    return line


@pytest.fixture(autouse=True)
def elsewhere(tmp_path, monkeypatch):
    """A working folder with an empty folder in it."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "empty").mkdir()


@pytest.mark.parametrize("recipe", RECIPES)
@pytest.mark.parametrize("preset", ["debug", "small"])
def test_what_runs_here_passes(recipe, preset):
    begin(recipe, preset=preset)
    begin(recipe, preset=preset, command="eval")
    assert not Path("runs").exists()


@pytest.mark.parametrize(
    ("recipe", "words", "line"),
    [
        (
            "nav-rloo",
            "--model.source ./nothere",
            "no checkpoint at ./nothere: give a folder that exists, or a Hub name",
        ),
        ("nav-rloo", "--model.source empty", "empty is not a checkpoint: it has no config.json"),
        ("nav-rloo", "--model.quantise nf4", "set --model.lora_rank 32 to train adapters"),
        ("nav-rloo", "--model.dtype bfloat16", "set --model.lora_rank 32 to train adapters in float32, or --model.dty"),
        ("nav-rloo", "--model.attention flash_attention_2", "needs a GPU and model.dtype bfloat16: set --model.attent"),
        ("nav-rloo", "--model.device gpu", "model.device = 'gpu': choose cpu, cuda or cuda:N"),
        ("nav-rloo", "--env.image_size 100", "the tiny model needs a multiple of 32"),
        ("nav-rloo", "--env.scenes empty", "empty is no ARKitScenes folder, it has no ID_3dod_mesh.ply"),
        ("nav-rloo", "--sampling.min_action_tokens 50", "min_action_tokens = 50: give at most max_action_tokens, 12"),
        (
            "nav-rloo",
            "--ray.workers 1 --model.device cuda",
            "sample from tiny on CPUs: set --ray.gpus 1, or --model.de",
        ),
        ("nav-rloo", f"--ray.workers 1 --ray.address {NOWHERE}", f"no Ray cluster at {NOWHERE}: start one there with"),
        ("vqa-ppo", "--env.types object_count", "no question is of type object_count; choose from object_counting"),
        ("vqa-ppo", "--sampler vllm --model.quantise nf4", "takes no quantised weights: set --model.quantise none"),
        (
            "nav-rloo",
            "--sampler vllm --ray.workers 2",
            "ray.workers 2 sample by themselves, not by vllm: set --sampler",
        ),
        ("vqa-ppo", "--sampler vllm-server --ray.workers 1", "sample by themselves, not by vllm-server: set --sampler"),
        ("vqa-ppo", "--sampler vllm --sampling.temperature 2.5", "sampling.temperature = 2.5: vllm takes 2 at most"),
        (
            "nav-rloo",
            "--sampler vllm --vllm.sleep",
            "vllm.sleep frees a GPU's memory: leave it out with --model.device",
        ),
        (
            "nav-rloo",
            f"--sampler vllm --vllm.url http://{NOWHERE}",
            "names a server: set --sampler vllm-server, not vllm",
        ),
        ("vqa-ppo", f"--sampler vllm-server --vllm.url http://{NOWHERE}", "no vLLM server answers at http://127.0.0.1"),
        ("nav-rloo", "--ray.staleness 1", "ray.staleness 1: only workers sample ahead; set --ray.workers"),
        ("nav-rloo", "--sampling.greedy", "sampling.greedy makes a group's episodes equal, and leaves no gradient"),
        ("vqa-ppo", "--importance_sampling.floor 3", "importance_sampling.floor = 3: give less than cap, 2"),
        ("vla-ppo", "--stage ppo", "name it with --checkpoint, or use stage both"),
        ("vla-ppo", "--stage ppo --checkpoint nothere", "checkpoint nothere does not exist: check the path"),
        ("vla-ppo", "--stage ppo --checkpoint empty", "empty is no vla-ppo checkpoint: it has no vla.json"),
        ("vla-ppo", "--learn.rollout_steps 3", "episodes last up to 24 and none is carried on; set it to at least 24"),
        ("vla-ppo", "--parallel.kind shard --ppo.kl_coef 0.1", "set --parallel.kind data, or --ppo.kl_coef 0"),
        ("vla-ppo", "--bc.dataset empty", "empty is no LeRobot dataset: meta/info.json is missing"),
        ("vla-ppo", "--model.vision.image_size 60", "give a multiple of the patch, 8"),
        ("vla-ppo", "--model.vision.source ./nothere", "no checkpoint at ./nothere"),
        ("pref-sac", f"--judge.kind server --judge.client.url http://{NOWHERE}", "start one with lookact serve"),
        ("pref-sac", "--judge.client.checkpoint empty", "empty is not a checkpoint: it has no config.json"),
        ("pref-sac", "--feedback.cached_label_path empty", "no labels at empty: give the folder of a run that asked"),
        ("pref-sac", "--env.image_size 40", "an embedded judge needs a multiple of 32"),
        ("pref-sac", "--env.judge_image_size 300", "env.judge_image_size = 300: an embedded judge needs a multiple of"),
        ("pref-sac", "--feedback.frames 2 --feedback.segment_length 4", "all that an embedded judge has learned"),
        ("pref-sac", "--judge.kind oracle --feedback.frames 2", "a segment has 1 steps, raise feedback.segment_length"),
        (
            "pref-sac",
            "--reward_model.inputs frame --judge.kind oracle --env.image_size 32",
            "frames needs 47",
        ),
        ("pref-sac", "--env.task mine/Dot-v0", "no goal is known for task mine/Dot-v0: give one in words"),
        ("pref-sac", "--device gpu", "device = 'gpu': choose cpu, cuda or cuda:N"),
        # torch has no CUDA, or sees no GPU, or there are fewer
        ("pref-sac", "--device cuda:99", "device = 'cuda:99': t"),
        ("world-duel", "--phase student", "phase student needs a world model: give teacher_path"),
        (
            "world-duel",
            "--phase student --teacher_path empty",
            "empty is no world-duel checkpoint: it has no model.saf",
        ),
        ("world-duel", "--tokenizer.scales 1,2", "images of 32 pixels need rising ones that end in 4"),
        ("world-duel", "--env.image_size 30", "env.image_size = 30: give a multiple of 8"),
        ("world-duel", "--model.train_gen_expert_only --model.freeze_gen_expert", "drop freeze_gen_expert"),
        ("world-duel", "--model.width 33", "model.width = 33: give a multiple of the 2 heads"),
    ],
    ids=lambda value: value if isinstance(value, str) and value.startswith("--") else "",
)
def test_what_could_not_work_is_refused(recipe, words, line, monkeypatch):
    monkeypatch.setenv("VLLM_API_KEY", "of both sides")
    assert line in refusal(recipe, *words.split())
    assert not Path("runs").exists()


@pytest.mark.parametrize(("recipe", "package", "words"), [
    ("vqa-ppo", "vllm", "--sampler vllm"),
    ("nav-rloo", "vllm", "--sampler vllm-server"),
    ("vqa-ppo", "ray", "--ray.workers 1"),
    ("nav-rloo", "ray", "--ray.workers 1"),
    ("nav-rloo", "bitsandbytes", "--model.quantise nf4 --model.lora_rank 8"),
    ("vla-ppo", "mujoco", ""),
    ("vla-ppo", "imageio_ffmpeg", ""),
    ("pref-sac", "uvicorn", ""),
    ("pref-sac", "metaworld", "--env.task door-close-v3"),
    ("world-duel", "mani_skill", "--env.name maniskill"),
])  # fmt: skip
def test_a_missing_package_is_told_with_what_installs_it(recipe, package, words, monkeypatch):
    def without(module):
        return module != package and is_installed(module)

    monkeypatch.setattr("lookact.training.preflight.is_installed", without)
    assert f" needs the package {package}: pip install 'lookact[" in refusal(recipe, *words.split())


def test_pendulum_needs_no_simulator(monkeypatch):
    monkeypatch.setattr("lookact.training.preflight.is_installed", lambda module: module not in ("mujoco", "metaworld"))
    begin("pref-sac")


def test_flash_attention_needs_its_package(monkeypatch):
    monkeypatch.setattr("lookact.algorithms.vlm_preflight.need_device", lambda setting, device: None)
    monkeypatch.setattr("lookact.algorithms.vlm_preflight.is_installed", lambda module: False)
    assert "pip install flash-attn, or set --model.attention sdpa" in refusal("nav-rloo", preset="full")


@pytest.mark.parametrize(
    ("recipe", "words", "line"),
    [
        (
            "vqa-ppo",
            "--sampler vllm",
            "sampler vllm serves no 3 processes (data parallel): set --sampler vllm-server or hf",
        ),
        (
            "vqa-ppo",
            "--parallel.kind shard --critic.backbone separate",
            "parallel.kind shard holds one model in parts: set --critic.backbone shared, or kind data",
        ),
        (
            "nav-rloo",
            "--sampler vllm-server --parallel.kind shard",
            "sampler vllm-server serves no 3 processes (FSDP2): set --sampler hf",
        ),
        ("vla-ppo", "--learn.num_envs 4", "learn.num_envs = 4: give a multiple of the 3 processes"),
        ("pref-sac", "", "pref-sac trains in one process, not in 3: leave --processes out"),
    ],
)
def test_what_takes_no_further_processes_says_so(recipe, words, line):
    assert refusal(recipe, *words.split(), processes=3) == line


def test_a_server_by_address_needs_its_key(monkeypatch):
    monkeypatch.delenv("VLLM_API_KEY", raising=False)
    words = f"--sampler vllm-server --vllm.url http://{NOWHERE}"
    assert "set VLLM_API_KEY in the environment, the same as the server's" in refusal("nav-rloo", *words.split())


def test_a_judge_that_runs_is_found():
    with socket.create_server(("127.0.0.1", 0)) as server:
        begin("pref-sac", "--judge.kind", "server", "--judge.client.url", f"http://127.0.0.1:{server.getsockname()[1]}")


def test_what_only_training_needs_is_not_asked_of_an_evaluation():
    for recipe, words in (
        ("vqa-ppo", "--sampler vllm"),
        ("pref-sac", "--judge.kind server"),
        ("vla-ppo", "--stage ppo"),
    ):
        begin(recipe, *words.split(), command="eval")


@pytest.mark.parametrize(
    ("recipe", "line"),
    [
        ("nav-rloo", "is a bert model: choose a vision-language checkpoint"),
        ("vla-ppo", "is no vla-ppo checkpoint: it has no vla.json"),
        ("pref-sac", "is no pref-sac checkpoint: it has no sac"),
        ("world-duel", "is no world-duel checkpoint: it has no model.safetensors"),
    ],
)
def test_a_checkpoint_of_another_kind_is_refused(recipe, line, tmp_path):
    (tmp_path / "bert").mkdir()
    (tmp_path / "bert/config.json").write_text(json.dumps({"model_type": "bert"}))
    assert line in refusal(recipe, command="eval", checkpoint=Path("bert"))


@pytest.mark.parametrize(
    ("recipe", "word", "line"),
    [
        ("nav-rloo", "--model.hidden=64", "model.hidden 128, not 64"),
        ("vqa-ppo", "--critic.backbone=separate", "critic.backbone shared, not separate"),
        ("vla-ppo", "--model.vision.hidden=96", "model.vision.hidden 32, not 96"),
        ("pref-sac", "--learn.hidden=8,8", "learn.hidden [16], not [8, 8]"),
        ("world-duel", "--tokenizer.codebook_size=32", "tokenizer.codebook_size 16, not 32"),
    ],
)
def test_a_run_whose_weights_would_not_fit_is_not_gone_on_from(recipe, word, line, tmp_path):
    save_config(load_settings(recipe).PRESETS["debug"], tmp_path / "config.yaml")
    begin(recipe, resume=tmp_path)
    assert f"was trained with {line}, and its weights do not fit" in refusal(recipe, word, resume=tmp_path)


@pytest.mark.parametrize("recipe", RECIPES)
def test_what_shapes_weights_are_settings(recipe):
    module = {"nav-rloo": vlm_preflight, "vqa-ppo": vlm_preflight, "vla-ppo": vla_preflight}
    module |= {"pref-sac": pref_preflight, "world-duel": world_preflight}
    assert set(module[recipe].SHAPES) <= {leaf.name for leaf in settings(load_settings(recipe).Config)}


def test_pref_sac_collects_nothing():
    assert "pref-sac collects while it trains" in refusal("pref-sac", command="collect")


def test_room_is_asked_for_what_a_run_writes(monkeypatch, tmp_path):
    monkeypatch.setattr("shutil.disk_usage", lambda path: type("Usage", (), {"free": 1e9}))
    begin("pref-sac")
    # 100,000 pictures of 128 x 128 in a replay, three of it at once
    full = (
        "--judge.kind",
        "noisy",
        "--learn.replay_capacity",
        "100000",
        "--reward_model.inputs",
        "frame",
        "--env.image_size",
        "128",
    )
    said = refusal("pref-sac", *full, "--env.horizon", "250", "--learn.episodes", "4000")
    assert "this needs about 14.7 GB: free some, give another --out, or set a smaller --learn.replay_capacity" in said
    # 20,128 episodes of 51 frames of 128 x 128 from two cameras
    monkeypatch.setattr("lookact.recipes.world_duel.preflight.need_device", lambda setting, device: None)
    monkeypatch.setattr("lookact.recipes.world_duel.preflight.check_source", lambda *_, **__: None)
    assert "this needs about 100.9 GB: " in refusal("world-duel", preset="full")
    (tmp_path / "model.safetensors").write_bytes(bytes(80_000_000))
    (tmp_path / "config.json").write_text(json.dumps({"model_type": "qwen3_vl"}))
    # five checkpoints of the weights and two moments; adapters are a hundredth of it
    assert "this needs about 1.2 GB" in refusal("nav-rloo", "--model.source", str(tmp_path))
    begin("nav-rloo", "--model.source", str(tmp_path), "--model.lora_rank", "32")
