"""The layers of a Transformer in PyTorch."""

from cnn_numba.beyond import transformer
from cnn_numba.beyond.attention.layers import MultiHeadAttention
from cnn_numba.beyond.embedding import layers as embedding


def transformer_twins(twins):
    """Return for each kind of layer a function that makes PyTorch's; `twins` has those of other kinds."""
    import torch
    from torch import nn

    class Embedding(nn.Module):
        def __init__(self, our):
            super().__init__()
            self.weight = nn.Parameter(torch.randn(our.kinds, our.features) / our.features**0.5)
            self.positions = nn.Parameter(torch.randn(our.length, our.features) / our.features**0.5)

        def forward(self, x):
            return nn.functional.embedding(x, self.weight) + self.positions

    class SelfAttention(nn.Module):
        def __init__(self, our):
            super().__init__()
            self.attention = nn.MultiheadAttention(our.features, our.heads, batch_first=True)
            self.heads, self.causal = our.heads, our.causal

        def forward(self, x):
            # Calls the fused function directly, as nn.MultiheadAttention would need a mask as well.
            projected = nn.functional.linear(x, self.attention.in_proj_weight, self.attention.in_proj_bias)
            n, length, _ = x.shape
            q, k, v = projected.view(n, length, 3, self.heads, -1).permute(2, 0, 3, 1, 4)
            averages = nn.functional.scaled_dot_product_attention(q, k, v, is_causal=self.causal)
            return self.attention.out_proj(averages.transpose(1, 2).reshape(x.shape))

    class Residual(nn.Sequential):
        def forward(self, x):
            return x + super().forward(x)

    known = dict(twins)

    def inner(our):
        return [known[type(layer)](layer) for layer in our.layers]

    known |= {
        embedding.Embedding: Embedding,
        MultiHeadAttention: SelfAttention,
        transformer.TokenLinear: lambda our: nn.Linear(our.in_features, our.out_features),
        transformer.FlattenTokens: lambda our: nn.Flatten(0, 1),
        transformer.Chain: lambda our: nn.Sequential(*inner(our)),
        transformer.TransformerBlock: lambda our: nn.Sequential(*inner(our)),
        transformer.Residual: lambda our: Residual(*inner(our)),
    }
    return known
