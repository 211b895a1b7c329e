"""Every sampler with the learners, recipe and task that docs/combinations.md claims; this file makes its table.

    python tests/recipes/test_combinations.py    # writes the table again

Each takes two gradient steps, with sampler and learner within their limit, and the second again from the first one's
checkpoint, to the same bit.
"""

import importlib
import importlib.util
import json
import os
import subprocess
import sys
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from pathlib import Path

import pytest
from safetensors.torch import load_file

from lookact.algorithms.vlm_preflight import COMBINATIONS
from lookact.cli.recipes import RECIPES, load_settings, settings_for
from lookact.config import check, override, settings, to_mapping
from lookact.errors import ConfigError
from lookact.ops.mismatch import LIMITS
from lookact.tasks.registry import TASKS
from lookact.training.distributed import is_main
from lookact.training.preflight import Job
from lookact.training.run import open_run

ROOT = Path(__file__).parent.parent.parent
PAGE = ROOT / "docs/combinations.md"
OWN = "examples/own_task/where_is_red.py:TASK"
BEGIN, END = "<!-- table of tests/recipes/test_combinations.py -->", "<!-- end of the table -->"
LEARNERS = ("one process", "data parallel", "FSDP2")
FRESH = "LOOKACT_TEST_FRESH"
NAMES = {"rloo": "nav-rloo", "ppo": "vqa-ppo"}


@dataclass(frozen=True)
class Case:
    recipe: str
    task: str
    sampler: str = "hf"
    learners: str = "one process"

    @property
    def words(self) -> list[str]:
        """The settings that make it so."""
        words = ["--sampler", self.sampler.removesuffix(" on Ray")]
        words += ["--ray.workers", "1"] if self.sampler == "hf on Ray" else []
        return words + (["--parallel.kind", "shard"] if self.learners == "FSDP2" else [])

    def __str__(self) -> str:
        return f"{self.recipe} {Path(self.task).stem} {self.sampler} {self.learners}"


CASES = [
    *(Case(recipe, task) for recipe in NAMES for task in (*TASKS, OWN)),
    Case("rloo", "frozen-lake", learners="data parallel"),
    Case("ppo", "navigation", learners="data parallel"),
    Case("rloo", "minigrid", learners="FSDP2"),
    Case("ppo", OWN, learners="FSDP2"),
    # these start a Ray of their own, in a fork
    Case("rloo", OWN, "hf on Ray", "FSDP2"),
    Case("ppo", OWN, "hf on Ray", "data parallel"),
    Case("rloo", "frozen-lake", "hf on Ray", "data parallel"),
    Case("ppo", "minigrid", "hf on Ray", "FSDP2"),
    Case("rloo", "spatial-vqa", "hf on Ray"),
    Case("ppo", "frozen-lake", "hf on Ray"),
    Case("rloo", "navigation", "vllm"),
    Case("ppo", OWN, "vllm"),
    Case("rloo", OWN, "vllm-server"),
    Case("ppo", "spatial-vqa", "vllm-server"),
    Case("rloo", "spatial-vqa", "vllm-server", "data parallel"),
    Case("ppo", "navigation", "vllm-server", "data parallel"),
]
SMALL = {
    "model.hidden": 32,
    "model.layers": 1,
    "model.vision_hidden": 32,
    "model.vision_depth": 1,
    "env.image_size": 64,
    "env.max_turns": 2,
    "sampling.max_tokens": 6,
    "sampling.min_action_tokens": 1,
    "vision_pretraining.rooms": 0,
    "sft.demonstrations": 0,
    "learn.iterations": 2,
    "learn.groups": 2,
    "learn.group_size": 2,
    "learn.episodes": 4,
    "learn.minibatch_size": 4,
    "learn.loss_on": "reply",
    "learn.lr_warmup": 0,
    "learn.lr_schedule": "constant",
    "critic.warmup": 0,
    "evaluation.every": 1,
    "evaluation.episodes": 1,
    "evaluation.final_episodes": 0,
    "vllm.max_num_seqs": 4,
    "vllm.kv_cache_memory": 0.25,
    "vllm.start_timeout_s": 1800,
    "vllm.reply_timeout_s": 900,
    "reward_functions": f"{__file__}:variety",
}
"""Settings so small that a run takes a second or two; a recipe or a task passes over those it lacks."""


def variety(episode):
    """Pays an untrained model, which no task does yet: the different characters of each reply."""
    return [len(set(turn.decision.action)) / 10 for turn in episode.turns]


def config_of(case):
    recipe = settings_for(load_settings(NAMES[case.recipe]), str(ROOT / case.task) if case.task == OWN else case.task)
    known = {leaf.name for leaf in settings(recipe.Config)}
    small = [f"--{name}={value}" for name, value in SMALL.items() if name in known]
    return check(override(recipe.PRESETS["debug"], [*small, *case.words]))


def train(case, folder, resume=None):
    """A run as the command line begins it: what could not work is refused first."""
    cfg, loop = config_of(case), RECIPES[NAMES[case.recipe]]
    processes = 1 if case.learners == "one process" else 2
    preflight = importlib.import_module(loop.replace(".train", ".preflight")).preflight
    preflight(cfg, Job("train", folder, resume=resume, processes=processes))
    with open_run(folder, to_mapping(cfg), resume=resume, tensorboard=False) as run:
        importlib.import_module(loop).main(cfg, run)


