"""FlashAttention's functions on a CPU: the same attention by SDPA, found where transformers looks for flash-attn."""

import sys
from types import ModuleType

import pytest
import torch
from torch.nn.functional import scaled_dot_product_attention
from transformers import PreTrainedModel, modeling_flash_attention_utils

HALF = (torch.bfloat16, torch.float16)


class FlashKernels:
    """Both entry points, with the shapes and types that the real ones insist on."""

    def __init__(self, dtypes=HALF):
        self.dtypes, self.calls = dtypes, {"dense": 0, "varlen": 0}

    def dense(
        self, q, k, v, dropout_p=0.0, softmax_scale=None, causal=False, window_size=(-1, -1), deterministic=False
    ):
        """(b, n, heads, d) over (b, m, key heads, d); a causal mask ends at the last key."""
        self.calls["dense"] += 1
        return self._attend(q, k, v, softmax_scale, causal)

    def varlen(
        self,
        q,
        k,
        v,
        cu_seqlens_q,
        cu_seqlens_k,
        max_seqlen_q,
        max_seqlen_k,
        dropout_p=0.0,
        softmax_scale=None,
        causal=False,
        window_size=(-1, -1),
        deterministic=False,
    ):
        """Rows of all lengths joined, (tokens, heads, d), and where each begins."""
        self.calls["varlen"] += 1
        assert int(cu_seqlens_q[-1]) == len(q)
        assert int(cu_seqlens_k[-1]) == len(k) == len(v)
        ends_q, ends_k = cu_seqlens_q.tolist(), cu_seqlens_k.tolist()
        rows = [
            self._attend(q[a:b][None], k[c:d][None], v[c:d][None], softmax_scale, causal)[0]
            for a, b, c, d in zip(ends_q, ends_q[1:], ends_k, ends_k[1:])
        ]
        return torch.cat(rows)

    def _attend(self, q, k, v, scale, causal):
        assert q.dim() == 4
        assert q.dtype in self.dtypes, f"FlashAttention takes no {q.dtype}"
        n, m = q.shape[1], k.shape[1]
        mask = torch.ones(n, m, dtype=torch.bool).tril(m - n) if causal else None
        q, k, v = (part.transpose(1, 2) for part in (q, k, v))
        return scaled_dot_product_attention(q, k, v, attn_mask=mask, scale=scale, enable_gqa=True).transpose(1, 2)


def install(monkeypatch, dtypes=HALF):
    """Makes flash_attention_2 an attention that transformers finds and dispatches to, on a CPU too."""
    kernels, package, padding = FlashKernels(dtypes), ModuleType("flash_attn"), ModuleType("flash_attn.bert_padding")
    package.flash_attn_func, package.flash_attn_varlen_func = kernels.dense, kernels.varlen
    package.flash_attn_with_kvcache = None
    padding.pad_input = modeling_flash_attention_utils._pad_input
    padding.unpad_input = modeling_flash_attention_utils._unpad_input
    monkeypatch.setitem(sys.modules, "flash_attn", package)
    monkeypatch.setitem(sys.modules, "flash_attn.bert_padding", padding)
    monkeypatch.setattr(modeling_flash_attention_utils, "is_flash_attn_2_available", lambda: True)
    monkeypatch.setattr(modeling_flash_attention_utils, "_loaded_implementation", None)
    # its last word is that there is no GPU
    monkeypatch.setattr(PreTrainedModel, "_flash_attn_can_dispatch", lambda *_, **__: True)
    return kernels


@pytest.fixture
def flash_kernels(monkeypatch):
    """FlashAttention 2 for half precision, as on a GPU."""
    return install(monkeypatch)
