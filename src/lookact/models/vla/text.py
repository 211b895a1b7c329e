"""How a control policy reads: WordPiece and BERT, one vector an instruction."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from tokenizers import Tokenizer, models, normalizers, pre_tokenizers, processors
from torch import Tensor, nn
from transformers import PreTrainedTokenizerFast

from lookact.models.vla.encoders import Hold, Weights

SPECIAL = ("[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]")


@dataclass(frozen=True)
class TextSpec:
    """The text encoder; sizes are the tiny one's."""

    source: str = "tiny"
    hidden: int = 64
    layers: int = 1
    vocabulary: int = 512
    length: int = 32
    """Tokens an instruction is cut or padded to."""
    hold: Hold = "full"
    lora_rank: int = 8


def train_wordpiece(corpus: Iterable[str], spec: TextSpec) -> PreTrainedTokenizerFast:
    """A BERT tokenizer of `corpus`'s words, the most frequent first; words it never saw fall into letters."""
    normalizer, splitter = normalizers.BertNormalizer(lowercase=True), pre_tokenizers.BertPreTokenizer()
    found = Counter(word for text in corpus for word, _ in splitter.pre_tokenize_str(normalizer.normalize_str(text)))
    letters = [chr(code) for code in range(33, 127)]
    # by hand: the library's trainer breaks ties at random, so that no two processes would number words alike
    words = sorted(found, key=lambda word: (-found[word], word))
    pieces = dict.fromkeys([*SPECIAL, *letters, *(f"##{letter}" for letter in letters), *words])
    vocabulary = {piece: index for index, piece in enumerate(list(pieces)[: spec.vocabulary])}
    core = Tokenizer(models.WordPiece(vocabulary, unk_token="[UNK]"))
    core.normalizer, core.pre_tokenizer = normalizer, splitter
    ends = [(token, core.token_to_id(token)) for token in ("[CLS]", "[SEP]")]
    core.post_processor = processors.TemplateProcessing(single="[CLS] $A [SEP]", special_tokens=ends)
    return PreTrainedTokenizerFast(
        tokenizer_object=core,
        pad_token="[PAD]",
        unk_token="[UNK]",
        cls_token="[CLS]",
        sep_token="[SEP]",
        mask_token="[MASK]",
        model_max_length=spec.length,
    )


class TextEncoder(nn.Module):
    """Token ids (b, n) -> (b, d): the mean of BERT's last states. A frozen one reads each instruction once."""

    def __init__(self, spec: TextSpec, encoder: Any, tokenizer: Any) -> None:
        super().__init__()
        self.spec, self.encoder, self.tokenizer = spec, encoder, tokenizer
        self.width = int(encoder.config.hidden_size)
        self._weights = Weights(encoder)
        self._known: dict[bytes, Tensor] = {}
        self.register_load_state_dict_post_hook(lambda module, _: module._known.clear())  # type: ignore[no-untyped-call]

    @property
    def frozen(self) -> bool:
        return self._weights.frozen

    def tokenize(self, texts: Sequence[str]) -> Tensor:
        """(b, n) ids, padded to the reader's length."""
        ids = self.tokenizer(list(texts), padding="max_length", truncation=True, max_length=self.spec.length)
        return torch.tensor(ids["input_ids"], dtype=torch.long)

    def forward(self, ids: Tensor) -> Tensor:
        if not self.frozen:
            self._known.clear()
            return self._encode(ids)
        keys = [row.tobytes() for row in ids.cpu().numpy()]
        fresh = {key: row for row, key in enumerate(keys) if key not in self._known}
        if fresh:
            read = self._encode(ids[list(fresh.values())])
            self._known |= dict(zip(fresh, read.detach()))
        return torch.stack([self._known[key] for key in keys]).to(ids.device)

    def _encode(self, ids: Tensor) -> Tensor:
        counts = ids != self.tokenizer.pad_token_id
        # columns that are padding in every row cost as much as words
        longest = int(counts.sum(dim=1).max())
        ids, counts = ids[:, :longest], counts[:, :longest]
        states = self.encoder(input_ids=ids, attention_mask=counts).last_hidden_state
        weights = counts.unsqueeze(-1).to(states.dtype)
        mean: Tensor = (states * weights).sum(dim=1) / weights.sum(dim=1)
        return mean
