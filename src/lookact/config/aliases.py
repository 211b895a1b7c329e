"""Old names of settings and metrics, kept for one release; a warning names the new one.

A row is added where a setting or a metric is renamed. Help texts, printed configs and what a run writes hold new names
alone; the command line, config files, the config of a saved run and the metrics of a saved run may hold old ones.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from lookact.errors import ConfigError

logger = logging.getLogger(__name__)

SETTINGS: dict[str, dict[str, str]] = {
    "nav-rloo": {
        "world.": "env.",
        "warm_start.look_rooms": "vision_pretraining.rooms",
        "warm_start.look_epochs": "vision_pretraining.epochs",
        "warm_start.demos": "sft.demonstrations",
        "warm_start.rows": "sft.batch_size",
        "warm_start.": "sft.",
        "learn.updates": "learn.iterations",
        "learn.units": "learn.loss_on",
        "learn.parity": "learn.max_logprob_gap",
        "learn.entropy": "learn.entropy_coef",
        "learn.clip_norm": "learn.max_grad_norm",
        "learn.warmup": "learn.lr_warmup",
        "learn.schedule": "learn.lr_schedule",
        "evaluation.rows": "evaluation.num_envs",
        "learn.blame": "learn.negative_advantage_weight",
        "ray.patience": "ray.timeout_s",
        "ray.chunk": "ray.episodes_per_task",
    },
    "vqa-ppo": {
        "evaluation.questions": "evaluation.question_file",
        "evaluation.protocol": "",
        "evaluation.frames": "",
        "world.": "env.",
        "warm_start.look_rooms": "vision_pretraining.rooms",
        "warm_start.look_epochs": "vision_pretraining.epochs",
        "warm_start.demos": "sft.demonstrations",
        "warm_start.rows": "sft.batch_size",
        "warm_start.": "sft.",
        "learn.updates": "learn.iterations",
        "learn.units": "learn.loss_on",
        "learn.parity": "learn.max_logprob_gap",
        "learn.entropy": "learn.entropy_coef",
        "learn.clip_norm": "learn.max_grad_norm",
        "learn.warmup": "learn.lr_warmup",
        "learn.schedule": "learn.lr_schedule",
        "evaluation.rows": "evaluation.num_envs",
        "learn.minibatch": "learn.minibatch_size",
        "learn.mismatch_cap": "importance_sampling.cap",
        "engine": "sampler",
        "expert.haste": "expert.guess_fraction",
        "vllm.rows": "vllm.max_num_seqs",
        "vllm.start_patience": "vllm.start_timeout_s",
        "vllm.reply_patience": "vllm.reply_timeout_s",
        "vllm.memory": "vllm.kv_cache_memory",
        "vllm.restarts": "vllm.max_restarts",
    },
    "vla-ppo": {
        "world.reward": "env.reward_mode",
        "ppo.entropy": "ppo.entropy_coef",
        "model.vision.glances": "model.vision.pool_queries",
        "model.vision.hold": "model.vision.finetune",
        "model.text.hold": "model.text.finetune",
        "model.chunk": "model.action_chunk",
        "model.spread": "model.std_schedule",
        "model.last_std": "model.final_std",
        "model.freeze": "model.freeze_encoders",
        "world.": "env.",
        "start.": "bc.",
        "start.looks": "bc.pretrain_images",
        "start.look_epochs": "bc.pretrain_epochs",
        "start.look_rows": "bc.pretrain_batch_size",
        "start.look_lr": "bc.pretrain_lr",
        "start.freeze_eyes": "bc.freeze_encoders",
        "bc.freeze_vision": "bc.freeze_encoders",
        "start.folder": "bc.dataset",
        "start.noise": "bc.action_noise",
        "start.rows": "bc.batch_size",
        "start.swap": "bc.history_shuffle_prob",
        "learn.updates": "learn.iterations",
        "learn.rows": "learn.num_envs",
        "learn.steps": "learn.rollout_steps",
        "learn.step_seconds": "learn.step_timeout_s",
        "learn.schedule": "learn.lr_schedule",
        "learn.easiest": "learn.curriculum_start_fraction",
        "learn.easy_updates": "learn.curriculum_iterations",
        "evaluation.outside": "evaluation.ood_episodes",
        "evaluation.rows": "evaluation.num_envs",
        "evaluation.films": "evaluation.videos",
    },
    "pref-sac": {
        "world.": "env.",
        "world.camera": "env.camera_name",
        "judge.asking.": "judge.client.",
        "judge.asking.patience": "judge.client.timeout_s",
        "judge.asking.lost": "judge.client.on_timeout",
        "judge.teaching.": "judge.sft.",
        "judge.teaching.pictures": "judge.sft.images",
        "judge.teaching.looks": "judge.sft.regression_epochs",
        "judge.teaching.lessons": "judge.sft.qa_pairs",
        "judge.teaching.rows": "judge.sft.batch_size",
        "feedback.session": "feedback.pairs_per_round",
        "feedback.segment": "feedback.segment_length",
        "model.": "reward_model.",
        "model.members": "reward_model.ensemble_size",
        "model.rows": "reward_model.batch_size",
        "model.enough": "reward_model.target_accuracy",
        "model.peak": "reward_model.reward_sharpness",
        "learn.random": "learn.random_episodes",
        "learn.held": "learn.sticky_action_prob",
        "learn.wander": "learn.unsupervised_episodes",
        "learn.rows": "learn.batch_size",
        "learn.every": "learn.train_freq",
        "learn.updates": "learn.gradient_steps",
        "learn.target_every": "learn.target_update_interval",
        "learn.entropy": "learn.target_entropy",
        "learn.after_reset": "learn.reset_gradient_steps",
        "learn.capacity": "learn.replay_capacity",
    },
    "world-duel": {
        "world.": "env.",
        "world.env": "env.name",
        "world.rows": "env.num_envs",
        "model.members": "model.ensemble_size",
        "model.chunk_size": "model.action_chunk",
        "model.std": "",
        "tokens.": "tokenizer.",
        "tokens.codes": "tokenizer.codebook_size",
        "tokens.latent": "tokenizer.latent_dim",
        "tokens.steps": "tokenizer.gradient_steps",
        "tokens.batch": "tokenizer.batch_size",
        "teacher.steps": "teacher.iterations",
        "teacher.batch": "teacher.batch_size",
        "teacher.weight_decay": "",
        "teacher.clip_norm": "",
        "teacher.head_share": "",
        "teacher.action_weight": "teacher.action_loss_coef",
        "student.steps": "student.iterations",
        "student.ppo.entropy": "student.ppo.entropy_coef",
        "adversarial.steps": "adversarial.iterations",
        "adversarial.world_updates": "adversarial.world_model_updates",
        "adversarial.random_batch": "adversarial.random_batch_size",
        "adversarial.explorer_batch": "adversarial.explorer_batch_size",
        "adversarial.replay": "adversarial.replay_size",
        "evaluation.times": "evaluation.per_phase",
        "evaluation.ahead": "evaluation.horizon",
        "evaluation.starts": "evaluation.horizon_starts",
    },
}
"""A recipe's old dotted names to the new ones. A name that ends in a dot stands for all that begin with it, unless a
longer row does; "" stands for a setting that is gone: it is ignored, with a warning."""

METRICS: dict[str, str] = {
    "rollout/useless_share": "rollout/zero_variance_groups",
    "rollout/broken_episodes": "rollout/failed_episodes",
    "loss/world": "loss/world_model",
    "world/accuracy": "world/token_accuracy",
    "duel/rival_error": "duel/frozen_explorer_error",
    "eval/duel_rival_error": "eval/duel_frozen_explorer_error",
    "eval/duel_rival_error_before": "eval/duel_frozen_explorer_error_before",
    "eval/duel_rival_error_change": "eval/duel_frozen_explorer_error_change",
    "eval/ahead_token_accuracy": "eval/open_loop_token_accuracy",
    "eval/ahead_psnr": "eval/open_loop_psnr",
    "eval/ahead_copy_accuracy": "eval/open_loop_copy_accuracy",
    "eval/ahead_copy_psnr": "eval/open_loop_copy_psnr",
    "eval/no_memory_ahead_token_accuracy": "eval/no_memory_open_loop_token_accuracy",
    "eval/no_memory_ahead_psnr": "eval/no_memory_open_loop_psnr",
    "eval/no_memory_ahead_copy_accuracy": "eval/no_memory_open_loop_copy_accuracy",
    "eval/no_memory_ahead_copy_psnr": "eval/no_memory_open_loop_copy_psnr",
    "eval/ahead_steps": "eval/open_loop_steps",
    "eval/frequent_accuracy": "eval/majority_accuracy",
    "eval/tokens_psnr": "eval/reconstruction_psnr",
    "eval/explorer_student_picture_error": "eval/explorer_student_image_error",
    "eval/explorer_random_picture_error": "eval/explorer_random_image_error",
    "eval/explorer_matched_picture_error": "eval/explorer_matched_image_error",
    "eval/explorer_random_picture_error_ratio": "eval/explorer_random_image_error_ratio",
    "eval/explorer_matched_picture_error_ratio": "eval/explorer_matched_image_error_ratio",
    "eval/explorer_student_size": "eval/explorer_student_action_rms",
    "eval/explorer_random_size": "eval/explorer_random_action_rms",
    "eval/explorer_matched_size": "eval/explorer_matched_action_rms",
    "rollout/earned": "rollout/train_return",
    "reward/deviation": "reward/std",
    "policy/parity_gap": "policy/mismatch_gap_max",
    "policy/logprob_gap": "policy/mismatch_gap_max",
    "eval/broken": "eval/failed",
    "loss/cloning": "loss/bc",
    "seeing/centimetres": "pretraining/error_cm",
    "seeing/pointing": "pretraining/keypoint_error",
}
"""Old keys of `metrics.jsonl` to the new ones, for reading runs of earlier versions."""


def current_setting(recipe: str, name: str) -> str:
    """Today's dotted name of a recipe's setting, the same if it was never renamed; "" if the setting is gone."""
    renamed = SETTINGS.get(recipe, {})
    if name in renamed:
        return renamed[name]
    prefixes = [old for old in renamed if old.endswith(".") and f"{name}.".startswith(old)]
    if not prefixes:
        return name
    old = max(prefixes, key=len)
    return (renamed[old] + f"{name}."[len(old) :]).removesuffix(".") if renamed[old] else ""


def current_metric(key: str) -> str:
    """Today's key of a metric, the same if it was never renamed."""
    return METRICS.get(key, key)