def outcome(folder):
    """The weights after the second step to the last bit, and both steps' numbers but those of this process alone."""
    lines = [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]
    # to an engine that was just started all weights are new
    own = ("time/", "policy/sync_changed")
    return weights(folder, 2), [{k: v for k, v in line.items() if not k.startswith(own)} for line in lines]


def weights(folder, step):
    saved = load_file(folder / f"checkpoint-{step}/model.safetensors")
    return {name: tensor.numpy().tobytes() for name, tensor in saved.items()}


def train_and_resume(case, folder):
    """What came of both steps, and of the second one again."""
    with cluster() if case.sampler == "hf on Ray" and is_main() else nullcontext():
        train(case, folder)
        unbroken = outcome(folder) if is_main() else None
        train(case, folder, folder / "checkpoint-1")
    return unbroken, outcome(folder) if is_main() else None


@contextmanager
def cluster():
    """A small Ray cluster of this process's own, unless it has one."""
    from lookact.rollout.ray.pool import join_cluster, leave_cluster

    joined = join_cluster(cpus=2, store_bytes=80 * 2**20)
    yield
    if joined:
        leave_cluster()


def needs(case):
    """What a case waits for."""
    absent = importlib.util.find_spec("vllm") is None
    marks = [pytest.mark.slow]
    if "vllm" in case.sampler:
        marks += [pytest.mark.vllm, pytest.mark.skipif(absent, reason="vLLM is absent: `make test-vllm` runs this")]
    return pytest.param(case, marks=marks, id=str(case))


def in_a_fresh_process(test):
    """The test, in a process of its own: a fork of one that has used Ray, or sharded something, takes that along."""
    env = {name: value for name, value in os.environ.items() if not name.startswith("PYTEST_")} | {FRESH: "yes"}
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", test]
    done = subprocess.run(command, cwd=ROOT, env=env, capture_output=True, text=True, timeout=900)
    assert done.returncode == 0, done.stdout[-4000:]
    assert "1 passed" in done.stdout


@pytest.mark.parametrize("case", [needs(case) for case in CASES])
def test_it_learns_and_resumes_to_the_same_bit(case, tmp_path, together, request):
    if case.task == "minigrid":
        pytest.importorskip("minigrid", reason="needs lookact[grid]")
    if case.sampler == "hf on Ray":
        pytest.importorskip("ray", reason="needs lookact[ray]")
    if case.learners != "one process" and FRESH not in os.environ:
        return in_a_fresh_process(request.node.nodeid)
    folder = tmp_path / "run"
    if case.learners == "one process":
        unbroken, resumed = train_and_resume(case, folder)
    else:
        unbroken, resumed = together(train_and_resume, case, folder)[0]
    learned, told = unbroken
    assert [line["step"] for line in told] == [1, 2]
    for line in told:
        assert line["optim/grad_norm"] > 0
        assert line["policy/mismatch_gap_max"] <= LIMITS["float32"].token
        assert line["rollout/error_rate"] == 0
    assert learned != weights(folder, 1)
    assert resumed == unbroken


def claimed():
    """Every recipe, sampler and kind of learners that preflight lets pass."""
    return {(recipe, who, learners) for recipe in NAMES for who in COMBINATIONS for learners in COMBINATIONS[who]}


def test_every_claim_has_a_case_and_every_case_is_claimed():
    assert {(case.recipe, case.sampler, case.learners) for case in CASES} == claimed()
    assert {(case.recipe, case.task) for case in CASES} == {
        (recipe, task) for recipe in NAMES for task in (*TASKS, OWN)
    }


EVERY = {(recipe, who, learners) for recipe in NAMES for who in COMBINATIONS for learners in LEARNERS}


@pytest.mark.parametrize(("recipe", "sampler", "learners"), sorted(EVERY - claimed()))
def test_what_is_not_claimed_is_refused_in_one_line(recipe, sampler, learners, tmp_path):
    with pytest.raises(ConfigError) as caught:
        train(Case(recipe, "navigation", sampler, learners), tmp_path / "run")
    able = "vllm-server or hf" if learners == "data parallel" else "hf"
    assert str(caught.value) == f"sampler {sampler} serves no 2 processes ({learners}): set --sampler {able}"
    assert not (tmp_path / "run").exists()


def table():
    """The page's table: the tasks with which each recipe is run by each sampler, for each kind of learners."""
    lines = ["| sampler | learners | rloo | ppo |", "|---|---|---|---|"]
    for who in COMBINATIONS:
        for learners in LEARNERS:
            cells = [cell(recipe, who, learners) for recipe in NAMES]
            lines.append(f"| {who} | {learners} | {' | '.join(cells)} |")
    return "\n".join(lines)


def cell(*combination):
    tasks = [case.task for case in CASES if (case.recipe, case.sampler, case.learners) == combination]
    return ", ".join("own_task" if task == OWN else task for task in tasks) or "refused"


def with_table(page):
    before, rest = page.split(BEGIN)
    return f"{before}{BEGIN}\n\n{table()}\n\n{END}{rest.split(END)[1]}"


def test_the_page_shows_what_is_run_and_what_is_allowed():
    page = PAGE.read_text(encoding="utf-8")
    assert page == with_table(page), "the table is written by: python tests/recipes/test_combinations.py"


if __name__ == "__main__":
    PAGE.write_text(with_table(PAGE.read_text(encoding="utf-8")), encoding="utf-8")
