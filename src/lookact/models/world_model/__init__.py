"""World model with memory: VQ tokens, experts, heads, and the explorer."""
