"""What world-duel measures: how well the next frames are foreseen, and how far the explorer gets around."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from lookact.data.sequences import Recording, Sequences
from lookact.envs.testbeds.noisy_tv import noise_seen
from lookact.models.world_model.explorer import Explorer
from lookact.models.world_model.model import WorldModel, mean_logits
from lookact.models.world_model.vq import psnr
from lookact.recipes.world_duel.config import Config
from lookact.recipes.world_duel.data import Tables, coverage, plan_episodes, tokenise
from lookact.recipes.world_duel.student import CHUNK, explore, look_through
from lookact.recipes.world_duel.update import Film, memory_before, remember_all, scenes, to_film, token_errors
from lookact.rollout.recording import record
from lookact.seeding import numpy_rng
from lookact.training.evaluation import bootstrap_interval

Numbers = dict[str, NDArray[np.float64]]
"""Name to one number an episode."""


def measure_world(
    world: WorldModel, recordings: Sequence[Recording], sequences: Sequences, cfg: Config
) -> dict[str, Any]:
    """Held-out episodes foreseen one and k steps ahead, with memory and without, beside what copying would come to."""
    film = to_film(world, sequences)
    frames = torch.from_numpy(np.concatenate([one.wrist for one in recordings]))
    steps, starts = cfg.evaluation.ahead, cfg.evaluation.starts
    near = partial(foreseen, world, film, frames, stride=cfg.model.stride)
    far = partial(foreseen_ahead, world, film, frames, stride=cfg.model.stride, steps=steps, starts=starts)
    report = summary(near() | copied(world, film, frames))
    report["ahead"] = {"steps": steps} | summary(far())
    if world.spec.memory:
        report["no_memory"] = summary(near(blank=True)) | {"ahead": summary(far(blank=True))}
    return report


@torch.no_grad()
def foreseen(world: WorldModel, film: Film, frames: Tensor, *, stride: int, blank: bool = False) -> Numbers:
    """One step ahead: nats a token with coarser scales known, and accuracy and PSNR of what is imagined unaided."""
    remembered = remember_all(world, film, blank=blank)
    truth = film.ids[:, 1:]
    errors = token_errors(mean_of(look_through(world, film, remembered, stride=stride)), truth)
    imagined = imagine_all(world, film, remembered, stride=stride)
    return {
        "token_accuracy": by_row((imagined == truth).float(), film),
        "psnr": by_row(frame_psnr(world, imagined, frames[:, 1:]), film),
        "error": by_row(errors, film),
    }


def imagine_all(world: WorldModel, film: Film, remembered: Tensor, *, stride: int) -> Tensor:
    """The tokens (b, t, tokens) imagined for every next frame, knowing nothing of it."""
    parts = []
    for times in torch.split(torch.arange(film.steps), CHUNK):
        scene, action = scenes(world, film, times, remembered[:, times], stride=stride)
        parts.append(world.imagine(scene, action).reshape(len(film.frames), len(times), -1))
    return torch.cat(parts, dim=1)


@torch.no_grad()
def foreseen_ahead(
    world: WorldModel, film: Film, frames: Tensor, *, stride: int, steps: int, starts: int, blank: bool = False
) -> Numbers:
    """`steps` ahead from `starts` places of each episode, feeding on its own frames; the arm's state is held still."""
    last = film.steps - steps
    begins = sorted({round(place) for place in np.linspace(min(world.spec.history, last), last, starts)})
    found: dict[str, list[Tensor]] = {"token_accuracy": [], "psnr": [], "copy_accuracy": [], "copy_psnr": []}
    for begin in begins:
        ids = imagine_ahead(world, film, begin, steps=steps, stride=stride, blank=blank)
        truth, shown = film.ids[:, begin + steps], frames[:, begin + steps]
        found["token_accuracy"].append((ids == truth).float().mean(dim=1))
        found["psnr"].append(frame_psnr(world, ids[:, None], shown[:, None])[:, 0])
        found["copy_accuracy"].append((film.ids[:, begin] == truth).float().mean(dim=1))
        found["copy_psnr"].append(psnr(frames[:, begin], shown))
    return {name: torch.stack(values).mean(dim=0).double().cpu().numpy() for name, values in found.items()}


def imagine_ahead(world: WorldModel, film: Film, begin: int, *, steps: int, stride: int, blank: bool = False) -> Tensor:
    """The tokens (b, tokens) imagined `steps` after frame `begin`, the actions known and the frames after it not."""
    seen, state = film.frames.clone(), film.state.clone()
    state[:, begin + 1 :] = state[:, begin : begin + 1]
    dream = replace(film, frames=seen, state=state)
    empty = world.memory.initial(len(seen))
    carry = empty if blank else memory_before(world, film, begin)
    ids = film.ids[:, begin]
    for time in range(begin, begin + steps):
        now = torch.tensor([time])
        remembered, after = world.remember(seen[:, now], film.before[:, now], state[:, now], carry)
        scene, action = scenes(world, dream, now, remembered, stride=stride)
        ids = world.imagine(scene, action)
        seen[:, time + 1] = world.features(ids)
        carry = empty if blank else after
    return ids


