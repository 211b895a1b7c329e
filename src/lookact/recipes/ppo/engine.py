"""Who samples for vqa-ppo: the learner's own model, or a vLLM engine that is kept in step with it."""

from __future__ import annotations

from collections.abc import Callable

from lookact.errors import ConfigError
from lookact.models.vlm.loading import load_readers, merged_state, write_snapshot
from lookact.models.vlm.policy import ChatVLM
from lookact.protocols import Actor
from lookact.recipes.ppo.config import Config
from lookact.rollout.samplers.hf import HFSampler
from lookact.rollout.samplers.vllm import VllmEngine, VllmSampler, engine_arguments
from lookact.rollout.samplers.vllm_server import VllmServer
from lookact.rollout.weight_sync import WeightSync
from lookact.text.tokenizers import assert_same_tokenizer
from lookact.training.distributed import world_size
from lookact.training.run import Run

Refresh = Callable[[int], dict[str, float]]
"""Makes the actor act with the learner's weights of now, under a version; returns what it measured."""


def open_engine(chat: ChatVLM, cfg: Config, run: Run) -> tuple[Actor, Refresh]:
    """Who samples, seen to mean the same as the learner by every token, template and pixel; closed with the run."""
    if cfg.engine == "hf":
        own = HFSampler(chat, cfg.sampling, system=cfg.instructions)

        def stamp(version: int) -> dict[str, float]:
            own.version = version
            return {}

        return own, stamp
    if world_size() > 1:
        raise ConfigError(f"engine {cfg.engine} serves one process, this run has {world_size()}: set --engine hf")
    start = write_snapshot(chat, merged_state(chat), run.folder / "engine" / "start")
    assert_same_tokenizer(load_readers(start), chat)
    arguments = engine_arguments(chat, cfg.sampling, cfg.vllm)
    in_process = cfg.engine == "vllm"
    engine = VllmEngine(start, arguments) if in_process else VllmServer(start, arguments, cfg.vllm)
    run.closing.callback(engine.close)
    actor = VllmSampler(chat, engine, cfg.sampling, system=cfg.instructions)
    sync = WeightSync(actor, limit=cfg.learn.parity)

    def refresh(version: int) -> dict[str, float]:
        sync.push(merged_state(chat), version)
        assert sync.report is not None
        told = sync.report
        return {"policy/sync_gap": told.gap, "policy/sync_changed": told.changed, "time/sync": told.seconds}

    return actor, refresh
