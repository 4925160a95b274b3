//! Attention in 64-bit floats, from the definition: what every implementation is compared with.

use rayon::prelude::*;

use super::problem::Problem;

/// The greatest absolute error of a log-sum-exp that counts as right.
pub const LSE_TOLERANCE: f64 = 2e-3;

/// The result of an implementation.
#[derive(Debug, Clone, Copy)]
pub struct Output<'a> {
    /// `(total_q, heads_q, head_dim)`.
    pub o: &'a [u16],
    /// `(heads_q, total_q)`; `None` from an implementation that gives none.
    pub lse: Option<&'a [f32]>,
}

/// How far an output is from the reference: infinite if anything is NaN.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Deviation {
    /// Of the output elements.
    pub output: f64,
    /// Of the log-sum-exp.
    pub lse: f64,
}

impl Deviation {
    const ZERO: Deviation = Deviation { output: 0.0, lse: 0.0 };

    fn max(self, other: Deviation) -> Deviation {
        Deviation { output: self.output.max(other.output), lse: self.lse.max(other.lse) }
    }
}

/// Compares every row of an output with the reference.
pub fn compare(problem: &Problem, output: Output) -> Deviation {
    compare_rows(problem, output, 1)
}

/// Compares every `step`-th row, beginning with the last: for problems too large to compute as a whole.
pub fn compare_rows(problem: &Problem, output: Output, step: usize) -> Deviation {
    let case = &problem.case;
    let decoded = |values: &[u16]| -> Vec<f64> {
        let decode = |x: &u16| f64::from(case.dtype.decode(*x));
        values.par_iter().map(decode).collect()
    };
    let (k, v) = (decoded(&problem.k), decoded(&problem.v));
    let mut rows = Vec::new();
    for (sequence, (length_q, _)) in case.lengths.iter().enumerate() {
        rows.extend((0..*length_q).rev().step_by(step).map(|q| (sequence, q)));
    }
    rows.par_iter()
        .flat_map_iter(|(sequence, q)| (0..case.heads_q).map(move |head| (*sequence, *q, head)))
        .map(|(sequence, q, head)| {
            let row = Row::compute(problem, &k, &v, sequence, q, head);
            let token = problem.starts_q[sequence] as usize + q;
            let at = (token * case.heads_q + head) * case.head_dim;
            let errors = row.o.iter().zip(&output.o[at..]).map(|(want, got)| {
                let got = f64::from(case.dtype.decode(*got));
                error(*want, got)
            });
            let lse = output.lse.map_or(0.0, |lse| error(row.lse, f64::from(lse[head * case.total_q() + token])));
            Deviation { output: errors.fold(0.0, f64::max), lse }
        })
        .reduce(|| Deviation::ZERO, Deviation::max)
}

/// The distance of two numbers; two equal infinities are no distance apart, and a NaN is infinitely far.
fn error(want: f64, got: f64) -> f64 {
    if want == got {
        return 0.0;
    }
    let distance = (want - got).abs();
    if distance.is_nan() { f64::INFINITY } else { distance }
}

/// One row of the result.
struct Row {
    o: Vec<f64>,
    lse: f64,
}

impl Row {
    fn compute(problem: &Problem, k: &[f64], v: &[f64], sequence: usize, q: usize, head: usize) -> Row {
        let case = &problem.case;
        let (d, head_k) = (case.head_dim, head / (case.heads_q / case.heads_k));
        let token = problem.starts_q[sequence] as usize + q;
        let at = (token * case.heads_q + head) * d;
        let query: Vec<f64> = problem.q[at..at + d].iter().map(|x| f64::from(case.dtype.decode(*x))).collect();
        let place = |n: usize| (problem.key_row(sequence, n) * case.heads_k + head_k) * d;
        let keys: Vec<usize> = case.mask.visible(q, case.lengths[sequence]).map(place).collect();
        let scores: Vec<f64> = keys.iter().map(|at| dot(&query, &k[*at..at + d]) * case.scale()).collect();
        let highest = scores.iter().copied().fold(f64::NEG_INFINITY, f64::max);
        let (mut o, mut sum) = (vec![0.0; d], 0.0);
        for (at, score) in keys.iter().zip(&scores) {
            let p = (score - highest).exp();
            sum += p;
            add_scaled(&mut o, p, &v[*at..at + d]);
        }
        // A row that sees no key: zeros, and the logarithm of an empty sum.
        if keys.is_empty() {
            return Row { o, lse: f64::NEG_INFINITY };
        }
        o.iter_mut().for_each(|x| *x /= sum);
        Row { o, lse: highest + sum.ln() }
    }
}

