"""How much of a small change of adapters a bfloat16 model makes of its log-probs, beside a float32 one.

`python -m benchmarks.engine_fidelity --out benchmarks/fidelity` writes the record; with vLLM installed (the environment
of `make test-vllm`) the engine is in it. Adapters learn in float32 on weights that bfloat16 can hold, and are pushed to
bfloat16 models after every few updates. A token's change is its log-prob less the one at push 0. Two things are told of
each model, both against the float32 model's changes of the same pushes:

- over tokens, at the last push: the slope of the changes on the float32 ones, with its standard error, and their
  correlation;
- over pushes: of each push the one number that the slope is made of, the sum over tokens of the change times the
  float32 model's last change, over the sum of that one's squares; the slope and the correlation of these numbers.
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import sys
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import torch
from peft.tuners.lora.layer import Linear
from torch import Tensor

from lookact.batch import TokenInputs
from lookact.models.vlm.adapters import SummedLinear
from lookact.models.vlm.loading import LoraSpec, base_state, engine_state, load_chat, write_snapshot
from lookact.models.vlm.policy import ChatVLM
from lookact.models.vlm.tiny import TinySpec, make_tiny
from lookact.planning.report import table
from lookact.rollout.samplers.settings import Sampling, VllmSpec
from lookact.rollout.samplers.vllm import VllmEngine, engine_arguments

RATES, PUSHES, UPDATES = (1e-6, 1e-5, 1e-4), 5, 4
ROWS, LENGTH = 16, 128
EXACT, STOCK, LEARNER, ENGINE = "float32", "PEFT", "LookAct's learner", "vLLM as LookAct starts it"
LogProbs = Callable[[ChatVLM], Tensor]
"""Of all tokens, after the adapters of a policy were pushed."""


def conversations(count: int) -> list[TokenInputs]:
    """Batches of random tokens."""
    made = []
    for number in range(count):
        ids = torch.randint(0, 250, (ROWS, LENGTH), generator=torch.Generator().manual_seed(number))
        positions = torch.arange(1, LENGTH).expand(ROWS, -1).contiguous()
        made.append(TokenInputs(ids, torch.ones_like(ids, dtype=torch.bool), positions))
    return made


def adapted(folder: Path, dtype: str) -> ChatVLM:
    """A model of weights that bfloat16 can hold, with fresh adapters in float32."""
    torch.manual_seed(0)
    chat = load_chat(folder, dtype=dtype, lora=LoraSpec(rank=32))
    chat.banned[:] = False
    with torch.no_grad():
        for name, weight in chat.named_parameters():
            if "lora_" not in name:
                weight.copy_(weight.bfloat16())
    return chat


def round_twice(chat: ChatVLM) -> None:
    """Adds adapters as PEFT does it."""
    for module in chat.modules():
        if type(module) is SummedLinear:
            module.__class__ = Linear


@torch.no_grad()
def logprobs(chat: ChatVLM, batches: Sequence[TokenInputs]) -> Tensor:
    return torch.cat([chat.evaluate(batch).logprobs.flatten() for batch in batches]).double()


def copy_of(folder: Path, batches: Sequence[TokenInputs], *, stock: bool) -> LogProbs:
    """A bfloat16 model in this process, adapters added as PEFT or as LookAct does it."""
    chat = adapted(folder, "bfloat16")
    if stock:
        round_twice(chat)

    def pushed(learner: ChatVLM) -> Tensor:
        chat.load_state_dict({k: v for k, v in learner.state_dict().items() if "lora_" in k}, strict=False)
        return logprobs(chat, batches)

    return pushed


def engine_of(folder: Path, batches: Sequence[TokenInputs], start: Path) -> tuple[LogProbs, Callable[[], None]]:
    """A bfloat16 vLLM that is sent adapters as a run sends them, and what ends it."""
    import vllm

    chat = adapted(folder, "bfloat16")
    write_snapshot(chat, base_state(chat), start)
    spec = VllmSpec(max_num_seqs=ROWS, kv_cache_memory=0.25)
    engine = VllmEngine(start, engine_arguments(chat, Sampling(max_context=2 * LENGTH), spec))
    asked = vllm.SamplingParams(max_tokens=1, prompt_logprobs=0)

    def pushed(learner: ChatVLM) -> Tensor:
        chat.load_state_dict({k: v for k, v in learner.state_dict().items() if "lora_" in k}, strict=False)
        engine.load(engine_state(chat), 0)
        rows = [row.tolist() for batch in batches for row in batch.ids]
        outputs = engine.llm.generate([{"prompt_token_ids": row} for row in rows], asked, use_tqdm=False)
        told = [out.prompt_logprobs[i][row[i]].logprob for out, row in zip(outputs, rows) for i in range(1, LENGTH)]
        return torch.tensor(told, dtype=torch.float64)

    return pushed, engine.close


def changes(folder: Path, models: dict[str, LogProbs], batches: Sequence[TokenInputs], lr: float) -> dict[str, Tensor]:
    """Every model's change of log-probs (pushes, tokens) while adapters learn by Adam."""
    learner = adapted(folder, "float32")
    optimizer = torch.optim.Adam([weight for weight in learner.parameters() if weight.requires_grad], lr=lr)
    models = {EXACT: lambda chat: logprobs(chat, batches), **models}
    seen = {kind: [pushed(learner)] for kind, pushed in models.items()}
    for _ in range(PUSHES):
        for _ in range(UPDATES):
            optimizer.zero_grad()
            learner.evaluate(batches[0]).logprobs.mean().neg().backward()  # type: ignore[no-untyped-call]
            optimizer.step()
        for kind, pushed in models.items():
            seen[kind].append(pushed(learner))
    return {kind: torch.stack(found[1:]) - found[0] for kind, found in seen.items()}


