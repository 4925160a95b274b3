"""Attention for the stand-in packages beside this file: slow, by the definition, and only as much torch as that needs.

The packages have the signatures and the refusals of the real ones, so that the calls which `backends.py` makes are
checked without a GPU. Nothing here is a copy of them.
"""

import torch


def attention(q, k, v, mask, scale):
    """One sequence: (tokens, heads, head_dim)."""
    groups = q.shape[1] // k.shape[1]
    k, v = (x.repeat_interleave(groups, 1).float() for x in (k, v))
    scores = torch.einsum("qhd,khd->hqk", q.float(), k) * scale
    p = scores.masked_fill(~mask, float("-inf")).softmax(-1)
    return torch.einsum("hqk,khd->qhd", p, v).to(q.dtype)


def mask_of(length_q, length_k, causal, left, right):
    position = torch.arange(length_q)[:, None] + length_k - length_q
    n = torch.arange(length_k)[None, :]
    mask = torch.ones(length_q, length_k, dtype=torch.bool)
    if causal:
        right = 0
    if left is not None:
        mask &= n >= position - left
    if right is not None:
        mask &= n <= position + right
    return mask


def varlen(q, k, v, starts_q, lengths_k, scale, causal, left, right, starts_k=None, pages=None):
    outputs = []
    for i, length_k in enumerate(lengths_k):
        begin, end = int(starts_q[i]), int(starts_q[i + 1])
        if pages is None:
            rows = slice(int(starts_k[i]), int(starts_k[i]) + length_k)
            keys, values = k[rows], v[rows]
        else:
            keys, values = (x[pages[i].long()].flatten(0, 1)[:length_k] for x in (k, v))
        mask = mask_of(end - begin, length_k, causal, left, right)
        outputs.append(attention(q[begin:end], keys, values, mask, scale))
    return torch.cat(outputs)


def differences(starts):
    return (starts[1:] - starts[:-1]).tolist()


def unbounded(side):
    """The compiled kernels write "no bound" as -1."""
    return None if side < 0 else side
