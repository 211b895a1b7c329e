"""Evaluation of world-duel: next-frame and open-loop prediction, exploration, reports, `lookact eval` and `collect`."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import PIL.Image
import torch
from numpy.typing import NDArray

from lookact.algorithms.exploration import (
    SCRIPTS,
    coverage,
    coverage_by_row,
    interaction,
    joint_coverage,
    matched_actions,
)
from lookact.algorithms.recorded_episodes import predicted_episodes, recorded_episode, select_rows
from lookact.algorithms.world_model import (
    encode_sequences,
    inputs_at,
    run_memory,
    tokenise,
)
from lookact.algorithms.world_model_evaluation import (
    baseline_numbers,
    image_error,
    next_frame_numbers,
    object_numbers,
    open_loop_numbers,
    prediction_error,
    task_numbers,
)
from lookact.data.jsonl import append_row
from lookact.data.lerobot.video import write_video
from lookact.data.sequences import Recording, TokenSequences
from lookact.envs.testbeds.noisy_tv import noise_in_view
from lookact.models.world_model.explorer import Explorer
from lookact.models.world_model.model import WorldModel
from lookact.models.world_model.vq import psnr
from lookact.recipes.world_duel.config import Config, due_after, phase_at, planned
from lookact.recipes.world_duel.data import (
    Data,
    TrainState,
    duel_errors,
    explore,
    load_object_masks,
    record_random,
    script_actions,
)
from lookact.recipes.world_duel.f1.environments import VectorEnvs, make_envs, plan_episodes
from lookact.recipes.world_duel.f1.models import cameras_of, load_model, open_model
from lookact.rollout.recording import record, record_with_infos
from lookact.seeding import derive, numpy_rng
from lookact.training.atomic_io import write_text
from lookact.training.distributed import is_main, rank, world_size
from lookact.training.evaluation import (
    EPISODES,
    KEPT,
    Numbers,
    enlarge,
    flat_metrics,
    frame_strip,
    keep_episodes,
    keep_evaluation,
    make_report,
    means_with_intervals,
    step_name,
)
from lookact.training.run import Run
from lookact.training.trackers import cut_after, finite_or_none
from lookact.types import Episode, Image

REPORTS = "reports.json"
"""The last report of each phase, in the run's folder: a resumed run ends with all of them."""
LINES = "episode_metrics.jsonl"
FPS = 10


# ---- prediction


def measure_world_model(
    world_model: WorldModel,
    recordings: Sequence[Recording],
    sequences: TokenSequences,
    cfg: Config,
    objects: NDArray[np.bool_] | None = None,
) -> dict[str, Any]:
    """Next-frame and open-loop prediction on held-out episodes, with memory and without, beside copying baselines.

    With masks (b, t + 1, h, w) of objects, also told apart where the frames show them and elsewhere.
    """
    encoded = encode_sequences(world_model, sequences)
    frames = torch.from_numpy(np.concatenate([one.wrist for one in recordings]))
    stride, horizon, starts = cfg.model.stride, cfg.evaluation.horizon, cfg.evaluation.horizon_starts
    one_step = partial(next_frame_numbers, world_model, encoded, frames, stride=stride)
    open_loop = partial(open_loop_numbers, world_model, encoded, frames, stride=stride, horizon=horizon, starts=starts)
    report = means_with_intervals(one_step() | baseline_numbers(world_model, encoded, frames))
    report["open_loop"] = {"steps": horizon} | means_with_intervals(open_loop())
    if objects is not None and objects.any():
        shown = torch.from_numpy(objects)
        report["objects"] = means_with_intervals(object_numbers(world_model, encoded, frames, shown, stride=stride))
    if world_model.spec.memory:
        no_memory = means_with_intervals(one_step(use_memory=False))
        report["no_memory"] = no_memory | {"open_loop": means_with_intervals(open_loop(use_memory=False))}
    return report


# ---- exploration


