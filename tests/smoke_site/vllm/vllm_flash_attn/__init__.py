from smoke_standin import differences, unbounded, varlen


def fa_version_unsupported_reason(fa_version):
    return {
        3: "FA3 is only supported on devices with compute capability 9.x",
        4: "FA4 is unavailable due to: cute.so: undefined symbol: _ZN3c105ErrorE",
    }.get(fa_version)


def flash_attn_varlen_func(q, k, v, max_seqlen_q, cu_seqlens_q, max_seqlen_k, cu_seqlens_k=None, seqused_k=None,
                           q_v=None, dropout_p=0.0, softmax_scale=None, causal=False, window_size=None,
                           block_table=None, return_softmax_lse=False, fa_version=2):
    assert (cu_seqlens_k is None) != (seqused_k is None)
    assert block_table is None or seqused_k is not None
    left, right = map(unbounded, window_size or (-1, -1))
    lengths_k = differences(cu_seqlens_k) if seqused_k is None else seqused_k.tolist()
    return varlen(q, k, v, cu_seqlens_q, lengths_k, softmax_scale, causal, left, right, cu_seqlens_k, block_table)
