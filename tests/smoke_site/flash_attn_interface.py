from smoke_standin import differences, unbounded, varlen


def flash_attn_varlen_func(q, k, v, cu_seqlens_q, cu_seqlens_k, max_seqlen_q, max_seqlen_k, seqused_q=None,
                           seqused_k=None, softmax_scale=None, causal=False, qv=None, q_descale=None,
                           window_size=(-1, -1), num_splits=1):
    # Wrong on purpose: the causal mask is aligned at the top left.
    left, right = map(unbounded, window_size)
    lengths_k = differences(cu_seqlens_k)
    if causal:
        lengths_k = [min(n, m) for n, m in zip(lengths_k, differences(cu_seqlens_q))]
    return varlen(q, k, v, cu_seqlens_q, lengths_k, softmax_scale, causal, left, right, cu_seqlens_k)
