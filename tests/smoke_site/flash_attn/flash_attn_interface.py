from smoke_standin import differences, unbounded, varlen


def flash_attn_varlen_func(q, k, v, cu_seqlens_q, cu_seqlens_k, max_seqlen_q, max_seqlen_k, dropout_p=0.0,
                           softmax_scale=None, causal=False, window_size=(-1, -1), softcap=0.0, alibi_slopes=None,
                           deterministic=False, return_attn_probs=False, block_table=None):
    if block_table is not None and k.shape[1] % 256 != 0:
        raise RuntimeError("Paged KV cache block size must be divisible by 256")
    left, right = map(unbounded, window_size)
    lengths_k = differences(cu_seqlens_k)
    return varlen(q, k, v, cu_seqlens_q, lengths_k, softmax_scale, causal, left, right, cu_seqlens_k, block_table)
