"""nav-rloo: a vision-language model learns to walk to things, by REINFORCE with a leave-one-out baseline.

Imitate a navigator that looks around before it goes; then act in groups from equal starts, compare each episode
with the others of its group (arXiv:2402.14740), and push the tokens of its actions up or down.
"""

from __future__ import annotations

import math
import time
from dataclasses import dataclass
from functools import partial
from typing import Any, Literal

from lookact.models.loading import save_readers
from lookact.models.reference import CopyReference
from lookact.ops.kl import AdaptiveKL
from lookact.recipes.chat_model import QWEN3_VL_8B, Model, open_reference
from lookact.recipes.chat_start import WarmStart
from lookact.recipes.nav_learn import credit, objective
from lookact.recipes.nav_report import rollout_metrics, show_episodes
from lookact.recipes.nav_rollouts import open_nav_rollouts
from lookact.recipes.nav_runs import collect, evaluate, finish, open_policy, report_on, warm_start
from lookact.recipes.nav_world import INSTRUCTIONS, World
from lookact.recipes.rollouts import RaySettings, staleness_of, stop_on_errors
from lookact.rollout.hf_actor import Sampling
from lookact.train.config import setting
from lookact.train.distributed import sum_gradients
from lookact.train.optim import NonFiniteGuard, accumulate, build_adamw, clip_and_step, set_learning_rate
from lookact.train.run import Run
from lookact.train.sharding import Parallel, share_out
from lookact.train.supervised import micro_batches

__all__ = ["PRESETS", "Config", "collect", "evaluate", "main"]


@dataclass(frozen=True)
class Learn:
    """REINFORCE with a leave-one-out baseline."""

    updates: int = setting(100, help="learning steps", least=0)
    groups: int = setting(8, help="starts a step", least=1)
    group_size: int = setting(8, help="episodes from each start; one alone has no baseline", least=2)
    lr: float = setting(2e-4, help="peak learning rate", above=0)
    adam_eps: float = setting(1e-5, help="of Adam; small ones blow up the noise on words that are never said", above=0)
    warmup: int = setting(5, help="steps until the peak", least=0)
    schedule: Literal["constant", "linear", "cosine"] = setting("linear", help="how the rate falls after the peak")
    clip_norm: float = setting(1.0, help="largest gradient norm", above=0)
    credit: Literal["episode", "turn"] = setting(
        "episode", help="compare whole returns, or what each turn was still to earn"
    )
    gamma: float = setting(1.0, help="what a reward one turn later counts, with credit by turn", least=0, most=1)
    epochs: int = setting(1, help="passes over each step's episodes; the first is plain REINFORCE", least=1)
    clip: float = setting(0.2, help="how far later passes may move a token's probability", above=0)
    units: Literal["action", "reply"] = setting("action", help="tokens that learn: the JSON action's, or all sampled")
    scale_advantages: bool = setting(True, help="divide advantages by their deviation over the batch")
    blame: float = setting(
        1.0, help="weight of negative advantages; below 1 the policy learns more from what worked", least=0, most=1
    )
    entropy: float = setting(0.0, help="entropy bonus", least=0)
    parity: float = setting(1e-4, help="nats by which sampling and scoring may differ before the run stops", above=0)
    token_budget: int = setting(8192, help="padded tokens a micro-batch", least=64)


@dataclass(frozen=True)
class KL:
    """Staying close to where RL began."""

    reference: Literal["none", "frozen", "ema"] = setting("none", help="what to stay close to")
    decay: float = setting(0.99, help="of the ema reference", above=0, below=1)
    estimator: Literal["k1", "k2", "k3"] = setting("k3", help="k2 or k3; the gradient of k1 is only noise")
    coef: float = setting(0.01, help="weight in the loss", least=0)
    target: float | None = setting(None, help="nats a token to steer the weight to; none keeps it fixed", above=0)
    horizon: int = setting(10_000, help="episodes over which the weight adapts", least=1)


@dataclass(frozen=True)
class Evaluation:
    """On rooms that training never shows."""

    every: int = setting(20, help="learning steps between evaluations, each followed by a checkpoint", least=1)
    episodes: int = setting(64, help="starts of each evaluation while training", least=1)
    final_episodes: int = setting(256, help="starts of the evaluations before and after RL; 0 leaves them out", least=0)
    rows: int = setting(64, help="episodes side by side", least=1)


@dataclass(frozen=True)
class Config:
    seed: int = setting(0, help="seeds everything")
    instructions: str = setting("", help="system prompt; a model that was never shown the task needs one")
    model: Model = Model()
    world: World = World()
    sampling: Sampling = Sampling()
    warm_start: WarmStart = WarmStart()
    learn: Learn = Learn()
    kl: KL = KL()
    evaluation: Evaluation = Evaluation()
    parallel: Parallel = Parallel()
    ray: RaySettings = RaySettings()
    max_error_rate: float = setting(0.2, help="share of failed episodes in a step that stops the run", least=0, most=1)