def measure_explorer(
    explorer: Explorer, world_model: WorldModel, envs: VectorEnvs, cfg: Config, scripts: Iterable[str] = SCRIPTS
) -> dict[str, Any]:
    """The explorer beside scripted actions, and its own shuffled (`matched`), in the same scenes from the same starts.

    Ratios are to random, to matched and to whichever of all scripts is best at a thing.
    """
    _, found = explore(explorer, envs, cfg, "explore", 0)
    plan = plan_episodes(cfg.seed, "explore", 0, cfg.env.scene_reuse, together=True)
    compared = {"student": found.actions.numpy()}
    compared |= {name: script_actions(name, cfg.env, cfg.seed, "explore") for name in scripts}
    compared["matched"] = matched_actions(numpy_rng(cfg.seed, "scrambled"), compared["student"])
    numbers: Numbers = {}
    cells: dict[str, float] = {}
    for name, actions in compared.items():
        recording, infos = record_with_infos(envs, actions, plan)
        one, places = tokenise(world_model, [recording]), tool_positions(recording, cfg)
        found_there = {
            "error": prediction_error(world_model, one, stride=cfg.model.stride),
            "image_error": image_error(world_model, one, stride=cfg.model.stride),
            "coverage": coverage_by_row(places),
            "action_rms": np.sqrt(np.square(actions, dtype=np.float64).mean(axis=(1, 2))),
            **interaction(infos),
        }
        if cfg.env.name == "noisy_tv":
            found_there["noise"] = noise_in_view(recording.state)[:, 1:].mean(axis=1)
        numbers |= {f"{name}_{measure}": values for measure, values in found_there.items()}
        cells[f"{name}_cells"] = coverage(places)
        if not cfg.env.is_outside:
            cells[f"{name}_joint_bins"] = joint_coverage(recording.state[..., cfg.env.joints])
    report = means_with_intervals(numbers) | cells
    measured = ("error", "image_error", "cells", "joint_bins", "contact_rate", "displacement")
    for measure in (name for name in measured if f"student_{name}" in report):
        own, others = report[f"student_{measure}"], [name for name in compared if name != "student"]
        best = max(report[f"{name}_{measure}"] for name in others)
        rivals = {"best": best} | {name: report[f"{name}_{measure}"] for name in ("random", "matched")}
        report |= {f"{name}_{measure}_ratio": own / max(1e-9, rival) for name, rival in rivals.items()}
    return report


def tool_positions(recording: Recording, cfg: Config) -> NDArray[np.float32]:
    """(b, t + 1, 3) of the tool, (b, t + 1, 2, 3) of two; of another's environment, its whole state."""
    places = recording.state[..., cfg.env.position]
    return places.reshape(*places.shape[:2], 2, 3) if cfg.env.arms == 2 else places


def duel_report(state: TrainState, data: Data, *, stride: int) -> dict[str, Any]:
    """Present errors, those when phase adversarial began, and their difference episode by episode."""
    now, initial = duel_errors(state, data, stride=stride), state.frozen_explorer.initial_errors
    before = {f"{name}_before": values for name, values in initial.items()}
    change = {f"{name}_change": values - initial[name] for name, values in now.items()}
    return means_with_intervals(now | before | change)


# ---- reports of a run


def report_on(
    state: TrainState, data: Data, cfg: Config, run: Run, phase: str, step: int
) -> tuple[dict[str, Any], dict[str, float]]:
    """What is due after a step: the phase's report, kept, and its numbers as metrics (empty without one); examples."""
    due, report = due_after(cfg, step), dict[str, Any]()
    if due.evaluation:
        measure = measure_cloning if cfg.phase == "task" else measure_phase
        report = measure(state, data, cfg, run, phase, step)
        if is_main():
            write_text(run.folder / REPORTS, json.dumps(read_reports(run) | {phase: report}, indent=2) + "\n")
    keep_examples(state, data, cfg, run, phase, step)
    return report, flat_metrics(report)


def measure_phase(state: TrainState, data: Data, cfg: Config, run: Run, phase: str, step: int) -> dict[str, Any]:
    """The world model on held-out episodes, and beside it what a phase has: an explorer, a duel."""
    reports = read_reports(run)
    known = reports.get("student") or reports.get("teacher")
    if phase == "student" and known:
        # the world model is frozen: it was measured at the end of phase teacher
        report = {name: value for name, value in known.items() if name != "explorer"}
    else:
        report = measure_world_model(state.world_model, data.recordings, data.held_out, cfg, data.objects)
    if is_exploring(cfg, phase):
        last = phase_at(cfg, step)[1] == planned(cfg)[phase]
        scripts = SCRIPTS if last else ("random",)
        report["explorer"] = measure_explorer(state.explorer, state.world_model, state.envs, cfg, scripts)
    if phase == "adversarial":
        report["duel"] = duel_report(state, data, stride=cfg.model.stride)
    return report


def is_exploring(cfg: Config, phase: str) -> bool:
    """Whether a phase has an explorer to measure: the curtain has no arm."""
    return phase in ("student", "adversarial") and cfg.env.name != "memory_curtain"


