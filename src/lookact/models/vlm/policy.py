"""Chat VLM policy over tokens: Qwen3-VL's forward pass, log-probs of sampled tokens, RoPE positions, image patches."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import groupby
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint
from transformers.image_utils import SizeDict
from transformers.masking_utils import create_causal_mask

from lookact.batch import Scores, TokenInputs
from lookact.errors import DataError
from lookact.models.actor_critic import ValueHead
from lookact.models.vlm.kernels import decoder_layer, pick, vision_features
from lookact.ops.logprobs import score_tokens
from lookact.types import Image


class ChatVLM(nn.Module):
    """Qwen3-VL with its tokenizer and image processor, scored by units and never through full logits."""

    banned: Tensor
    """(v,) bool, True on tokens that a policy must never sample."""

    def __init__(
        self, model: nn.Module, tokenizer: Any, image_processor: Any, value_head: ValueHead | None = None
    ) -> None:
        super().__init__()
        self.model: Any = model
        self.tokenizer = tokenizer
        self.image_processor = image_processor
        self.value_head = value_head
        self.gradient_checkpointing = False
        self.end_id = int(tokenizer.convert_tokens_to_ids("<|im_end|>"))
        self.image_pad_id = int(self.config.image_token_id)
        self.merge = int(self.config.vision_config.spatial_merge_size)
        self.register_buffer("banned", self._find_banned(), persistent=False)

    @property
    def config(self) -> Any:
        return self.model.config

    @property
    def causal(self) -> Any:
        """The model with its output layer, out of any adapter's wrapping."""
        return self.model.get_base_model() if hasattr(self.model, "get_base_model") else self.model

    @property
    def output_weight(self) -> Tensor:
        """(v, d)"""
        weight: Tensor = self.causal.lm_head.weight
        return weight

    @property
    def device(self) -> torch.device:
        device: torch.device = self.causal.get_input_embeddings().weight.device
        return device

    def encode_images(self, images: Sequence[Image]) -> tuple[Tensor, Tensor]:
        """Images (h, w, 3) to pixels (patches, d) and grids (k, 3) in patches."""
        return encode_images(self.image_processor, images)

    def image_token_counts(self, grids: Tensor) -> list[int]:
        """How many <|image_pad|> each image of `grids` (k, 3) takes in the text."""
        counts: list[int] = (grids.prod(dim=1) // self.merge**2).tolist()
        return counts

    def encode_text(self, text: str) -> list[int]:
        """Token ids of `text` as it stands: special tokens written in it count, none are added."""
        ids: list[int] = self.tokenizer.encode(text, add_special_tokens=False)
        return ids

    def rope_positions(self, ids: Tensor, grids: Tensor, attend: Tensor) -> Tensor:
        """Rotary positions (3, b, n) of rows that begin a conversation; the grids of all rows joined."""
        return rope_positions(ids, grids, attend, image_pad=self.image_pad_id, merge=self.merge)

    def backbone(
        self,
        ids: Tensor,
        attend: Tensor | None,
        position_ids: Tensor,
        pixels: Tensor | Sequence[Tensor] = (),
        grids: Tensor | None = None,
        cache: Any = None,
        keep: Tensor | None = None,
    ) -> Tensor:
        """Hidden states (b, n, d) after the final norm, without the output layer; at `keep` (b, k) alone if given.

        `attend` is (b, past + n) with True on tokens, a ready 4-D mask, or None for plain causal attention.
        With a `cache` the keys and values of these tokens are appended to it.
        """
        text = self.causal.model.language_model
        hidden, spots, levels = self._embed(ids, pixels, grids)
        mask = create_causal_mask(
            config=text.config, inputs_embeds=hidden, attention_mask=attend, past_key_values=cache, position_ids=None
        )
        rotary = text.rotary_emb(hidden, position_ids)
        *layers, last = text.layers
        # features that join after the last layer need it whole
        if keep is None or len(levels) > len(layers):
            layers = text.layers
        for index, layer in enumerate(layers):
            hidden = self._run(decoder_layer, layer, hidden, mask, rotary, cache)
            if index < len(levels):
                extra = levels[index].to(hidden.device, hidden.dtype)
                hidden = hidden.flatten(0, 1).index_add(0, spots.to(hidden.device), extra).view_as(hidden)
        if keep is not None and len(layers) == len(text.layers):
            hidden = pick(hidden, keep)
        elif keep is not None:
            hidden = self._run(decoder_layer, last, hidden, mask, rotary, cache, keep)
        normed: Tensor = text.norm(hidden)
        return normed

    def evaluate(self, inputs: TokenInputs, *, temperature: float = 1.0, top_k: int = 0, top_p: float = 1.0) -> Scores:
        """Log-probabilities, entropies and values (b, u) of the units at `inputs.positions`; 0 on padding.

        Temperature and filters are those of the sampler: scoring and sampling agree to the last filter.
        """
        grids = torch.cat(inputs.grids) if inputs.grids else inputs.ids.new_zeros(0, 3)
        positions = self.rope_positions(inputs.ids, grids, inputs.attend)
        # right-padded rows need no mask: what is padded comes after all that counts
        attend = None if right_padded(inputs.attend) else inputs.attend
        # the state that predicts a unit stands one place before it
        before = (inputs.positions - 1).clamp(min=0)
        hidden = self.backbone(inputs.ids, attend, positions, inputs.pixels, grids, keep=before)
        counts = inputs.positions > 0
        states = hidden[counts]
        logprobs, entropy = score_tokens(
            states,
            self.output_weight,
            inputs.ids.gather(1, inputs.positions)[counts],
            temperature=temperature,
            banned=self.banned,
            top_k=top_k,
            top_p=top_p,
        )
        values = None if self.value_head is None else unflatten(self.value_head(states), counts)
        return Scores(logprobs=unflatten(logprobs, counts), entropy=unflatten(entropy, counts), values=values)

    def forward(self, inputs: TokenInputs, **filters: Any) -> Scores:
        """`evaluate`, by the name that distributed wrappers call."""
        return self.evaluate(inputs, **filters)

    def _embed(
        self, ids: Tensor, pixels: Tensor | Sequence[Tensor], grids: Tensor | None
    ) -> tuple[Tensor, Tensor, list[Tensor]]:
        """Embeddings (b, n, d) with the images in them, where the images stand (m,), and their deepstack levels."""
        core = self.causal.model
        hidden: Tensor = core.language_model.embed_tokens(ids)
        spots = (ids == self.image_pad_id).flatten().nonzero().squeeze(1)
        if grids is None or not len(grids):
            return hidden, spots, []
        rows = [pixels] if isinstance(pixels, Tensor) else pixels
        features, levels = vision_features(core.visual, rows, grids, self._run)
        flat = hidden.flatten(0, 1).index_copy(0, spots, features.to(hidden.device, hidden.dtype))
        return flat.view_as(hidden), spots, levels

    def _run(self, function: Callable[..., Any], *args: Any) -> Any:
        """Call a block, keeping only its inputs for the backward pass where checkpointing is on."""
        if self.gradient_checkpointing and torch.is_grad_enabled():
            return checkpoint(function, *args, use_reentrant=False)
        return function(*args)

    def _find_banned(self) -> Tensor:
        """Every special token but the end of a turn, and ids that no token stands for."""
        banned = torch.zeros(self.causal.lm_head.weight.shape[0], dtype=torch.bool)
        banned[len(self.tokenizer) :] = True
        for token_id, token in self.tokenizer.added_tokens_decoder.items():
            banned[token_id] = token.special
        banned[self.end_id] = False
        return banned


def right_padded(attend: Tensor) -> bool:
    """Whether no row of (b, n) has a token after padding."""
    return not bool((attend[:, 1:] & ~attend[:, :-1]).any())


def unflatten(values: Tensor, mask: Tensor) -> Tensor:
    """Values (n,) put back where `mask` (b, u) is True, 0 elsewhere."""
    return values.new_zeros(mask.shape).masked_scatter(mask, values)


def rope_positions(ids: Tensor, grids: Tensor, attend: Tensor, *, image_pad: int, merge: int) -> Tensor:
    """Multimodal RoPE positions (3, b, n) of tokens (b, n): time, height, width; equal to the stock `get_rope_index`.

    Text advances all three axes by one a token. An image's tokens share their time and spread over height and
    width; the text after it goes on past its longer side. Padding stands at 0.
    """
    image = (ids == image_pad) & attend
    spots = image.flatten().nonzero().squeeze(1)
    steps = (attend & ~image).long()
    if len(grids):
        owner, place = image_token_places(grids, merge, len(spots))
        # the text after an image continues from its longer side
        last = torch.cat([owner[1:] != owner[:-1], owner.new_ones(1, dtype=torch.bool)])
        longest = grids[:, 1:].amax(dim=1) // merge
        steps.view(-1)[spots[last]] = longest[owner[last]]
    elif len(spots):
        raise DataError(f"{len(spots)} image tokens but no image: pass the pixels and grids of every image")
    base = steps.cumsum(dim=1) - steps
    positions = torch.where(attend, base, 0).expand(3, -1, -1).clone()
    if len(grids):
        positions.view(3, -1)[1:, spots] += place
    return positions


def image_token_places(grids: Tensor, merge: int, tokens: int) -> tuple[Tensor, Tensor]:
    """For each image token its image (m,) and its row and column in it (2, m)."""
    counts = grids.prod(dim=1) // merge**2
    if int(counts.sum()) != tokens:
        raise DataError(f"{tokens} image tokens but {int(counts.sum())} image features: text and images do not match")
    owner = torch.repeat_interleave(torch.arange(len(grids), device=grids.device), counts)
    offset = torch.arange(tokens, device=grids.device) - (counts.cumsum(0) - counts)[owner]
    columns = grids[owner, 2] // merge
    rows = grids[owner, 1] // merge
    return owner, torch.stack([offset // columns % rows, offset % columns])


def encode_images(processor: Any, images: Sequence[Image]) -> tuple[Tensor, Tensor]:
    """RGB images (h, w, 3) to patches (patches, d) and grids (k, 3), batched where no resize is needed."""
    if not images:
        width = 3 * processor.temporal_patch_size * processor.patch_size**2
        return torch.zeros(0, width), torch.zeros(0, 3, dtype=torch.long)
    pixels, grids = [], []
    for shape, run in groupby(images, key=np.shape):
        encode = patchify if fits(processor, *shape[:2]) else process
        run_pixels, run_grids = encode(processor, list(run))
        pixels.append(run_pixels)
        grids.append(run_grids)
    return torch.cat(pixels), torch.cat(grids)


def fits(processor: Any, height: int, width: int) -> bool:
    """Whether an image goes in as it is: whole 32x32 cells, within the pixel budget."""
    cell = processor.patch_size * processor.merge_size
    low, high = pixel_budget(processor)
    return height % cell == 0 and width % cell == 0 and low <= height * width <= high


def fit_image(processor: Any, image: Image) -> Image:
    """The image as the processor resizes it, still bytes: whoever encodes it next has nothing left to resize."""
    if fits(processor, *image.shape[:2]):
        return image
    cell = processor.patch_size * processor.merge_size
    size = SizeDict(**dict(processor.size))
    resized = processor.resize(np.moveaxis(image, -1, 0), size=size, resample=processor.resample, factor=cell)
    return np.ascontiguousarray(np.moveaxis(resized, 0, -1))


def pixel_budget(processor: Any) -> tuple[int, int]:
    """The fewest and the most pixels an image has after the resize."""
    return int(processor.size["shortest_edge"]), int(processor.size["longest_edge"])


def process(processor: Any, images: list[Image]) -> tuple[Tensor, Tensor]:
    """The stock processor, which resizes: milliseconds an image."""
    # said outright: of an image 1 or 3 pixels high the processor would guess wrong
    encoded = processor(images=images, input_data_format="channels_last", return_tensors="pt")
    return encoded["pixel_values"], encoded["image_grid_thw"]


def patchify(processor: Any, images: list[Image]) -> tuple[Tensor, Tensor]:
    """Normalise and cut same-sized images (k of them) that need no resize, all at once."""
    patch, merge, frames = processor.patch_size, processor.merge_size, processor.temporal_patch_size
    scale, shift = normaliser(processor)
    batch = torch.from_numpy(np.stack(images)).float() * scale + shift
    count, height, width, _ = batch.shape
    rows, columns = height // patch, width // patch
    cells = batch.view(count, rows // merge, merge, patch, columns // merge, merge, patch, 3)
    # (image, cell row, cell column, row in cell, column in cell, channel, y, x), as the vision tower merges them
    cells = cells.permute(0, 1, 4, 2, 5, 7, 3, 6).unsqueeze(6)
    # a still image is a video of `frames` equal frames
    pixels = cells.expand(-1, -1, -1, -1, -1, -1, frames, -1, -1).reshape(count * rows * columns, -1)
    return pixels, torch.tensor([[1, rows, columns]]).expand(count, 3).contiguous()


def normaliser(processor: Any) -> tuple[Tensor, Tensor]:
    """Scale (3,) and shift (3,) that take bytes to what the model expects."""
    deviation = torch.tensor(processor.image_std, dtype=torch.float64)
    scale = processor.rescale_factor / deviation
    shift = -torch.tensor(processor.image_mean, dtype=torch.float64) / deviation
    return scale.float(), shift.float()