def copied(world: WorldModel, film: Film, frames: Tensor) -> Numbers:
    """What comes of copying the present frame, of each place's commonest token, and of the true tokens at best."""
    truth, present = film.ids[:, 1:], film.ids[:, :-1]
    common = truth.flatten(0, 1).mode(dim=0).values
    still = torch.stack([psnr(now, then) for now, then in zip(frames[:, :-1], frames[:, 1:])])
    return {
        "copy_accuracy": by_row((present == truth).float(), film),
        "frequent_accuracy": by_row((common == truth).float(), film),
        "copy_psnr": by_row(still, film),
        "tokens_psnr": by_row(frame_psnr(world, truth, frames[:, 1:]), film),
    }


def error_on(world: WorldModel, sequences: Sequences, *, stride: int) -> NDArray[np.float64]:
    """Nats a token (b,) by which the next wrist frames surprise the world model, without a head camera."""
    film = to_film(world, sequences, torch.zeros(len(sequences), dtype=torch.bool))
    logits = look_through(world, film, remember_all(world, film), stride=stride)
    return by_row(token_errors(mean_of(logits), film.ids[:, 1:]), film)


@torch.no_grad()
def picture_error_on(world: WorldModel, sequences: Sequences, *, stride: int) -> NDArray[np.float64]:
    """Mean squared error (b,) of the pictures imagined, in grey levels of 255, without a head camera.

    The true picture is the one that its own tokens give: what tokens can't tell is not held against the world model.
    """
    film = to_film(world, sequences, torch.zeros(len(sequences), dtype=torch.bool))
    imagined = imagine_all(world, film, remember_all(world, film), stride=stride)
    pairs = zip(imagined, film.ids[:, 1:])
    rows = [(world.vq.decode(one).float() - world.vq.decode(true).float()).square() for one, true in pairs]
    return by_row(torch.stack(rows), film)


def measure_explorer(
    explorer: Explorer, world: WorldModel, worlds: Tables, random: Sequences, cfg: Config
) -> dict[str, Any]:
    """The explorer beside uniformly random actions and beside random ones of its own sizes; by the wrist alone."""
    found = explore(explorer, worlds, cfg, "explore", 0).sequences
    plan = plan_episodes(cfg.seed, "explore", 0, cfg.world, together=True)
    matched = tokenise(world, [record(worlds, scrambled(found, cfg), plan)])
    rows = min(len(found), len(random))
    compared = {"student": found[:rows], "random": random[:rows], "matched": matched[:rows]}
    numbers: Numbers = {}
    for name, one in compared.items():
        numbers[f"{name}_error"] = error_on(world, one, stride=cfg.model.stride)
        numbers[f"{name}_picture_error"] = picture_error_on(world, one, stride=cfg.model.stride)
        numbers[f"{name}_coverage"] = cells_of(one, cfg)
        numbers[f"{name}_size"] = one.actions.square().mean(dim=(1, 2)).sqrt().double().numpy()
        if cfg.world.env == "noisy_tv":
            numbers[f"{name}_noise"] = noise_seen(one.state.numpy())[:, 1:].mean(axis=1)
    report = summary(numbers)
    for name in ("random", "matched"):
        for error in ("error", "picture_error"):
            report[f"{name}_{error}_ratio"] = report[f"student_{error}"] / max(1e-9, report[f"{name}_{error}"])
    return report | {f"{name}_cells": coverage(one.state.numpy(), cfg.world) for name, one in compared.items()}


def scrambled(sequences: Sequences, cfg: Config) -> NDArray[np.float32]:
    """All actions of all rows (b, t, a) in an order and with signs that mean nothing: their sizes alone are kept."""
    actions, rng = sequences.actions.numpy(), numpy_rng(cfg.seed, "scrambled")
    mixed = rng.permutation(actions.reshape(-1, actions.shape[2])).reshape(actions.shape)
    result: NDArray[np.float32] = mixed * rng.choice(np.array([-1.0, 1.0], np.float32), actions.shape)
    return result


def cells_of(sequences: Sequences, cfg: Config) -> NDArray[np.float64]:
    """How many cells each episode's tool was in (b,)."""
    return np.array([coverage(states, cfg.world) for states in sequences.state.numpy()])


def mean_of(logits: Tensor) -> Tensor:
    """The members' mean prediction (b, t, tokens, codes) of logits (members, b, t, tokens, codes)."""
    return mean_logits(logits.flatten(1, 2)).reshape(logits.shape[1:])


def frame_psnr(world: WorldModel, ids: Tensor, frames: Tensor) -> Tensor:
    """PSNR (b, t) of decoded ids (b, t, tokens) against true frames (b, t, h, w, 3)."""
    rows = [psnr(world.vq.decode(one), true.to(one.device)) for one, true in zip(ids, frames)]
    return torch.stack(rows)


def by_row(values: Tensor, film: Film) -> NDArray[np.float64]:
    """Means (b,) over the steps that count, and whatever axes follow, of values (b, t, ...)."""
    means = values.double().flatten(2).mean(dim=2) if values.dim() > 2 else values.double()
    counts = film.counts.to(means.device)
    mean = (means * counts).sum(dim=1) / counts.sum(dim=1).clamp(min=1)
    result: NDArray[np.float64] = mean.cpu().numpy()
    return result


def summary(
    numbers: Numbers, interval: Callable[[NDArray[np.float64]], tuple[float, float]] = bootstrap_interval
) -> dict[str, Any]:
    """Means over episodes, their 95% intervals under `ci`."""
    means: dict[str, Any] = {name: float(values.mean()) for name, values in numbers.items()}
    return means | {"ci": {name: list(interval(values)) for name, values in numbers.items()}}
