"""Compatible parts of another checkpoint, by name and shape: of a world model of other sizes, of π0 and of F1.

π0 and F1 (arXiv:2410.24164, arXiv:2509.06951) are Gemma transformers with a SigLIP tower. What a world model has like
it is taken over: the tower where the world model has a SigLIP of its own, attention's projections of each expert, and
the projections of state and action. Norms and MLPs are of another kind and are left over, as is all of another shape.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file
from torch import Tensor, nn

from lookact.errors import ConfigError, DataError
from lookact.models.vlm.loading import first_line

logger = logging.getLogger(__name__)

_BODY = r"(?:model\.)*(?:paligemma_with_expert\.)?"
_PROJECTION = r"layers\.(\d+)\.self_attn\.([qkvo])_proj\.weight"
NAMES = (
    (rf"{_BODY}(?:paligemma|vlm)\.(?:model\.)?vision_tower\.(?:vision_model\.)?(.+)", r"vision_encoder.encoder.\1"),
    (
        rf"{_BODY}(?:paligemma|vlm)\.(?:model\.)?language_model\.(?:model\.)?{_PROJECTION}",
        r"attention.blocks.\1.experts.understanding.\2_proj.weight",
    ),
    (rf"{_BODY}gemma_wm_expert\.model\.{_PROJECTION}", r"attention.blocks.\1.experts.generation.\2_proj.weight"),
    (rf"{_BODY}(?:gemma_expert\.model|dit)\.{_PROJECTION}", r"attention.blocks.\1.experts.action.\2_proj.weight"),
    (r"(?:model\.|embed_action_time\.)*state_proj\.(weight|bias)", r"understanding.state.\1"),
    (r"(?:model\.|embed_action_time\.)*action_in_proj\.weight", r"action_head.input.weight"),
    (r"(?:model\.)*action_out_proj\.(weight|bias)", r"action_head.output.\1"),
)
"""Names of π0 and F1, as openpi, LeRobot, transformers and F1 write them, and the world model's for the same part."""
FITTED = ("vq.", "text_encoder.", "state_mean", "state_std", "state_mask", "action_mask", "feature_std")
"""What a run fits to its own frames and states, or opens by name."""


@dataclass(frozen=True)
class LoadReport:
    """What came of a checkpoint's tensors."""

    matched: dict[str, str]
    """The model's name of each tensor that was loaded, and the checkpoint's."""
    other_shape: dict[str, str]
    """The checkpoint's name of each that the model has in another shape, and both shapes."""
    left_over: tuple[str, ...]
    """Those of the checkpoint that the model has no part for."""
    fresh: tuple[str, ...]
    """Those of the model that stay as they were."""

    def __str__(self) -> str:
        known = len(self.matched) + len(self.other_shape) + len(self.left_over)
        parts = f"{len(self.other_shape)} are of another shape, {len(self.left_over)} of parts that the model has not"
        return f"{len(self.matched)} of {known} tensors loaded; {parts}; {len(self.fresh)} of its own stay fresh"

    def lines(self) -> Iterator[str]:
        """Every tensor, one a line."""
        yield from (f"loaded {theirs} as {own}" for own, theirs in self.matched.items())
        yield from (f"another shape: {theirs}, {shapes}" for theirs, shapes in self.other_shape.items())
        yield from (f"left over: {theirs}" for theirs in self.left_over)
        yield from (f"fresh: {own}" for own in self.fresh)


def load_pretrained(model: nn.Module, folder: Path) -> LoadReport:
    """Load what fits of a checkpoint folder, and log the report: its sums, and each tensor at level debug."""
    report = load_compatible(model, read_tensors(folder))
    if not report.matched:
        raise ConfigError(f"{folder} holds nothing that the model has in the same shape ({report}): see model.width")
    logger.info("pretrained weights of %s: %s", folder, report)
    for line in report.lines():
        logger.debug("%s", line)
    return report


@torch.no_grad()
def load_compatible(model: nn.Module, state: Mapping[str, Tensor]) -> LoadReport:
    """Copy every tensor of `state` that the model has by the same name, or by NAMES, and in the same shape."""
    # a LoRA adapter wraps the linear that the checkpoint knows
    own = {name.replace(".base_layer.", "."): x for name, x in model.state_dict().items() if not is_fitted(name)}
    matched: dict[str, str] = {}
    other_shape: dict[str, str] = {}
    left_over = []
    for theirs, tensor in state.items():
        # a bias is of use with its weight alone
        weight = theirs.removesuffix("bias") + "weight" if theirs.endswith(".bias") else theirs
        name, pairs = own_name(theirs), {x: own_name(x) for x in (weight, theirs) if x in state}
        if not all(mine in own for mine in pairs.values()):
            left_over.append(theirs)
        elif differ := [x for x, mine in pairs.items() if state[x].shape != own[mine].shape]:
            mine = pairs[differ[0]]
            other_shape[theirs] = f"{tuple(state[differ[0]].shape)}, the model's {mine} has {tuple(own[mine].shape)}"
        else:
            own[name].copy_(tensor.to(own[name].dtype))
            matched[name] = theirs
    return LoadReport(matched, other_shape, tuple(left_over), tuple(name for name in own if name not in matched))


def own_name(theirs: str) -> str:
    """The world model's name of a checkpoint's tensor; one that is not of π0 or F1 keeps its own."""
    for pattern, own in NAMES:
        found = re.fullmatch(pattern, theirs)
        if found:
            return found.expand(own)
    return theirs


def is_fitted(name: str) -> bool:
    """Whether a run makes this tensor by itself."""
    return name.startswith(FITTED)


def read_tensors(folder: Path) -> dict[str, Tensor]:
    """All tensors of a folder's safetensors files, or of one such file."""
    files = [folder] if folder.is_file() else sorted(folder.glob("*.safetensors"))
    if not files:
        raise DataError(f"{folder} holds no safetensors: give the folder of a checkpoint, or such a file")
    try:
        return {name: tensor for file in files for name, tensor in load_file(file).items()}
    except (OSError, SafetensorError) as error:
        raise DataError(f"cannot read {folder}: {first_line(error)}") from error
