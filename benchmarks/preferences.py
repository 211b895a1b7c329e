"""Record of pref-sac on MetaWorld's tasks: one SAC, paid by the true reward, simulated teachers or embedded judges.

    python -m benchmarks.preferences --tasks drawer-open --seeds 4 5 6 --runs runs/preferences

Runs one after the other, in one thread; a run that has its result is passed over and one that was cut off goes on, so
that the command can be stopped and given again. After each it writes the table of what there is.
"""

from __future__ import annotations

import argparse
import itertools
import json
import os
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Literal

import numpy as np
import torch

from lookact.algorithms.judge_training import BINS, LabelledImages, measure_judge
from lookact.algorithms.reward_learning import LearnedReward
from lookact.judges.similarity import SimilarityJudge
from lookact.models.reward_model import make_reward_model
from lookact.protocols import Judge
from lookact.recipes.pref_sac.config import PRESETS, ClientConfig
from lookact.recipes.pref_sac.evaluate import goal_in_words
from lookact.recipes.pref_sac.judge import JudgeService, render_labelled_images
from lookact.seeding import derive
from lookact.training.checkpoint import latest_checkpoint
from lookact.training.evaluation import wilson_interval
from lookact.training.weights import read_weights
from lookact.types import Image, Preference

HELD_OUT = 400
"""Images, and pairs of them."""
Variant = Literal["single", "logprob", "two_step", "rating", "yes"]
COMPARING: tuple[Variant, ...] = ("single", "logprob", "two_step")
"""Ways of asking that every embedded judge was trained for; beside them, one that scores each image alone."""
SCORING: dict[str, Variant] = {"yes": "yes"}
"""That one by the source, `rating` where it is not told."""
TUNING = range(100, 110)
"""Seeds on which settings are chosen."""
SEEDS = (*range(100), *TUNING)
OTHERS = "drawer-close window-open button-press door-open push handle-press sweep-into soccer drawer-open"
"""Tasks that a judge of another task is trained on, without the one it judges."""
SHARED = "--preset arm --learn.layer_norm true --evaluation.every 40 --evaluation.final_episodes 50"
TRUE = "--learn.entropy_bonus 0.2 --learn.bonus_episodes 120"
"""Chosen with the true reward on drawer-open, seeds 100, 101 and 102: 92%, 100% and 100% of 50 starts."""
LEARNED = (
    "--learn.entropy_bonus 0.4 --learn.bonus_episodes 160 --learn.unsupervised_episodes 30 "
    "--feedback.strategy disagreement --feedback.total 4640"
)
"""Chosen with the oracle on drawer-open, seeds 100 and 101: the better of two that both fail on 101."""
FIXED = "-fixed"
"""Ends the name of a task whose episodes all begin from one start."""
CLIP = "openai/clip-vit-base-patch32"
"""Weights of CLIP, where none are named."""
EPISODES = {"drawer-open": (240, 400), "sweep-into": (400, 400), "soccer": (400, 400), f"soccer{FIXED}": (400, 400)}
"""Of 30 decisions of 4 simulator steps, with the true reward and with a learned one."""
SOURCES = {
    "true": "--reward true",
    "oracle": "--judge.kind oracle",
    "frames": "--judge.kind oracle --reward_model.inputs frame",
    "mistake-10": "--judge.kind mistake --judge.mistake_prob 0.1",
    "mistake-30": "--judge.kind mistake --judge.mistake_prob 0.3",
    "embedded": "--judge.kind embedded",
    "others": "--judge.kind embedded --judge.sft.tasks {others}",
    "rating": "--judge.kind embedded --judge.client.variant rating",
    "yes": "--judge.kind embedded --judge.client.variant yes",
    "similarity": "--judge.kind similarity --judge.clip_source {clip}",
}
"""Who pays, in the order of the table."""
WHO = {
    "true": "true reward",
    "oracle": "oracle's preferences",
    "frames": "oracle's preferences, reward read from pictures",
    "mistake-10": "oracle, 10% turned around",
    "mistake-30": "oracle, 30% turned around",
    "embedded": "embedded judge, trained on this task",
    "others": "embedded judge, trained on eight other tasks",
    "rating": "embedded judge's ratings of single images",
    "yes": "embedded judge's log P(yes) of single images (TOPReward)",
    "similarity": "CLIP's similarity of single images to the goal",
}


def words_of(task: str, source: str, seed: int, clip: str = CLIP) -> list[str]:
    """The settings of a run."""
    name = task.removesuffix(FIXED)
    others = ",".join(f"{other}-v3" for other in OTHERS.split() if other != name)
    text = f"{SHARED} {TRUE if source == 'true' else LEARNED} {SOURCES[source].format(others=others, clip=clip)}"
    start = ["--env.fixed_start", "true"] if task.endswith(FIXED) else []
    where = ["--env.task", f"{name}-v3", *start]
    episodes = EPISODES[task][source != "true"]
    return [*text.split(), *where, "--learn.episodes", str(episodes), "--seed", str(seed)]


