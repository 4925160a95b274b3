//! The cases: one for each kind of kernel that people run.

use serde::Serialize;

/// How keys and values lie in memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Layout {
    /// A rectangle of equal lengths.
    Dense,
    /// Sequences one after the other.
    Varlen,
    /// Pages, as an inference engine keeps them.
    Paged,
}

/// A kernel to ask for.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Case {
    /// As in every output.
    pub name: &'static str,
    /// Query heads.
    pub heads_q: u32,
    /// Heads of keys and values.
    pub heads_kv: u32,
    /// Head dimension of queries and keys.
    pub head_dim: u32,
    /// Head dimension of values.
    pub head_dim_v: u32,
    /// How keys and values lie in memory.
    pub layout: Layout,
    /// With a causal mask.
    pub causal: bool,
    /// Keys visible to the left and right of a query; `None` for all.
    pub window: [Option<u32>; 2],
    /// As torch names it.
    pub dtype: &'static str,
    /// The gradient instead of the output.
    pub backward: bool,
}

/// All cases, in the order in which they are reported.
pub fn matrix() -> Vec<Case> {
    let base = Case {
        name: "dense_d128",
        heads_q: 8,
        heads_kv: 8,
        head_dim: 128,
        head_dim_v: 128,
        layout: Layout::Dense,
        causal: false,
        window: [None, None],
        dtype: "bfloat16",
        backward: false,
    };
    let varlen = Case { layout: Layout::Varlen, causal: true, ..base.clone() };
    let of_dim = |name, head_dim, head_dim_v| Case { name, head_dim, head_dim_v, ..varlen.clone() };
    vec![
        base.clone(),
        Case { name: "causal_d64", causal: true, head_dim: 64, head_dim_v: 64, ..base.clone() },
        Case { name: "varlen_d128", ..varlen.clone() },
        Case { name: "gqa_d128", heads_q: 32, ..varlen.clone() },
        Case { name: "local_d128", window: [Some(127), Some(0)], dtype: "float16", ..varlen.clone() },
        Case { heads_q: 16, heads_kv: 4, ..of_dim("gqa_d256", 256, 256) },
        Case { heads_q: 16, heads_kv: 16, ..of_dim("mla_d192_128", 192, 128) },
        Case { name: "paged_d128", heads_q: 32, layout: Layout::Paged, ..varlen.clone() },
        Case { name: "backward_d128", causal: true, backward: true, ..base },
    ]
}
