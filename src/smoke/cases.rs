//! The case matrix: every feature of the kernel in both element types and head dimensions, at sizes that cross tile
//! edges on every side and still take milliseconds when the PTX is interpreted.

use super::half::Dtype::{self, Bf16, F16};
use super::problem::{Case, Mask};

/// The cases of the native stage, in the order they run.
pub fn matrix() -> Vec<Case> {
    let window = Mask { left: Some(48), right: Some(0) };
    let band = Mask { left: Some(30), right: Some(20) };
    // The last sequences end in every part of a tile that one instruction of the kernel copies, so that a copy of one
    // row too many leaves the buffer.
    vec![
        case("dense", F16, 64, (2, 2), &[(130, 130)], Mask::NONE),
        case("dense_d128", Bf16, 128, (1, 1), &[(96, 115)], Mask::NONE),
        case("causal", F16, 64, (2, 2), &[(186, 186)], Mask::CAUSAL),
        case("causal_bf16", Bf16, 64, (2, 2), &[(160, 160)], Mask::CAUSAL),
        case("causal_d128", F16, 128, (1, 1), &[(155, 155)], Mask::CAUSAL),
        case("causal_bf16_d128", Bf16, 128, (2, 1), &[(137, 137)], Mask::CAUSAL),
        case("gqa_varlen", Bf16, 128, (4, 1), &[(1, 64), (40, 40), (65, 110)], Mask::CAUSAL),
        case("varlen_dense", F16, 64, (4, 2), &[(17, 150), (65, 1)], Mask::NONE),
        // Causal with more queries than keys: the first rows see nothing. And sequences with no rows, or no keys.
        case("more_queries", F16, 64, (2, 2), &[(100, 40), (0, 7), (3, 0), (5, 5)], Mask::CAUSAL),
        case("decode", F16, 64, (4, 1), &[(1, 200), (1, 64), (1, 1), (1, 100)], Mask::CAUSAL),
        case("decode_d128", F16, 128, (2, 1), &[(1, 64), (1, 83)], Mask::CAUSAL),
        case("decode_bf16_d128", Bf16, 128, (4, 2), &[(1, 31), (1, 129)], Mask::CAUSAL),
        case("window", F16, 64, (2, 1), &[(218, 218)], window),
        case("window_bf16_d128", Bf16, 128, (1, 1), &[(70, 185)], window),
        case("window_both_sides", F16, 128, (1, 1), &[(100, 164)], band),
        paged(16, case("paged", F16, 128, (2, 1), &[(33, 100), (20, 20)], Mask::CAUSAL)),
        paged(16, case("paged_decode", Bf16, 64, (4, 1), &[(1, 150), (1, 16), (1, 33)], Mask::CAUSAL)),
        paged(256, case("paged_256", F16, 64, (2, 2), &[(10, 70), (1, 280)], Mask::CAUSAL)),
        paged(16, case("paged_window", Bf16, 64, (2, 2), &[(30, 150)], window)),
    ]
}

/// The case that is timed for the throughput: a long causal sequence, as in training or a long prompt.
pub fn throughput(length: usize) -> Case {
    case("throughput", Bf16, 128, (16, 16), &[(length, length)], Mask::CAUSAL)
}

/// Sequence lengths of the throughput case: each is sixteen times the work of the one before.
pub const THROUGHPUT_LENGTHS: [usize; 4] = [128, 512, 2048, 8192];

fn case(
    name: &'static str,
    dtype: Dtype,
    head_dim: usize,
    (heads_q, heads_k): (usize, usize),
    lengths: &[(usize, usize)],
    mask: Mask,
) -> Case {
    Case { name, dtype, head_dim, heads_q, heads_k, lengths: lengths.to_vec(), mask, page_size: None }
}

fn paged(page_size: usize, case: Case) -> Case {
    Case { page_size: Some(page_size), ..case }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_unique_and_every_kernel_has_every_feature() {
        let matrix = matrix();
        let names: std::collections::HashSet<_> = matrix.iter().map(|c| c.name).collect();
        assert_eq!(names.len(), matrix.len());
        for (dtype, head_dim) in [(F16, 64), (F16, 128), (Bf16, 64), (Bf16, 128)] {
            let cases: Vec<_> = matrix.iter().filter(|c| (c.dtype, c.head_dim) == (dtype, head_dim)).collect();
            assert!(cases.iter().any(|c| c.mask == Mask::CAUSAL), "{dtype:?} {head_dim}");
            assert!(cases.iter().any(|c| c.heads_q != c.heads_k), "{dtype:?} {head_dim}");
        }
        assert!(matrix.iter().any(|c| c.mask.left.is_some() && c.page_size.is_some()));
    }
}
