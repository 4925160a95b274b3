from smoke_standin import attention, mask_of, unbounded


def single_prefill_with_kv_cache(q, k, v, causal=False, kv_layout="NHD", sm_scale=None, window_left=-1):
    assert len(q) > 1, "only prefill is supported"
    return attention(q, k, v, mask_of(len(q), len(k), causal, unbounded(window_left), None), sm_scale)
