"""Planned memory of a learning step beside what the allocator of a real one counts, on this machine's CPU.

`python -m benchmarks.plan_memory --out benchmarks/plan` writes the record. Measured is the highest sum of all
allocations less all frees that torch's profiler sees, from before the model is built to after its second step.
"""

from __future__ import annotations

import argparse
import gc
import json
import os
import resource
import subprocess
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from torch.profiler import ProfilerActivity, profile
from transformers import Qwen3VLConfig, Qwen3VLForConditionalGeneration

from lookact.algorithms.vlm import lora_of
from lookact.algorithms.vlm_settings import Model
from lookact.data.packing import collate
from lookact.models.vlm.families.qwen import tiny_images
from lookact.models.vlm.loading import add_lora
from lookact.models.vlm.policy import ChatVLM
from lookact.models.vlm.reference import open_reference
from lookact.models.vlm.tiny import TinySpec
from lookact.planning.architectures import Vocabulary
from lookact.planning.report import table
from lookact.planning.token_memory import TokenStep, micro_segments, token_memory
from lookact.rollout.samplers.settings import Sampling
from lookact.training.distributed import shard_policy, sum_gradients
from lookact.training.optim import NonFiniteGuard, build_adamw, clip_and_step

STEPS = 2
"""The second has Adam's moments from its beginning."""
REPEATS = 3
"""Of two ranks the lowest of so many counts: a buffer that gloo's own thread frees last is never seen to be freed, so
that a measurement can only be too high (by as much at its peak as is still held at its end)."""


@dataclass(frozen=True)
class Size:
    """A Qwen3-VL between tiny and published."""

    hidden: int
    intermediate: int
    layers: int
    vocabulary: int
    vision_hidden: int
    vision_depth: int


SIZES = {
    "1 M": Size(128, 256, 6, 768, 64, 5),
    "60 M": Size(512, 1536, 8, 16_384, 320, 6),
    "500 M": Size(1024, 4096, 24, 49_152, 768, 12),
}
SHAPES = {"1 M": (4, 4), "60 M": (3, 2), "500 M": (2, 1)}
"""Rows and turns of the micro-batch."""


def config_of(size: Size) -> Qwen3VLConfig:
    """Qwen3-VL's configuration at such a size."""
    rope = {"rope_type": "default", "rope_theta": 1e4, "mrope_section": [6, 5, 5], "mrope_interleaved": True}
    return Qwen3VLConfig(
        text_config={
            "vocab_size": size.vocabulary,
            "hidden_size": size.hidden,
            "intermediate_size": size.intermediate,
            "num_hidden_layers": size.layers,
            "num_attention_heads": size.hidden // 32,
            "num_key_value_heads": size.hidden // 64,
            "head_dim": 32,
            "rope_parameters": rope,
        },
        vision_config={
            "depth": size.vision_depth,
            "hidden_size": size.vision_hidden,
            "intermediate_size": 4 * size.vision_hidden,
            "num_heads": size.vision_hidden // 32,
            "patch_size": 16,
            "spatial_merge_size": 2,
            "temporal_patch_size": 2,
            "out_hidden_size": size.hidden,
            "num_position_embeddings": 144,
            "deepstack_visual_indexes": [0, 1, 2],
        },
        image_token_id=size.vocabulary - 3,
        video_token_id=size.vocabulary - 4,
        vision_start_token_id=size.vocabulary - 5,
        vision_end_token_id=size.vocabulary - 6,
        tie_word_embeddings=True,
    )


def step_of(size: str, *, dtype: str, lora: int, checkpointing: bool, processes: int) -> TokenStep:
    """A learning step at this size."""
    rows, turns = SHAPES[size]
    step = TokenStep(
        model=Model(
            dtype="bfloat16" if dtype == "bfloat16" else "float32", lora_rank=lora, gradient_checkpointing=checkpointing
        ),
        config=config_of(SIZES[size]),
        sampling=Sampling(),
        image_size=192,
        turns=turns,
        text_tokens=20,
        reply_tokens=24,
        rows=0,
        eval_rows=0,
        token_budget=1,
        sharded=processes > 1,
        processes=processes,
        reference="frozen" if lora else "none",
    )
    return replace(step, token_budget=rows * turns * step.turn_tokens)