def keep_examples(state: TrainState, data: Data, cfg: Config, run: Run, phase: str, step: int) -> None:
    """What is due of a sample picture, a video and, after an evaluation, a few episodes for the viewer."""
    due, exploring, shown = due_after(cfg, step), is_exploring(cfg, phase), data.recordings[0]
    if exploring:
        shown = explorer_recording(state.explorer, state.envs, cfg, "explore", 0)
    if is_main() and (due.sample or due.video):
        how: dict[str, Any] = {"stride": cfg.model.stride, "sample": due.sample, "video": due.video}
        image = save_example(state.world_model, shown, run.folder, step, **how)
        if due.sample:
            run.tracker.image("world/prediction", image, step)
    if due.evaluation and cfg.phase != "task":
        episodes = example_episodes(state.world_model, shown, cfg, exploring=exploring)
        keep_evaluation(run.folder, step_name(step, phase), episodes)


def measure_cloning(state: TrainState, data: Data, cfg: Config, run: Run, phase: str, step: int) -> dict[str, Any]:
    """Success of the policy on held-out starts, and prediction on held-out demonstrations."""
    if phase == "clone":
        state.explorer.model.load_state_dict(state.world_model.state_dict())
    report = measure_task(state.explorer, state.envs, cfg, "validate")
    frames = torch.from_numpy(np.concatenate([one.wrist for one in data.recordings]))
    encoded = encode_sequences(state.world_model, data.held_out)
    numbers = next_frame_numbers(state.world_model, encoded, frames, stride=cfg.model.stride)
    report["world_model"] = means_with_intervals(numbers)
    return report


def measure_task(policy: Explorer, envs: VectorEnvs, cfg: Config, split: str) -> dict[str, Any]:
    """Success and length of a greedy policy's episodes, from starts that no demonstration has."""
    how: dict[str, Any] = {"steps": cfg.env.steps_per_episode, "episodes": cfg.task_phase.episodes}
    numbers = task_numbers(policy, envs, seed=derive(cfg.seed, split), **how)
    return make_report(numbers, rates=("success_rate",)).plain()


def read_reports(run: Run) -> dict[str, Any]:
    path = run.folder / REPORTS
    reports: dict[str, Any] = json.loads(path.read_text(encoding="utf-8")) if path.exists() else {}
    return reports


class EpisodeMetrics:
    """`episode_metrics.jsonl`: one line a step, cut after the step that a resumed run goes on from."""

    def __init__(self, folder: Path, done: int) -> None:
        self.path = folder / LINES
        if is_main():
            cut_after(self.path, done or None)

    def add(self, step: int, phase: str, metrics: Mapping[str, float]) -> None:
        if is_main():
            numbers = {name: finite_or_none(value) for name, value in metrics.items()}
            append_row(self.path, {"step": step, "phase": phase} | numbers)


@torch.no_grad()
def save_example(
    world_model: WorldModel,
    recording: Recording,
    folder: Path,
    number: int,
    *,
    stride: int,
    sample: bool = True,
    video: bool = True,
) -> Image:
    """`samples/episode_N.png` (truth over prediction) and `videos/episode_N.mp4` (head | true wrist | predicted)."""
    encoded = encode_sequences(world_model, tokenise(world_model, [recording])[[0]])
    inputs, action = inputs_at(
        world_model, encoded, torch.arange(encoded.steps), run_memory(world_model, encoded)[:, :-1], stride=stride
    )
    predicted: Image = world_model.vq.decode(world_model.generate(inputs, action)).cpu().numpy()
    truth, head = recording.wrist[0, 1:], recording.head[0, 1:]
    image = enlarge(np.concatenate([frame_strip(truth), frame_strip(predicted)], axis=0))
    if sample:
        (folder / "samples").mkdir(exist_ok=True)
        PIL.Image.fromarray(image).save(folder / "samples" / f"episode_{number}.png")
    if video:
        sides = np.concatenate([head, truth, predicted], axis=2)
        write_video(folder / "videos" / f"episode_{number}.mp4", (enlarge(frame) for frame in sides), fps=FPS)
    return image


def explorer_recording(explorer: Explorer, envs: VectorEnvs, cfg: Config, split: str, number: int) -> Recording:
    """An episode of the explorer with all cameras: its actions replayed."""
    _, found = explore(explorer, envs, cfg, split, number)
    plan = plan_episodes(cfg.seed, split, number, cfg.env.scene_reuse, together=True)
    return record(envs, found.actions.numpy(), plan)


# ---- episodes for the viewer


