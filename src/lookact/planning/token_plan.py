"""The plan of a token recipe: its memory by phase, its seconds by the cost model, and the setting to turn first."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

from lookact.planning.architectures import chat_config
from lookact.planning.costs import Seconds, planned_work, shape_of
from lookact.planning.devices import GPUS, Layout, predict
from lookact.planning.report import Phase, Plan, phases_of
from lookact.planning.token_memory import TokenStep, token_memory

NF4_BYTES = 0.5625
"""Of a weight: half a byte, and a float32 scale for 64 of them."""


@dataclass(frozen=True)
class TokenRun:
    """A token recipe's run over all GPUs."""

    step: TokenStep
    """As one learner does it."""
    gpu: str
    learners: int
    samplers: int
    """GPUs of Ray workers; 0: learners sample, or an engine beside them."""
    worker_rows: int
    """Episodes side by side on a worker."""
    episodes: int
    """Of a step, over all processes."""
    expected_reply: int
    """Tokens of a usual reply, for seconds; memory is planned for the longest."""
    env_seconds: float
    epochs: int
    sft: bool
    """Whether a supervised start comes before the weights are sharded."""
    rows_setting: str
    """The setting that bounds how many episodes run side by side."""


def plan_tokens(run: TokenRun, *, title: str) -> Plan:
    """Memory and seconds of a run's step."""
    step = run.step
    stages = token_memory(step)
    if step.sharded and step.processes > 1 and run.sft:
        whole = token_memory(replace(step, sharded=False, reference="none", rows=0, eval_rows=0))
        stages |= {f"sft: {name.partition(': ')[2]}": sizes for name, sizes in whole.items() if name[:6] == "update"}
    if run.samplers:
        worker = replace(step, learns=False, rows=run.worker_rows, eval_rows=0, reference="none", critic="none")
        stages |= {f"worker: {name}": sizes for name, sizes in token_memory(worker).items() if ":" in name}
    phases = phases_of(stages)
    seconds, trained = token_seconds(run, trained=_trained(phases, step))
    device = GPUS[run.gpu]
    return Plan(
        title=title,
        gpu=f"{run.gpu} x {run.learners + run.samplers}",
        memory=device.memory,
        phases=phases,
        turn_first=turn_first(max(phases, key=lambda phase: phase.total), run),
        seconds=seconds,
        assumptions=(
            f"{step.turns} turns of {step.image_tokens} visual and {step.text_tokens} text tokens; replies of "
            f"{step.reply_tokens} tokens for memory, {run.expected_reply} for seconds",
            f"{run.learners} learners with {step.batch_rows} rows a micro-batch, {run.samplers} GPUs that only sample; "
            f"{trained / 1e6:.0f} million parameters learn",
            f"{device.mfu:.0%} of the data sheet's arithmetic, {device.bandwidth_share:.0%} of its bandwidth, "
            f"{run.env_seconds * 1e3:.0f} ms an environment step on one core",
        ),
    )


def token_seconds(run: TokenRun, *, trained: float) -> tuple[Seconds, float]:
    """Seconds of a step, and how many parameters learn."""
    step, model = run.step, run.step.model
    reply = min(run.expected_reply, step.reply_tokens)
    work = planned_work(
        episodes=run.episodes,
        turns=step.turns,
        image_tokens=step.image_tokens,
        text_tokens=step.text_tokens,
        reply_tokens=reply,
    )
    rows = run.worker_rows if run.samplers else step.rows
    waves = math.ceil(run.episodes / (max(1, rows) * (run.samplers or run.learners))) if rows else 1
    # backward: the inputs' gradients, and the weights' where they learn
    once = 2.0 + (not model.lora_rank) + model.gradient_checkpointing + (step.reference != "none")
    scored = 0.0 if step.critic == "none" else 1.0 + (step.critic == "separate")
    layout = Layout(
        trained=int(trained),
        sharded=step.sharded,
        learners=run.learners,
        samplers=run.samplers,
        token_budget=step.token_budget,
        waves=waves,
        passes=run.epochs * once * (2.0 if step.critic == "separate" else 1.0) + scored,
        weight_bytes=NF4_BYTES if model.quantise else 2.0 if model.dtype == "bfloat16" else 4.0,
    )
    shape = shape_of(step.config)
    return predict(shape, layout, GPUS[run.gpu], work, env_seconds=run.env_seconds), trained


def _trained(phases: tuple[Phase, ...], step: TokenStep) -> float:
    """Parameters that learn, over all shards, by Adam's two float32 or bfloat16 moments of each."""
    moments = next((phase.sizes.get("optimizer", 0.0) for phase in phases if phase.name == "update"), 0.0)
    width = 4 if step.model.lora_rank or step.model.dtype == "float32" else 2
    return moments / (2 * width) * (step.processes if step.sharded and not step.model.lora_rank else 1)


def turn_first(peak: Phase, run: TokenRun) -> str:
    """The setting that takes most from the peak for the least loss of speed."""
    step, sizes = run.step, peak.sizes
    model, kind = step.model, max(peak.sizes, key=lambda kind: peak.sizes[kind])
    passing = sum(sizes.get(name, 0.0) for name in ("activations", "logits"))
    if peak.name in ("rollout", "evaluate") and sizes.get("kv_cache", 0.0) > 0.2 * peak.total:
        rows = step.rows if peak.name == "rollout" else step.eval_rows
        name = run.rows_setting if peak.name == "rollout" else "evaluation.num_envs"
        return f"--{name} {max(1, rows // 2)}: half of the keys and values, {sizes['kv_cache'] / 2**31:.1f} GiB less"
    if peak.name in ("update", "sft") and passing > 0.2 * peak.total:
        if not model.gradient_checkpointing:
            return "--model.gradient_checkpointing true: activations of one layer at a time, for a third more compute"
        if step.batch_rows > 1:
            less = f"half of the activations, {passing / 2**31:.1f} GiB less"
            return f"--learn.token_budget {step.token_budget // 2}: {less}"
        return f"--sampling.max_context {step.sampling.max_context // 2}: a row alone fills the micro-batch"
    if kind == "engine":
        return "--vllm.kv_cache_memory: the engine takes this share of the GPU, whatever it needs"
    if not model.lora_rank:
        remedy = "--model.lora_rank 32 --model.dtype bfloat16: adapters learn, weights stay as they are"
        return remedy if step.sharded or run.learners == 1 else "--parallel.kind shard, or " + remedy[2:]
    if model.quantise is None and kind == "weights":
        return f"--model.quantise nf4: weights in 4 bits, {sizes['weights'] * 0.7 / 2**30:.1f} GiB less"
    return f"--model.source: {kind.replace('_', ' ')} make up most, and a smaller model has less of them"


def plan_server(step: TokenStep, gpu: str, *, title: str) -> Plan:
    """Memory of a server that answers `step.rows` requests together."""
    phases = phases_of({name.replace("rollout", "answer"): sizes for name, sizes in token_memory(step).items()})
    less = f"--batch {max(1, step.rows // 2)}: fewer requests together; or --quantise nf4 for the weights"
    asked = f"{step.rows} requests of {step.images_per_turn} pictures ({step.image_tokens} tokens each), "
    asked += f"{step.text_tokens} tokens of text and {step.reply_tokens} of reply"
    return Plan(title, f"{gpu} x 1", GPUS[gpu].memory, phases, less, None, (asked,))


def make_step(step: TokenStep) -> TokenStep:
    """With the configuration of the model that its settings name."""
    return replace(step, config=chat_config(step.model, image_size=step.image_size))
