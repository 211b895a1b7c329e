"""How much of a small change of adapters a bfloat16 model makes of its log-probs, beside a float32 one.

`python -m benchmarks.engine_fidelity --out benchmarks/fidelity` writes the record. Adapters learn in float32 on weights
that bfloat16 can hold; both models are given them. A token's change is the difference of its log-prob after and before.
The ratio is the slope of the bfloat16 model's changes on the float32 model's, with its standard error over tokens.

The bfloat16 model is run twice: as it is, each linear's output rounded before the adapter's part is added to it, and
with both parts added in float32 and rounded once.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
from functools import partial
from pathlib import Path
from typing import Any

import torch
from peft.tuners.lora.layer import Linear
from torch import Tensor
from torch.nn.functional import linear

from lookact.batch import TokenInputs
from lookact.models.vlm.loading import LoraSpec, load_chat
from lookact.models.vlm.policy import ChatVLM
from lookact.models.vlm.tiny import TinySpec, make_tiny
from lookact.planning.report import table

RATES, UPDATES = (1e-6, 1e-5, 1e-4), 20
ROWS, LENGTH = 16, 128
EXACT, KINDS = "float32", ("rounded twice", "rounded once")


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
    with torch.no_grad():
        for name, weight in chat.named_parameters():
            if "lora_" not in name:
                weight.copy_(weight.bfloat16())
    return chat


def round_once(chat: ChatVLM) -> None:
    """Adds each adapter's part to its linear's in float32, before the sum is rounded."""
    for module in chat.modules():
        if isinstance(module, Linear):
            setattr(module, "forward", partial(summed, module))  # noqa: B010


def summed(layer: Any, x: Tensor) -> Tensor:
    """An adapted linear whose output is rounded once."""
    base, wide = layer.get_base_layer(), x.float()
    bias = None if base.bias is None else base.bias.float()
    part = layer.lora_B["default"](layer.lora_A["default"](wide)) * layer.scaling["default"]
    both: Tensor = linear(wide, base.weight.float(), bias) + part
    return both.to(x.dtype)


@torch.no_grad()
def logprobs(chat: ChatVLM, batches: list[TokenInputs]) -> Tensor:
    return torch.cat([chat.evaluate(batch).logprobs.flatten() for batch in batches]).double()


def learn(chat: ChatVLM, batch: TokenInputs, lr: float) -> None:
    """Updates of the adapters by Adam."""
    optimizer = torch.optim.Adam([weight for weight in chat.parameters() if weight.requires_grad], lr=lr)
    for _ in range(UPDATES):
        optimizer.zero_grad()
        chat.evaluate(batch).logprobs.mean().neg().backward()  # type: ignore[no-untyped-call]
        optimizer.step()


def measure(count: int) -> list[dict[str, Any]]:
    """For each rate and way to round: the ratio, its standard error, the correlation, and both changes' sizes."""
    batches, found = conversations(count), list[dict[str, Any]]()
    with tempfile.TemporaryDirectory() as name:
        folder = make_tiny(Path(name) / "model", corpus=["Find the bed."], spec=TinySpec(hidden=64, vocabulary=400))
        for lr in RATES:
            models = {kind: adapted(folder, "float32" if kind == EXACT else "bfloat16") for kind in (EXACT, *KINDS)}
            round_once(models[KINDS[1]])
            before = {kind: logprobs(chat, batches) for kind, chat in models.items()}
            learn(models[EXACT], batches[0], lr)
            trained = {k: v for k, v in models[EXACT].state_dict().items() if "lora_" in k}
            for kind in KINDS:
                models[kind].load_state_dict(trained, strict=False)
            changes = {kind: logprobs(chat, batches) - before[kind] for kind, chat in models.items()}
            found += [{"lr": lr, "kind": kind} | compare(changes[EXACT], changes[kind]) for kind in KINDS]
    return found


def compare(true: Tensor, made: Tensor) -> dict[str, float]:
    """The slope of one change on the other, and what is left of it."""
    ratio = float(made @ true / (true @ true))
    rest = made - ratio * true
    return {
        "tokens": len(true),
        "change_rms": float(true.square().mean().sqrt()),
        "noise_rms": float(rest.square().mean().sqrt()),
        "ratio": ratio,
        "error": float((rest * true).square().sum().sqrt() / (true @ true)),
        "correlation": float(torch.corrcoef(torch.stack([true, made]))[0, 1]),
    }


def page(found: list[dict[str, Any]]) -> str:
    """The record as a page."""
    head = ["lr", "bfloat16", "tokens", "change, rms nats", "rounding, rms nats", "ratio", "correlation over tokens"]
    rows = [
        [
            f"{one['lr']:g}",
            one["kind"],
            str(one["tokens"]),
            f"{one['change_rms']:.2e}",
            f"{one['noise_rms']:.2e}",
            f"{one['ratio']:.3f} ± {one['error']:.3f}",
            f"{one['correlation']:.3f}",
        ]
        for one in found
    ]
    return f"""# A small change of adapters in bfloat16 arithmetic

By `python -m benchmarks.engine_fidelity --out benchmarks/fidelity`: {UPDATES} updates of rank-32 adapters of a tiny
model, the change of log-probs in bfloat16 beside the same adapters' in float32.

{table([head, *rows])}

- **Rounded twice** is how PEFT and vLLM add an adapter's part: to an output that is rounded to bfloat16 already.
  A part below half of the output's last digit leaves it as it was, every time, so that no number of tokens averages
  it out: at small rates most of the change is lost, in the learner and in the engine alike.
- **Rounded once**, both parts added in float32, the same part moves the sum over a border now and then, and on average
  by about what it is: the ratio is 0.95 or more at every rate. The layers of neither do this today: it takes a matrix
  product that gives float32 of bfloat16.
- **Single tokens** stay as noisy as bfloat16's activations are (rounding, rms): where a change is smaller than that, no
  way to add the parts makes the correlation over tokens high.
"""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--batches", type=int, default=16)
    parser.add_argument("--out", type=Path)
    arguments = parser.parse_args()
    found = measure(arguments.batches)
    sys.stdout.write(page(found))
    if arguments.out:
        arguments.out.mkdir(parents=True, exist_ok=True)
        (arguments.out / "fidelity.json").write_text(json.dumps(found, indent=2) + "\n")
        (arguments.out / "README.md").write_text(page(found))


if __name__ == "__main__":
    main()