def example_episodes(
    world_model: WorldModel, recording: Recording, cfg: Config, *, exploring: bool
) -> Iterator[Episode]:
    """This process's share of a few episodes to be kept: of its own rows of the explorer, or of all recorded rows."""
    own = range(len(recording.actions)) if exploring else range(rank(), len(recording.actions), world_size())
    rows = own[: -(-KEPT // world_size())]
    numbers = [row * world_size() + rank() for row in rows] if exploring else rows
    name = "explorer" if exploring else "random"
    return predicted_episodes(world_model, select_rows(recording, rows), numbers, name, stride=cfg.model.stride)


# ---- lookact eval, lookact collect


def evaluate(
    cfg: Config, *, checkpoint: Path | None, episodes: int, greedy: bool, dummy: bool, folder: Path
) -> dict[str, Any]:
    """A checkpoint's world model and explorer on held-out episodes; `dummy`: random actions and copied frames."""
    recordings = record_random(cfg.env, folder / f"seed{cfg.seed}", seed=cfg.seed, split="test", episodes=episodes)
    if dummy:
        rows = range(min(KEPT, len(recordings[0].actions)))
        keep_episodes(folder / EPISODES, (recorded_episode(recordings[0], row, row, "random") for row in rows))
        return _random_report(cfg, recordings)
    assert checkpoint is not None
    if cfg.phase == "task":
        policy, envs = open_explorer(cfg, checkpoint), make_envs(cfg.env, cfg.task_phase.task_name)
        report = measure_task(policy, envs, replace(cfg, task_phase=replace(cfg.task_phase, episodes=episodes)), "test")
        envs.close()
        return report
    world_model = open_model(cfg, checkpoint)
    load_model(world_model, checkpoint)
    held_out = tokenise(world_model, recordings)
    objects = load_object_masks(cfg.env, recordings, folder / f"seed{cfg.seed}", seed=cfg.seed, split="test")
    report = measure_world_model(world_model, recordings, held_out, cfg, objects)
    save_example(world_model, recordings[0], folder, 0, stride=cfg.model.stride)
    shown, exploring = recordings[0], (checkpoint / "student").is_dir() and cfg.env.name != "memory_curtain"
    if exploring:
        explorer, envs = open_explorer(cfg, checkpoint), make_envs(cfg.env)
        report["explorer"] = measure_explorer(explorer, world_model, envs, cfg)
        shown = explorer_recording(explorer, envs, cfg, "explore", 0)
        envs.close()
        report["coverage"] = report["explorer"]["student_coverage"]
        report["ci"]["coverage"] = report["explorer"]["ci"]["student_coverage"]
    else:
        random = _random_coverage(cfg, recordings)
        report["coverage"] = random["coverage"]
        report["ci"] |= random["ci"]
    keep_episodes(folder / EPISODES, example_episodes(world_model, shown, cfg, exploring=exploring))
    return report | {"episodes": len(held_out)}


def collect(cfg: Config, *, checkpoint: Path | None, episodes: int, out: Path) -> dict[str, Any]:
    """Recordings of random actions, or of a checkpoint's explorer, in `out`; what is there already is kept."""
    kept = len(list(out.glob("*.npz"))) * cfg.env.num_envs
    if checkpoint is None:
        recordings = record_random(cfg.env, out, seed=cfg.seed, split="collect", episodes=episodes)
    else:
        explorer, envs, recordings = open_explorer(cfg, checkpoint), make_envs(cfg.env), []
        for number in range(-(-episodes // cfg.env.num_envs)):
            recordings.append(explorer_recording(explorer, envs, cfg, "collect", number))
            recordings[-1].save(out / f"explorer-{number:04d}.npz")
        envs.close()
    rows = sum(len(one.actions) for one in recordings)
    return {"episodes": rows, "kept": kept, "collected": max(0, rows - kept)}


def open_explorer(cfg: Config, checkpoint: Path) -> Explorer:
    """The explorer of a checkpoint."""
    explorer = Explorer(open_model(cfg, checkpoint), stride=cfg.model.stride, cameras=cameras_of(cfg))
    load_model(explorer.model, checkpoint / "student")
    return explorer


def _random_report(cfg: Config, recordings: list[Recording]) -> dict[str, Any]:
    """Uniformly random tokens, the present frame copied, and random actions."""
    frames = torch.from_numpy(np.concatenate([one.wrist for one in recordings]))
    copied = np.array([float(psnr(one[:-1], one[1:]).mean()) for one in frames])
    chance = np.full(len(copied), 1.0 / cfg.tokenizer.codebook_size)
    report = means_with_intervals({"token_accuracy": chance, "psnr": copied})
    random = _random_coverage(cfg, recordings)
    report["ci"] |= random.pop("ci")
    return report | random | {"episodes": len(copied)}


def _random_coverage(cfg: Config, recordings: list[Recording]) -> dict[str, Any]:
    if cfg.env.name == "memory_curtain":
        # it has no arm
        return {"coverage": 0.0, "ci": {}}
    return means_with_intervals(
        {"coverage": coverage_by_row(np.concatenate([tool_positions(one, cfg) for one in recordings]))}
    )
