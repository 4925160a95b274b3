class CompilerError(Exception):
    """The real compiler wraps what the kernel raises."""


def kernel():
    return mRenamed  # noqa: F821


def flash_attn_varlen_func(q, k, v, qv=None, cu_seqlens_q=None, cu_seqlens_k=None, max_seqlen_q=None,
                           max_seqlen_k=None, seqused_k=None, page_table=None, softmax_scale=None, causal=False,
                           window_size=(None, None)):
    try:
        return kernel()
    except NameError as error:
        raise CompilerError("the kernel did not compile") from error