def renew_metrics(line: Mapping[str, Any]) -> dict[str, Any]:
    """A line of `metrics.jsonl` under today's keys."""
    return {current_metric(key): value for key, value in line.items()}


def renew_words(recipe: str, words: Sequence[str]) -> list[str]:
    """Command-line words with today's setting names; words of a setting that is gone are left out."""
    renewed: list[str] = []
    gone = False
    for word in words:
        option, equals, value = word.partition("=")
        if not option.startswith("--"):
            renewed += [] if gone else [word]
            continue
        old, negated = option[2:].replace("-", "_"), ""
        new = current_setting(recipe, old)
        if new == old and old.startswith("no_"):
            old, negated = old[3:], "no-"
            new = current_setting(recipe, old)
        gone = new == ""
        if new != old:
            _warn(old, new)
        renewed += [] if gone else [word if new == old else f"--{negated}{new}{equals}{value}"]
    return renewed


def renew_mapping(recipe: str, mapping: Mapping[str, Any]) -> dict[str, Any]:
    """A nested mapping of settings, as a config file holds them, under today's names."""
    renewed: dict[str, Any] = {}
    moved = []
    for path, value in _leaves(mapping):
        old = ".".join(map(str, path))
        new = current_setting(recipe, old)
        if new == old:
            _place(renewed, path, value)
            continue
        _warn(old, new)
        moved += [(old, new, value)] if new else []
    for old, new, value in moved:
        if not _place(renewed, tuple(new.split(".")), value):
            raise ConfigError(f"{old} is the old name of {new}, and both are given: keep {new}")
    return renewed


def _leaves(mapping: Mapping[Any, Any], path: tuple[Any, ...] = ()) -> Iterator[tuple[tuple[Any, ...], Any]]:
    for key, value in mapping.items():
        if isinstance(value, Mapping) and value:
            yield from _leaves(value, (*path, key))
        else:
            yield (*path, key), value


def _place(mapping: dict[Any, Any], path: tuple[Any, ...], value: Any) -> bool:
    """Put a value at its path; whether the place was free."""
    *groups, leaf = path
    for group in groups:
        # a group that was switched off, `sft: null`, stays so
        if not isinstance(mapping.setdefault(group, {}), dict):
            return False
        mapping = mapping[group]
    if leaf in mapping:
        return False
    mapping[leaf] = value
    return True


def _warn(old: str, new: str) -> None:
    if new:
        logger.warning("%s is now called %s; the old name goes with the next release", old, new)
    else:
        logger.warning("%s is no longer a setting: ignored", old)
