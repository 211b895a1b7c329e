"""nav-rloo: a vision-language model learns to walk to things, by REINFORCE with a leave-one-out baseline.

Imitate a navigator that looks around before it goes; then act in groups from equal starts, compare each episode
with the others of its group (arXiv:2402.14740), and push the tokens of its actions up or down.
"""

from __future__ import annotations

import math
import time
from functools import partial
from typing import Any

from lookact.algorithms.rollouts import staleness_of, stop_on_errors
from lookact.algorithms.sft import micro_batches
from lookact.algorithms.vlm import open_reference
from lookact.models.vlm.loading import save_readers
from lookact.models.vlm.reference import CopyReference
from lookact.ops.kl import AdaptiveKL
from lookact.recipes.rloo.config import Config
from lookact.recipes.rloo.report import rollout_metrics, show_episodes
from lookact.recipes.rloo.rollouts import open_nav_rollouts
from lookact.recipes.rloo.runs import collect, evaluate, finish, open_policy, validate, warm_start
from lookact.recipes.rloo.update import credit, objective
from lookact.training.distributed import sum_gradients
from lookact.training.optim import NonFiniteGuard, accumulate, build_adamw, clip_and_step, set_learning_rate
from lookact.training.run import Run
from lookact.training.sharding import share_out

__all__ = ["collect", "evaluate", "main"]


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
    run.save_on_sigterm = not cfg.ray.staleness

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
        metrics |= validate(chat, cfg, run, step).metrics("eval") | {"time/evaluate": time.perf_counter() - learned}
        run.log(metrics, step, show="eval/success_rate")
        run.save(step, weights=weights, state=state, metrics=metrics, best=("eval/success_rate", "max"))
        show_episodes(run.tracker, episodes, step)
    return finish(chat, cfg, run, before)
