"""Chat VLM policy over tokens: the forward pass, log-probs of sampled tokens, prompts written with their images."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cached_property
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

from lookact.batch import Scores, TokenInputs
from lookact.models.actor_critic import ValueHead
from lookact.models.vlm.families import OTHER, family_of
from lookact.models.vlm.families.other import hidden_states, pictures
from lookact.models.vlm.families.qwen import rope_positions
from lookact.models.vlm.kernels import attention_mask, decoder_layer, pick
from lookact.ops.logprobs import score_tokens
from lookact.text.chat import Message, Spelling, write_images
from lookact.types import Image


class ChatVLM(nn.Module):
    """A vision-language model with its tokenizer and image processor, scored by units and never through full logits.

    Of a family that nobody knows the image processor is the checkpoint's whole processor.
    """

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
        self.family = family_of(self.config.model_type)
        self.end = self.family.end or tokenizer.eos_token
        self.end_id = int(tokenizer.convert_tokens_to_ids(self.end))
        self.image_pad_id = int(self.config.image_token_id)
        self.merge = int(getattr(self.config.vision_config, "spatial_merge_size", 2))
        self._image_texts: dict[tuple[int, int], str] = {}
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
        weight: Tensor = self.causal.get_output_embeddings().weight
        return weight

    @property
    def decoder(self) -> Any:
        """The language model between the embeddings and the output layer."""
        core = self.causal.model
        return core.text_model if hasattr(core, "text_model") else core.language_model

    @property
    def vision(self) -> nn.ModuleList:
        """What makes features of pixels."""
        return nn.ModuleList(getattr(self.causal.model, name) for name in self.family.vision)

    @cached_property
    def spelling(self) -> Spelling:
        """How the checkpoint's template writes conversations."""
        template = self.tokenizer.chat_template or self.family.template

        def render(messages: list[Message], reply: bool) -> str:
            written: str = self.tokenizer.apply_chat_template(
                messages, chat_template=template, add_generation_prompt=reply, tokenize=False
            )
            return written

        return Spelling(render, self.end)

    @property
    def thinks(self) -> bool:
        """Whether its replies begin with a thought."""
        return self.spelling.thinks

    @property
    def device(self) -> torch.device:
        device: torch.device = self.causal.get_input_embeddings().weight.device
        return device

    def encode_images(self, images: Sequence[Image]) -> tuple[Tensor, Tensor]:
        """Images (h, w, 3) to pixels (n, d) and grids (k, 3): patches of Qwen's models, tiles of others."""
        return self.family.encode_images(self.image_processor, images)

    def encode_prompt(self, text: str, images: Sequence[Image]) -> NDArray[np.int64]:
        """Token ids (n,) of `text` with each image written out in its placeholder's place."""
        if self.family is OTHER:
            shown = pictures(*self.encode_images(images)) or None
            encoded = self.image_processor(text=[text], images=shown, add_special_tokens=False)
            return np.array(encoded["input_ids"][0], dtype=np.int64)
        spelt = [self.image_text(*image.shape[:2]) for image in images]
        return np.array(self.encode_text(write_images(text, self.family.placeholder, spelt)), dtype=np.int64)

    def image_text(self, height: int, width: int) -> str:
        """What stands in the text for an image of this size."""
        if (height, width) not in self._image_texts:
            self._image_texts[height, width] = self.family.image_text(self.config, self.image_processor, height, width)
        return self._image_texts[height, width]

    def image_token_counts(self, grids: Tensor) -> list[int]:
        """How many <|image_pad|> each image of `grids` (k, 3) takes in the text of Qwen's models."""
        counts: list[int] = (grids.prod(dim=1) // self.merge**2).tolist()
        return counts

    def image_features(self, pixels: Sequence[Tensor], grids: Tensor) -> tuple[Tensor, list[Tensor]]:
        """Features (m, d) of the images' tokens, and the same of each deepstack level."""
        return self.family.features(self.causal.model, pixels, grids, self._run)

    def encode_text(self, text: str) -> list[int]:
        """Token ids of `text` as it stands: special tokens written in it count, none are added."""
        ids: list[int] = self.tokenizer.encode(text, add_special_tokens=False)
        return ids

    def rope_positions(self, ids: Tensor, grids: Tensor, attend: Tensor) -> Tensor:
        """Rotary positions (3, b, n) of rows that begin a conversation; the grids of all rows joined."""
        if self.family.mrope:
            return rope_positions(ids, grids, attend, image_pad=self.image_pad_id, merge=self.merge)
        return (attend.cumsum(dim=1) - 1).clamp(min=0).expand(3, -1, -1)

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

        `attend` is (b, past + n) with True on tokens, or None where every token may see all before it.
        With a `cache` the keys and values of these tokens are appended to it.
        """
        text = self.decoder
        hidden, spots, levels = self._embed(ids, pixels, grids)
        masks, rotaries = self._masks(text, ids, attend, hidden), self._rotaries(text, hidden, position_ids)
        *layers, last = text.layers
        # features that join after the last layer need it whole
        if keep is None or len(levels) > len(layers):
            layers = text.layers
        for index, layer in enumerate(layers):
            hidden = self._run(decoder_layer, layer, hidden, masks[index], rotaries[index], cache)
            if index < len(levels):
                extra = levels[index].to(hidden.device, hidden.dtype)
                hidden = hidden.flatten(0, 1).index_add(0, spots.to(hidden.device), extra).view_as(hidden)
        if keep is not None and len(layers) == len(text.layers):
            hidden = pick(hidden, keep)
        elif keep is not None:
            hidden = self._run(decoder_layer, last, hidden, masks[-1], rotaries[-1], cache, keep)
        normed: Tensor = text.norm(hidden)
        return normed

    def evaluate(self, inputs: TokenInputs, *, temperature: float = 1.0, top_k: int = 0, top_p: float = 1.0) -> Scores:
        """Log-probabilities, entropies and values (b, u) of the units at `inputs.positions`; 0 on padding.

        Temperature and filters are those of the sampler: scoring and sampling agree to the last filter.
        """
        grids = torch.cat(inputs.grids) if inputs.grids else inputs.ids.new_zeros(0, 3)
        # the state that predicts a unit stands one place before it
        before = (inputs.positions - 1).clamp(min=0)
        if self.family is OTHER:
            seen = list(zip(inputs.pixels, inputs.grids)) or [self.encode_images(())] * len(inputs.ids)
            hidden = hidden_states(self.causal, self.image_processor, inputs.ids, inputs.attend, seen, before)
        else:
            positions = self.rope_positions(inputs.ids, grids, inputs.attend)
            # right-padded rows need no mask: what is padded comes after all that counts
            attend = None if right_padded(inputs.attend) else inputs.attend
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
        hidden: Tensor = self.decoder.embed_tokens(ids)
        spots = (ids == self.image_pad_id).flatten().nonzero().squeeze(1)
        if grids is None or not len(grids):
            return hidden, spots, []
        rows = [pixels] if isinstance(pixels, Tensor) else pixels
        features, levels = self.image_features(rows, grids)
        flat = hidden.flatten(0, 1).index_copy(0, spots, features.to(hidden.device, hidden.dtype))
        return flat.view_as(hidden), spots, levels

    def _masks(self, text: Any, ids: Tensor, attend: Tensor | None, hidden: Tensor) -> list[Tensor | None]:
        """The attention mask of every layer."""
        kernel, kinds = text.config._attn_implementation, layer_kinds(text)
        images = ids == self.image_pad_id if self.family.joined_images else None
        windows = {kind: text.config.sliding_window if kind == "sliding_attention" else None for kind in set(kinds)}
        masks = {
            kind: attention_mask(kernel, attend, hidden, window=window, joined=images)
            for kind, window in windows.items()
        }
        return [masks[kind] for kind in kinds]

    def _rotaries(self, text: Any, hidden: Tensor, position_ids: Tensor) -> list[tuple[Tensor, Tensor]]:
        """The rotation of every layer."""
        kinds, places = layer_kinds(text), position_ids if self.family.mrope else position_ids[0]
        if len(getattr(text.rotary_emb, "layer_types", ())) > 1:
            by_kind = {kind: text.rotary_emb(hidden, places, kind) for kind in set(kinds)}
            return [by_kind[kind] for kind in kinds]
        return [text.rotary_emb(hidden, places)] * len(kinds)

    def _run(self, function: Callable[..., Any], *args: Any) -> Any:
        """Call a block, keeping only its inputs for the backward pass where checkpointing is on."""
        if self.gradient_checkpointing and torch.is_grad_enabled():
            return checkpoint(function, *args, use_reentrant=False)
        return function(*args)

    def _find_banned(self) -> Tensor:
        """Every special token but the end of a turn, and ids that no token stands for."""
        banned = torch.zeros(self.output_weight.shape[0], dtype=torch.bool)
        banned[len(self.tokenizer) :] = True
        for token_id, token in self.tokenizer.added_tokens_decoder.items():
            banned[token_id] = token.special
        banned[self.end_id] = False
        return banned


def layer_kinds(text: Any) -> list[str]:
    """Of every decoder layer whether it attends to all before it or to a window."""
    return list(getattr(text.config, "layer_types", None) or ["full_attention"] * len(text.layers))


def right_padded(attend: Tensor) -> bool:
    """Whether no row of (b, n) has a token after padding."""
    return not bool((attend[:, 1:] & ~attend[:, :-1]).any())


def unflatten(values: Tensor, mask: Tensor) -> Tensor:
    """Values (n,) put back where `mask` (b, u) is True, 0 elsewhere."""
    return values.new_zeros(mask.shape).masked_scatter(mask, values)
