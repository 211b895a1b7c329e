"""A family that nobody told us about: the checkpoint's own processor and forward pass over whole conversations."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import torch
from PIL import Image as Picture
from torch import Tensor
from transformers import AutoProcessor, GenerationConfig, LogitsProcessor, LogitsProcessorList

from lookact.errors import ConfigError
from lookact.models.vlm.families.family import Family, Run
from lookact.types import Image

TYPES = ("mm_token_type_ids", "token_type_ids")
"""Inputs that say of every token whether it is of an image."""


def load_processor(base: str, min_pixels: int | None, max_pixels: int | None) -> Any:
    """The checkpoint's whole processor, which alone knows how it writes images down."""
    if min_pixels is not None or max_pixels is not None:
        raise ConfigError(f"max_pixels: nobody knows how {base} bounds its images; set its preprocessor_config.json")
    try:
        return AutoProcessor.from_pretrained(base, trust_remote_code=False)
    except (ImportError, OSError, ValueError) as error:
        reason = " ".join(str(error).split())[:200]
        raise ConfigError(f"{base} is of no family known here, and its processor does not load: {reason}") from error


def raw_images(processor: Any, images: Sequence[Image]) -> tuple[Tensor, Tensor]:
    """Bytes (n, 3) of the images as they are, and grids (k, 3) of their sizes: encoded where they are read."""
    if not images:
        return torch.zeros(0, 3, dtype=torch.uint8), torch.zeros(0, 3, dtype=torch.long)
    pixels = torch.cat([torch.from_numpy(np.ascontiguousarray(image)).view(-1, 3) for image in images])
    return pixels, torch.tensor([[1, *image.shape[:2]] for image in images])


def pictures(pixels: Tensor, grids: Tensor) -> list[Picture.Image]:
    """The images that `raw_images` packed."""
    parts = torch.split(pixels, grids.prod(dim=1).tolist())
    return [Picture.fromarray(part.view(h, w, 3).cpu().numpy()) for part, (_, h, w) in zip(parts, grids.tolist())]


def model_inputs(processor: Any, ids: Tensor, pixels: Tensor, grids: Tensor) -> dict[str, Tensor]:
    """The stock model's inputs for one conversation (1, n), token ids as they were sampled."""
    inputs: dict[str, Tensor] = {}
    if len(grids):
        shown = pictures(pixels, grids)
        inputs = dict(processor(text=processor.image_token * len(shown), images=shown, return_tensors="pt"))
        for name in TYPES:
            if name in inputs:
                inputs[name] = torch.tensor(processor.create_mm_token_type_ids(ids.tolist()))
    inputs |= {"input_ids": ids, "attention_mask": torch.ones_like(ids)}
    return {name: value.to(ids.device) for name, value in inputs.items()}


def hidden_states(
    causal: Any, processor: Any, ids: Tensor, attend: Tensor, seen: Sequence[Any], keep: Tensor
) -> Tensor:
    """(b, k, d) at the places `keep`: one conversation after the other, `seen` its pixels and grids."""
    rows = []
    for row, (pixels, grids) in enumerate(seen):
        inputs = model_inputs(processor, ids[row][attend[row]][None], pixels, grids)
        rows.append(causal.model(**inputs, use_cache=False).last_hidden_state[0, keep[row]])
    return torch.stack(rows)


Choose = Callable[[Tensor, Tensor], tuple[Tensor, Tensor]]
"""Logits (1, v) and a uniform draw (1,) to a token (1,) and its log-prob."""


class Draw(LogitsProcessor):  # type: ignore[misc]
    """Lets `choose` pick each token and leaves the stock generation no choice but that one."""

    def __init__(self, choose: Choose, draws: Tensor) -> None:
        self.choose, self.draws, self.logprobs = choose, draws, list[float]()

    def __call__(self, input_ids: Tensor, scores: Tensor) -> Tensor:
        token, logprob = self.choose(scores, self.draws[len(self.logprobs)][None])
        self.logprobs.append(float(logprob))
        return torch.full_like(scores, -torch.inf).index_fill(1, token, 0.0)


def generate(
    causal: Any, inputs: dict[str, Tensor], choose: Choose, draws: Tensor, *, end: int
) -> tuple[list[int], list[float]]:
    """A reply to one conversation by the stock generation, a token for each of `draws` at most, and its log-probs."""
    draw = Draw(choose, draws)
    # a configuration of our own: the checkpoint's may hold penalties that the learner does not score with
    plain = GenerationConfig(max_new_tokens=len(draws), do_sample=False, eos_token_id=end, pad_token_id=end)
    ids = causal.generate(**inputs, generation_config=plain, logits_processor=LogitsProcessorList([draw]))
    return ids[0, inputs["input_ids"].shape[1] :].tolist(), draw.logprobs


def _unknown(*_: Any) -> Any:
    raise ConfigError("a model of no known family has no parts that we can run by themselves: set --sampler hf")


def _features(core: Any, pixels: Sequence[Tensor], grids: Tensor, run: Run) -> tuple[Tensor, list[Tensor]]:
    return _unknown()  # type: ignore[no-any-return]


OTHER = Family(
    name="other",
    types=(),
    end="",
    placeholder="",
    vision=(),
    load_images=load_processor,
    encode_images=raw_images,
    image_text=_unknown,
    features=_features,
    files=lambda config, processor: {},
)