fn dot(a: &[f64], b: &[f64]) -> f64 {
    let mut sum = 0.0;
    for i in 0..a.len() {
        sum += a[i] * b[i];
    }
    sum
}

fn add_scaled(to: &mut [f64], scale: f64, from: &[f64]) {
    for i in 0..to.len() {
        to[i] += scale * from[i];
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::smoke::half::Dtype;
    use crate::smoke::problem::{Case, Mask};

    /// Two queries, three keys, one head of which two dimensions are used: small enough for a pocket calculator.
    fn small() -> Problem {
        let case = Case {
            name: "small",
            dtype: Dtype::F16,
            head_dim: 64,
            heads_q: 1,
            heads_k: 1,
            lengths: vec![(2, 3)],
            mask: Mask::CAUSAL,
            page_size: None,
        };
        let mut problem = Problem::new(case);
        for values in [&mut problem.q, &mut problem.k, &mut problem.v] {
            values.fill(0);
        }
        let f16 = |x: f32| Dtype::F16.encode(x);
        // Scores of the last query: 8 * k / sqrt(64) = k = 0, 1, 2.
        problem.q[64] = f16(8.0);
        (problem.k[64], problem.k[128]) = (f16(1.0), f16(2.0));
        (problem.v[0], problem.v[64], problem.v[128]) = (f16(1.0), f16(2.0), f16(4.0));
        problem
    }

    #[test]
    fn agrees_with_a_calculation_by_hand() {
        let problem = small();
        let decoded = |x: &[u16]| -> Vec<f64> { x.iter().map(|x| f64::from(Dtype::F16.decode(*x))).collect() };
        let (k, v) = (decoded(&problem.k), decoded(&problem.v));
        // The first query is all zeros and sees two keys: the mean of 1 and 2.
        let first = Row::compute(&problem, &k, &v, 0, 0, 0);
        assert!((first.o[0] - 1.5).abs() < 1e-12 && (first.lse - 2.0_f64.ln()).abs() < 1e-12);
        let e = std::f64::consts::E;
        let sum = 1.0 + e + e * e;
        let last = Row::compute(&problem, &k, &v, 0, 1, 0);
        assert!((last.o[0] - (1.0 + 2.0 * e + 4.0 * e * e) / sum).abs() < 1e-12);
        assert!((last.lse - sum.ln()).abs() < 1e-12);
    }

    #[test]
    fn a_wrong_element_shows_at_its_size_and_a_nan_as_infinite() {
        let problem = small();
        let mut o = vec![0; 128];
        (o[0], o[64]) = (Dtype::F16.encode(1.5), Dtype::F16.encode(3.241_2));
        let lse = [2.0_f32.ln(), 2.407_606];
        let deviation = compare(&problem, Output { o: &o, lse: Some(&lse) });
        assert!(deviation.output < 1e-3 && deviation.lse < 1e-5, "{deviation:?}");
        o[3] = Dtype::F16.encode(0.5);
        assert_eq!(compare(&problem, Output { o: &o, lse: None }), Deviation { output: 0.5, lse: 0.0 });
        o[3] = 0x7e00;
        assert_eq!(compare(&problem, Output { o: &o, lse: None }).output, f64::INFINITY);
    }
}