EASY_ROOMS = World(
    objects=(2, 3),
    classes=("bed", "sofa", "refrigerator", "bathtub", "chair", "tv_monitor", "stove", "shelf"),
    side=(5.0, 6.5),
    start_distance=(2.25, 5.0),
    questions=("Find the {label}.",),
    progress_weight=1.0,
)
SHORT_REPLIES = Sampling(max_tokens=12, min_action_tokens=3, max_action_tokens=12)
PRESETS = {
    "debug": Config(
        world=EASY_ROOMS,
        sampling=SHORT_REPLIES,
        warm_start=WarmStart(look_rooms=8, look_epochs=1, demos=16, epochs=1),
        learn=Learn(updates=2, groups=2, group_size=4),
        evaluation=Evaluation(every=1, episodes=4, final_episodes=8),
    ),
    "small": Config(
        world=EASY_ROOMS,
        sampling=SHORT_REPLIES,
        warm_start=WarmStart(look_rooms=2000, look_epochs=4, demos=2000, epochs=3),
        learn=Learn(updates=130, groups=12, group_size=12, credit="turn", gamma=0.5, units="reply", blame=0.5),
        evaluation=Evaluation(every=20, final_episodes=384),
    ),
    "full": Config(
        model=QWEN3_VL_8B,
        world=World(image_size=448),
        instructions=INSTRUCTIONS,
        sampling=Sampling(max_tokens=256),
        warm_start=WarmStart(demos=2000, epochs=1, lr=1e-5),
        learn=Learn(updates=500, groups=16, group_size=8, lr=1e-6, parity=0.25, token_budget=32_768),
        kl=KL(reference="frozen", coef=0.01, target=0.02),
    ),
}


def main(cfg: Config, run: Run) -> dict[str, Any]:
    chat = open_policy(cfg, run.folder / "model")
    before = warm_start(chat, cfg, run)
    reference = open_reference(chat, cfg.kl.reference)
    for policy in (chat, reference.chat) if isinstance(reference, CopyReference) else (chat,):
        share_out(policy, cfg.parallel)
    optimizer, guard = build_adamw({"policy": chat}, lr=cfg.learn.lr, eps=cfg.learn.adam_eps), NonFiniteGuard()
    coef = AdaptiveKL(cfg.kl.coef, cfg.kl.target or 1.0, cfg.kl.horizon)
    rollouts = run.closing.enter_context(open_nav_rollouts(chat, cfg, run.folder / "model"))
    weights = {"model": chat.model, "readers": partial(save_readers, chat)}
    state = {"optimizer": optimizer, "guard": guard, "kl": coef, "reference": reference}
    run.restore(weights=weights, state=state)

    for step in run.steps(cfg.learn.updates, "reinforcing"):
        # look and act
        saved_after = step % cfg.evaluation.every == 0 or step == cfg.learn.updates
        began = time.perf_counter()
        # nobody acts ahead over a checkpoint: a resumed run could not act with the weights before it
        episodes = rollouts.act(step, ahead=not saved_after)
        acted = time.perf_counter()
        lag = staleness_of(episodes, step)
        metrics = rollout_metrics(episodes) | {"rollout/staleness": float(lag)}
        stop_on_errors(episodes, metrics["rollout/error_rate"], cfg.max_error_rate)

        # credit
        segments = credit(episodes, cfg.learn, metrics)

        # learn
        chat.train()
        metrics |= set_learning_rate(
            optimizer, step, warmup=cfg.learn.warmup, total=cfg.learn.updates, schedule=cfg.learn.schedule
        )
        batches = micro_batches(chat, segments, cfg.learn.token_budget)
        for epoch in range(cfg.learn.epochs):
            # of older weights the probabilities differ, and rightly so: the loss weighs them
            loss_fn = objective(chat, reference, coef.coef, cfg, first=epoch == 0 and not lag)
            loss, parts = accumulate(batches, loss_fn, lambda batch: batch.mask.sum(), policy=chat)
            sum_gradients(chat.parameters())
            parts |= clip_and_step(optimizer, chat.parameters(), max_norm=cfg.learn.clip_norm, guard=guard, loss=loss)
            # the first pass speaks of the policy that acted
            metrics = parts | metrics if epoch else metrics | parts
        if isinstance(reference, CopyReference) and cfg.kl.reference == "ema":
            reference.update(chat, cfg.kl.decay)
        if cfg.kl.target is not None and math.isfinite(parts.get("policy/kl", math.nan)):
            metrics["policy/kl_coef"] = coef.update(parts["policy/kl"], cfg.learn.groups * cfg.learn.group_size)
        learned = time.perf_counter()
        metrics |= {"loss/total": loss, "time/rollout": acted - began, "time/learn": learned - acted}

        # report
        if not saved_after:
            run.log(metrics, step, show="rollout/success_rate")
            continue
        report, _ = report_on(chat, cfg, split="validate", episodes=cfg.evaluation.episodes, greedy=False)
        metrics |= report.metrics("eval") | {"time/evaluate": time.perf_counter() - learned}
        run.log(metrics, step, show="eval/success_rate")
        run.save(step, weights=weights, state=state, metrics=metrics, best=("eval/success_rate", "max"))
        show_episodes(run.tracker, episodes, step)
    return finish(chat, cfg, before)