def planned_peak(step: TokenStep) -> float:
    """The highest of all stages."""
    return max(sum(sizes.values()) for sizes in token_memory(step).values())


def measured_peak(step: TokenStep) -> float:
    """The highest that torch's allocator holds at once during real steps, in this process."""
    return highest_held(lambda: learn(step))


def highest_held(work: Callable[[], object]) -> float:
    """The highest sum of allocations less frees, in bytes, that torch's profiler sees while `work` is done."""
    # garbage of before, if it were freed meanwhile, would be taken off
    gc.collect()
    with profile(activities=[ProfilerActivity.CPU], profile_memory=True) as watched:
        work()
    held = peak = 0
    for event in watched.profiler.kineto_results.events():
        held += event.nbytes() if event.name() == "[memory]" else 0
        peak = max(peak, held)
    return float(peak)


def learn(step: TokenStep) -> None:
    """A model with random weights, and real steps of it."""
    policy = real_policy(step)
    reference = open_reference(policy, step.reference)
    shard_policy(policy, "shard" if step.sharded else "data")
    optimizer = build_adamw({"policy": policy}, lr=1e-4)
    batch = collate(micro_segments(step, policy.image_pad_id), policy.encode_images)
    for _ in range(STEPS):
        scores = policy.evaluate(batch.inputs)
        loss = scores.logprobs.mean() + 0.0 * scores.entropy.mean()
        if reference is not None:
            loss = loss + (scores.logprobs - reference.evaluate(batch.inputs).logprobs).mean()
        loss.backward()  # type: ignore[no-untyped-call]
        sum_gradients(policy.parameters())
        clip_and_step(optimizer, policy.parameters(), max_norm=1.0, guard=NonFiniteGuard())


def real_policy(step: TokenStep) -> ChatVLM:
    """The planned model with real weights."""
    torch.manual_seed(0)
    torch.set_default_dtype(getattr(torch, step.model.dtype))
    model: Any = Qwen3VLForConditionalGeneration(step.config).eval()
    torch.set_default_dtype(torch.float32)
    lora = lora_of(step.model)
    model = model if lora is None else add_lora(model, lora)
    vocabulary = Vocabulary(step.config.text_config.vocab_size, end=step.config.text_config.vocab_size - 1)
    policy = ChatVLM(model, vocabulary, tiny_images(TinySpec(image_size=step.image_size)))
    policy.gradient_checkpointing = step.model.gradient_checkpointing
    return policy


def measured_apart(arguments: Sequence[str], processes: int) -> dict[str, float]:
    """`measured_peak` and the growth of the resident set, in fresh processes; of two ranks the lowest of several."""
    tries = [measured_once(arguments, processes) for _ in range(REPEATS if processes > 1 else 1)]
    return min(tries, key=lambda found: found["measured"])


def measured_once(arguments: Sequence[str], processes: int) -> dict[str, float]:
    """One measurement, in fresh processes."""
    launcher = ["-m", "torch.distributed.run", "--standalone", f"--nproc_per_node={processes}"] if processes > 1 else []
    command = [sys.executable, *launcher, "-m", "benchmarks.plan_memory", "--measure", *arguments]
    done = subprocess.run(command, check=True, capture_output=True, text=True)
    line = next(line for line in done.stdout.splitlines() if line.startswith("{"))
    return dict(json.loads(line))


def resident() -> float:
    """Bytes of this process's largest resident set."""
    return 1024.0 * resource.getrusage(resource.RUSAGE_SELF).ru_maxrss


def case_words(case: dict[str, Any]) -> list[str]:
    return [f"--{name}={value}" for name, value in case.items()]


def cases(sizes: Sequence[str]) -> list[dict[str, Any]]:
    """Every combination; of the largest size those that differ most."""
    made = []
    for size in sizes:
        for dtype in ("float32", "bfloat16"):
            for lora in (0, 16):
                for checkpointing in (0, 1):
                    for processes in (1, 2):
                        # bfloat16 weights that learn are refused
                        refused = dtype == "bfloat16" and not lora
                        far = processes == 1 and (lora, checkpointing) in ((0, 1), (16, 0))
                        if not refused and (size != "500 M" or far):
                            made.append(
                                {
                                    "size": size,
                                    "dtype": dtype,
                                    "lora": lora,
                                    "ckpt": checkpointing,
                                    "processes": processes,
                                }
                            )
    return made


