from smoke_standin import differences, varlen


def flash_attn_varlen_func(q, k, v, qv=None, cu_seqlens_q=None, cu_seqlens_k=None, max_seqlen_q=None,
                           max_seqlen_k=None, seqused_q=None, seqused_k=None, page_table=None, softmax_scale=None,
                           causal=False, window_size=(None, None), learnable_sink=None, softcap=0.0, num_splits=1,
                           return_lse=False):
    assert page_table is None or cu_seqlens_k is None, "page_table is not supported with cu_seqlens_k"
    assert page_table is None, "Paged KV not supported on this GPU"
    lengths_k = differences(cu_seqlens_k)
    out = varlen(q, k, v, cu_seqlens_q, lengths_k, softmax_scale, causal, *window_size, cu_seqlens_k)
    return out, None