def train(task: str, source: str, seed: int, runs: Path, clip: str = CLIP) -> Path:
    """One run, unless it was finished before; its folder."""
    name = f"{task}-{source}-{seed}"
    folder = runs / "pref-sac" / name
    if not (folder / "result.json").exists():
        line = [sys.executable, "-m", "lookact", "train", "pref-sac", *words_of(task, source, seed, clip)]
        single = {**os.environ, "OMP_NUM_THREADS": "1", "MKL_NUM_THREADS": "1"}
        subprocess.run([*line, "--out", str(runs), "--name", name, "--auto-resume"], check=True, env=single)
    return folder


def row_of(folder: Path, task: str, source: str, seed: int) -> dict[str, Any]:
    """What a finished run came to."""
    result = json.loads((folder / "result.json").read_text())
    row = {"task": task, "source": source, "seed": seed, "tuning": seed in TUNING, "seconds": result.get("seconds")}
    for who in ("agent", "random"):
        report = result[who]
        row[who] = {name: report[name] for name in ("success_rate", "episode_return", "episodes")}
        row[who]["ci"] = report["ci"]
    if "judge" in result:
        row["judge"] = json.loads((folder / "judge" / "report.json").read_text())
    if (folder / "judge").exists():
        row["labels"] = label_quality(folder)
    return row


def label_quality(folder: Path) -> dict[str, float]:
    """Of what the judge decided while the agent learned, the share that was right; and the share left undecided."""
    first, second, label = np.loadtxt(
        folder / "vlm_query_log.csv", delimiter=",", skiprows=1, usecols=(0, 1, 2), unpack=True
    )
    decided = (label >= 0) & (first != second)
    right = float(((second > first) == (label == 1))[decided].mean()) if decided.any() else float("nan")
    return {"accuracy": right, "no_preference_rate": float((label < 0).mean()), "pairs": len(label)}


def table_of(rows: list[dict[str, Any]]) -> str:
    """Markdown: a line for each task and reward source, seeds together; those that settings were chosen on apart."""
    lines = [
        "| task | reward from | seeds | success of each | on all starts [95%] | return of each | labels right |",
        "|---|---|---|---|---|---|---|",
    ]
    for task, (source, who), tuning in itertools.product(EPISODES, WHO.items(), (False, True)):
        found = [row for row in rows if (row["task"], row["source"], row["tuning"]) == (task, source, tuning)]
        if found:
            lines.append(f"| {task} | {who} | {' | '.join(cells_of(found))} |")
    return "\n".join(lines) + "\n"


def cells_of(found: list[dict[str, Any]]) -> list[str]:
    """Seeds of one task and source, with what each and all of them came to."""
    episodes = sum(row["agent"]["episodes"] for row in found)
    wins = round(sum(row["agent"]["success_rate"] * row["agent"]["episodes"] for row in found))
    low, high = wilson_interval(wins, episodes)
    return [
        ", ".join(str(row["seed"]) for row in found) + (" (tuning)" if found[0]["tuning"] else ""),
        ", ".join(f"{row['agent']['success_rate']:.0%}" for row in found),
        f"{wins / episodes:.0%} [{low:.0%}, {high:.0%}]",
        ", ".join(f"{row['agent']['episode_return']:.0f}" for row in found),
        ", ".join(f"{row['labels']['accuracy']:.0%}" for row in found if "labels" in row),
    ]


def measure_variants(folder: Path, task: str, source: str, seed: int, clip: str | None = None) -> dict[str, Any]:
    """A finished run on held-out pairs: the reward that its agent learned, the embedded judge that it learned from,
    asked in each way that it was trained for, and CLIP's similarity where its weights are given."""
    env = replace(PRESETS["arm"].env, task=f"{task.removesuffix(FIXED)}-v3")
    held_out = render_labelled_images(env, HELD_OUT, seed=derive(seed, "held-out pictures"))
    goal, judge = goal_in_words(env), folder / "judge" / "model"
    learned = learned_reward(folder, held_out, "frame" if source == "frames" else "state")
    found = {"learned reward": measure(learned, held_out, "", seed)}
    if judge.exists():
        for variant in (*COMPARING, SCORING.get(source, "rating")):
            with TemporaryDirectory() as replies:
                service = JudgeService(ClientConfig(variant=variant), checkpoint=judge, folder=Path(replies))
                try:
                    found[variant] = measure(service, held_out, goal, seed)
                finally:
                    service.close()
    if clip is not None:
        found["similarity"] = measure(SimilarityJudge(clip), held_out, goal, seed)
    return found