def step_from(case: Any) -> TokenStep:
    get = case.get
    return step_of(
        get("size"), dtype=get("dtype"), lora=get("lora"), checkpointing=bool(get("ckpt")), processes=get("processes")
    )


def measure(case: dict[str, Any]) -> None:
    """In a process of its own: prints what one case takes."""
    if case["processes"] > 1:
        dist.init_process_group("gloo")
    step, rss = step_from(case), 0.0
    if case["size"] == "500 M":
        before = resident()
        learn(step)
        rss = resident() - before
    peak = measured_peak(step)
    if int(os.environ.get("RANK", "0")) == 0:
        sys.stdout.write(json.dumps({"measured": peak, "resident": rss}) + "\n")
    if case["processes"] > 1:
        dist.destroy_process_group()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path, default=Path("benchmarks/plan"))
    parser.add_argument("--sizes", nargs="*", default=list(SIZES))
    parser.add_argument("--measure", action="store_true")
    for name, kind in {"size": str, "dtype": str, "lora": int, "ckpt": int, "processes": int}.items():
        parser.add_argument(f"--{name}", type=kind)
    arguments = parser.parse_args()
    if arguments.measure:
        measure({name: getattr(arguments, name) for name in ("size", "dtype", "lora", "ckpt", "processes")})
        return
    arguments.out.mkdir(parents=True, exist_ok=True)
    file = arguments.out / "memory.json"
    done = json.loads(file.read_text()) if file.exists() else []
    for case in cases(arguments.sizes):
        if not any(all(old[name] == value for name, value in case.items()) for old in done):
            found = {"planned": planned_peak(step_from(case))} | measured_apart(case_words(case), case["processes"])
            done.append(case | found)
            file.write_text(json.dumps(done, indent=1) + "\n")
            sys.stdout.write(f"{case} {found['planned'] / found['measured']:.4f}\n")
            sys.stdout.flush()
    (arguments.out / "README.md").write_text(page(done))


def page(done: Sequence[dict[str, Any]]) -> str:
    """The record as a page."""
    rows = [
        ["model", "type", "LoRA", "checkpointing", "FSDP2 ranks", "planned MB", "measured MB", "planned / measured"]
    ]
    for one in done:
        ratio = f"{one['planned'] / one['measured']:.3f}"
        numbers = [f"{one[name] / 1e6:.1f}" for name in ("planned", "measured")]
        rank = str(one["lora"]) if one["lora"] else "no"
        ckpt = "on" if one["ckpt"] else "off"
        rows.append([one["size"], one["dtype"], rank, ckpt, str(one["processes"]), *numbers, ratio])
    commit = subprocess.run(["git", "rev-parse", "HEAD"], capture_output=True, text=True).stdout.strip()
    resident_lines = [
        f"- {one['size']}, {one['dtype']}, LoRA {one['lora'] or 'no'}: the resident set grew by "
        f"{one['resident'] / 1e6:.0f} MB where {one['planned'] / 1e6:.0f} MB of tensors were planned"
        for one in done
        if one["resident"]
    ]
    worst = max(abs(one["planned"] / one["measured"] - 1.0) for one in done)
    return "\n".join(
        [
            "# Planned against measured memory",
            "",
            f"`python -m benchmarks.plan_memory --out benchmarks/plan` at commit `{commit}`. The largest difference is "
            f"{worst:.1%}.",
            "",
            table(rows),
            "",
            "Two learning steps on the CPU, from the building of the model on; measured by torch's allocator through "
            "its profiler. The plan runs 5 and 6 layers of fake tensors, whatever the depth. Of two ranks the lowest "
            f"of {REPEATS} is shown: what gloo's threads free, the profiler does not see, so that single ones "
            "are up to 29% too high.",
            "",
            *resident_lines,
            "",
        ]
    )


if __name__ == "__main__":
    main()