def compare(true: Tensor, made: Tensor) -> dict[str, float]:
    """Changes (pushes, tokens) beside the float32 ones: slope and correlation over tokens and over pushes."""
    last, square = true[-1], true[-1] @ true[-1]
    rest = made[-1] - (made[-1] @ last / square) * last
    steps, followed = true @ last / square, made @ last / square
    return {
        "tokens": len(last),
        "change_rms": float(last.square().mean().sqrt()),
        "noise_rms": float(rest.square().mean().sqrt()),
        "ratio": float(made[-1] @ last / square),
        "error": float((rest * last).square().sum().sqrt() / square),
        "correlation": correlation(last, made[-1]),
        "pushes_ratio": float(followed @ steps / (steps @ steps)),
        "pushes_correlation": correlation(steps, followed),
    }


def correlation(one: Tensor, other: Tensor) -> float:
    return float(torch.corrcoef(torch.stack([one, other]))[0, 1])


def measure(count: int, hidden: int, *, with_engine: bool) -> list[dict[str, Any]]:
    """For each rate and model what `compare` tells."""
    batches, found = conversations(count), list[dict[str, Any]]()
    with tempfile.TemporaryDirectory() as name:
        spec = TinySpec(hidden=hidden, vocabulary=400)
        folder = make_tiny(Path(name) / "model", corpus=["Find the bed."], spec=spec)
        models = {STOCK: copy_of(folder, batches, stock=True), LEARNER: copy_of(folder, batches, stock=False)}
        close: Callable[[], None] = lambda: None  # noqa: E731
        if with_engine:
            models[ENGINE], close = engine_of(folder, batches, Path(name) / "start")
        try:
            for lr in RATES:
                moved = changes(folder, models, batches, lr)
                for kind in models:
                    found.append({"lr": lr, "kind": kind} | compare(moved[EXACT], moved[kind]))
                    sys.stderr.write(f"{found[-1]}\n")
        finally:
            close()
    return found


def page(found: list[dict[str, Any]], hidden: int) -> str:
    """The record as a page."""
    head = ["lr", "in bfloat16", "ratio over tokens", "over pushes", "correlation over pushes", "over tokens"]
    rows = [
        [
            f"{one['lr']:g}",
            one["kind"],
            f"{one['ratio']:.3f} ± {one['error']:.3f}",
            f"{one['pushes_ratio']:.3f}",
            f"{one['pushes_correlation']:.3f}",
            f"{one['correlation']:.3f}",
        ]
        for one in found
    ]
    sizes = "; ".join(
        f"at {one['lr']:g} they change by {one['change_rms']:.1e} nats (rms) and are rounded by {one['noise_rms']:.1e}"
        for one in found
        if one["kind"] == LEARNER
    )
    return f"""# A small change of adapters in bfloat16 arithmetic

By `python -m benchmarks.engine_fidelity --out benchmarks/fidelity`: {PUSHES} pushes of {UPDATES} updates each of
rank-32 adapters of a tiny model of width {hidden}, the change of {found[0]["tokens"]} log-probs in bfloat16 beside the
same adapters' in float32. Adapters and float32 model are those of the learner.

{table([head, *rows])}

- **Ratio over tokens** is the slope of the changes at the last push, with its standard error. **Over pushes** each push
  counts with one number: its change along the float32 model's last change.
- **PEFT**, and vLLM by itself, add an adapter's part to an output that is rounded to bfloat16 already. A part below
  half of the output's last digit leaves it as it was, every time, so that no number of tokens averages it out.
- **LookAct** adds it inside the matrix product, in float32, and rounds once, in the learner
  (`models/vlm/adapters.py`) as in the engine (`samplers/vllm_adapters.py`): the product takes what it is to add to.
- **Single tokens** stay as noisy as bfloat16's activations are: {sizes}. Where a change is smaller than its
  rounding no way to add the parts makes the correlation over tokens high; gradients, which sum over tokens, see what
  the pushes show.
"""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--batches", type=int, default=8)
    parser.add_argument("--hidden", type=int, default=128)
    parser.add_argument("--out", type=Path)
    arguments = parser.parse_args()
    with_engine = importlib.util.find_spec("vllm") is not None
    found = measure(arguments.batches, arguments.hidden, with_engine=with_engine)
    sys.stdout.write(page(found, arguments.hidden))
    if arguments.out:
        arguments.out.mkdir(parents=True, exist_ok=True)
        (arguments.out / "fidelity.json").write_text(json.dumps(found, indent=2) + "\n")
        (arguments.out / "README.md").write_text(page(found, arguments.hidden))


if __name__ == "__main__":
    main()