def measure(judge: Judge, data: LabelledImages, goal: str, seed: int) -> dict[str, Any]:
    """Shares of held-out pairs on which a judge is right; the same pairs for each."""
    with TemporaryDirectory() as replies:
        report = measure_judge(judge, data, goal, pairs=HELD_OUT, seed=seed, folder=Path(replies))
    return {"clear": report["clear"], "by_difficulty": report["by_difficulty"]}


def learned_reward(folder: Path, data: LabelledImages, inputs: Literal["state", "frame"]) -> RewardJudge:
    """The last reward ensemble of a run as a judge of these images: the higher of two is better."""
    checkpoint, settings = latest_checkpoint(folder), PRESETS["arm"].reward_model
    assert checkpoint is not None
    features = data.states if inputs == "state" else data.images
    model = make_reward_model(
        features.shape[1:], members=settings.ensemble_size, hidden=settings.hidden, generator=torch.Generator()
    )
    read_weights(model, checkpoint / "reward")()
    rewards = LearnedReward(model, inputs).of(features)
    return RewardJudge(dict(zip(map(np.ndarray.tobytes, data.images), rewards.tolist())))


@dataclass(frozen=True)
class RewardJudge:
    """A judge that knows a reward of each image by its bytes."""

    rewards: dict[bytes, float]

    def compare(self, pairs: Sequence[tuple[Image, Image]], goal: str) -> list[Preference]:
        known = [(one, two, self.rewards[one.tobytes()], self.rewards[two.tobytes()]) for one, two in pairs]
        return [Preference(one, two, int(b > a) if a != b else -1) for one, two, a, b in known]


def variants_table(found: dict[str, Any]) -> str:
    """Markdown: share of the decided pairs that each way of judging got right, by difference in progress."""
    bins = " | ".join(f"{low:.0%} to {high:.0%}" for low, high in itertools.pairwise(BINS))
    lines = [f"| run | judged by | {bins} | clear [95%] | undecided of clear |", "|---" * (len(BINS) + 3) + "|"]
    for run, ways in found.items():
        for way, report in ways.items():
            parts = [
                "none decided" if part["accuracy"] is None else f"{part['accuracy']:.0%} of {part['pairs']}"
                for part in report["by_difficulty"]
            ]
            clear, (low, high) = report["clear"], report["clear"]["ci"]
            total = "none decided" if clear["accuracy"] is None else f"{clear['accuracy']:.0%} [{low:.0%}, {high:.0%}]"
            lines.append(f"| {run} | {way} | {' | '.join(parts)} | {total} | {clear['no_preference_rate']:.0%} |")
    return "\n".join(lines) + "\n"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--variants", action="store_true", help="judge held-out pairs by what finished runs learned")
    parser.add_argument("--tasks", nargs="+", choices=tuple(EPISODES), default=["drawer-open"])
    parser.add_argument("--sources", nargs="+", choices=tuple(SOURCES), default=list(SOURCES)[:-1])
    parser.add_argument("--seeds", nargs="+", type=int, default=[4, 5, 6], help="settings are chosen on 100 to 109")
    parser.add_argument("--runs", type=Path, default=Path("runs/preferences"))
    parser.add_argument("--clip", metavar="SOURCE", help=f"CLIP's weights, such as {CLIP}, for similarity")
    given = parser.parse_args()
    chosen = list(itertools.product(given.tasks, given.sources, given.seeds))
    if given.variants:
        write_variants(chosen, given.runs, given.clip)
        return
    for task, source, seed in chosen:
        train(task, source, seed, given.runs, given.clip or CLIP)
        write_record(given.runs)


def write_variants(chosen: Sequence[tuple[str, str, int]], runs: Path, clip: str | None) -> None:
    """The table of held-out pairs, of those among the chosen runs that are finished and learned a reward."""
    found: dict[str, Any] = {}
    for task, source, seed in chosen:
        name = f"{task}-{source}-{seed}"
        folder = runs / "pref-sac" / name
        if source != "true" and (folder / "result.json").exists():
            found[name] = measure_variants(folder, task, source, seed, clip)
            (runs / "variants.json").write_text(json.dumps(found, indent=1) + "\n")
            (runs / "variants.md").write_text(variants_table(found))


def write_record(runs: Path) -> None:
    """The rows and the table of all finished runs."""
    rows = [
        row_of(folder, task, source, seed)
        for task in EPISODES
        for source in SOURCES
        for seed in SEEDS
        if (folder := runs / "pref-sac" / f"{task}-{source}-{seed}") and (folder / "result.json").exists()
    ]
    (runs / "tasks.json").write_text(json.dumps(rows, indent=1) + "\n")
    (runs / "tasks.md").write_text(table_of(rows))


if __name__ == "__main__":
    main()
