"""LoRA linears in half precision that keep small changes: an adapter's part is added before the product is rounded.

PEFT adds it to an output that is rounded to bfloat16 already. A part below half of the output's last digit then leaves
it as it was, at every token, so that nothing averages out: 20 updates at rate 1e-6 change log-probs by 5% of what they
do in float32, and by all of it where the sum is rounded once (`benchmarks/fidelity`).
"""

from __future__ import annotations

from typing import Any

import torch
from peft.tuners.lora.layer import Linear
from torch import Tensor, nn

HALF = (torch.bfloat16, torch.float16)


class SummedLinear(Linear):  # type: ignore[misc]
    """PEFT's LoRA linear, but for the place of the sum: inside the matrix product, which adds in float32."""

    def forward(self, x: Tensor, *args: Any, **kwargs: Any) -> Tensor:
        """(..., in) -> (..., out)"""
        base = self.get_base_layer()
        adapters = [name for name in self.active_adapters if name in self.lora_A]
        off = self.disable_adapters or self.merged or len(adapters) != 1 or bool(self.lora_variant)
        # a hook that moves weights around acts when the layer itself is called
        plain = x.dtype in HALF and x.dtype == base.weight.dtype and not hasattr(base, "_hf_hook")
        if off or not plain or args or kwargs:
            whole: Tensor = super().forward(x, *args, **kwargs)
            return whole
        (name,) = adapters
        wide = self.lora_dropout[name](x.to(self.lora_A[name].weight.dtype))
        part: Tensor = self.lora_B[name](self.lora_A[name](wide)) * self.scaling[name]
        part = part.to(x.dtype)
        both = torch.addmm(part.flatten(0, -2), x.flatten(0, -2), base.weight.T).view(part.shape)
        return both if base.bias is None else both + base.bias


def round_once(model: nn.Module) -> nn.Module:
    """Makes every plain LoRA linear of `model` a `SummedLinear`, in place; quantised ones stay as they are."""
    layer: Any
    for layer in model.modules():
        if type(layer) is Linear and type(layer.get_base_layer()) is nn.Linear:
            layer.__class__ = SummedLinear
    return model
