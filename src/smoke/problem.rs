//! Attention problems: their shape, and inputs that are the same on every machine.

use super::half::Dtype;

/// One case of the matrix.
#[derive(Debug, Clone, PartialEq)]
pub struct Case {
    /// Unique in the matrix.
    pub name: &'static str,
    /// Of queries, keys, values and output.
    pub dtype: Dtype,
    /// 64 or 128.
    pub head_dim: usize,
    /// Query heads; a multiple of `heads_k`.
    pub heads_q: usize,
    /// Key and value heads.
    pub heads_k: usize,
    /// Queries and keys of each sequence.
    pub lengths: Vec<(usize, usize)>,
    /// Which keys a query sees.
    pub mask: Mask,
    /// Keys and values in pages of that many tokens.
    pub page_size: Option<usize>,
}

/// Which keys a query sees, relative to its own position; the last query's position is the last key.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Mask {
    /// Keys before it; all if `None`.
    pub left: Option<usize>,
    /// Keys after it; all if `None`.
    pub right: Option<usize>,
}

impl Mask {
    /// Every key.
    pub const NONE: Mask = Mask { left: None, right: None };
    /// No key after the query.
    pub const CAUSAL: Mask = Mask { left: None, right: Some(0) };

    /// The keys that query `q` of a sequence sees.
    pub fn visible(self, q: usize, (length_q, length_k): (usize, usize)) -> std::ops::Range<usize> {
        let signed = |n: usize| n as i64;
        let position = signed(q) + signed(length_k) - signed(length_q);
        let start = self.left.map_or(0, |left| position - signed(left)).clamp(0, signed(length_k));
        let end = self.right.map_or(signed(length_k), |right| position + signed(right) + 1).clamp(0, signed(length_k));
        start as usize..end.max(start) as usize
    }
}

impl Case {
    /// Rows of queries in all sequences.
    pub fn total_q(&self) -> usize {
        self.lengths.iter().map(|(q, _)| q).sum()
    }

    /// The longest sequence of queries.
    pub fn max_q(&self) -> usize {
        self.lengths.iter().map(|(q, _)| *q).max().unwrap_or(0)
    }

    /// The longest sequence of keys.
    pub fn max_k(&self) -> usize {
        self.lengths.iter().map(|(_, k)| *k).max().unwrap_or(0)
    }

    /// The softmax scale.
    pub fn scale(&self) -> f64 {
        1.0 / (self.head_dim as f64).sqrt()
    }

    /// Floating point operations that the mask leaves: two products of two operations each.
    pub fn flops(&self) -> f64 {
        let pairs: usize =
            self.lengths.iter().map(|l| (0..l.0).map(|q| self.mask.visible(q, *l).len()).sum::<usize>()).sum();
        4.0 * (self.heads_q * self.head_dim) as f64 * pairs as f64
    }

    /// 10^12 operations a second, for a launch that takes so long.
    pub fn tflops(&self, ms: f64) -> f64 {
        self.flops() / ms / 1e9
    }

    /// Tokens of keys that are stored: whole pages if there are any.
    pub fn stored_k(&self) -> usize {
        match self.page_size {
            None => self.lengths.iter().map(|(_, k)| k).sum(),
            Some(size) => self.lengths.iter().map(|(_, k)| k.div_ceil(size) * size).sum(),
        }
    }

    /// Bytes of device memory that its buffers take.
    pub fn device_bytes(&self) -> usize {
        let rows = self.total_q() * self.heads_q;
        let elements = 2 * rows * self.head_dim + 2 * self.stored_k() * self.heads_k * self.head_dim;
        let pages = self.page_size.map_or(0, |size| self.lengths.len() * self.max_k().div_ceil(size));
        2 * elements + 4 * (rows + 2 * (self.lengths.len() + 1) + pages)
    }
}

/// A case with its inputs.
#[derive(Debug, Clone)]
pub struct Problem {
    /// What is computed.
    pub case: Case,
    /// Queries, `(total_q, heads_q, head_dim)`.
    pub q: Vec<u16>,
    /// Keys, `(stored_k, heads_k, head_dim)`.
    pub k: Vec<u16>,
    /// Values, as the keys.
    pub v: Vec<u16>,
    /// First query row of every sequence, and the total.
    pub starts_q: Vec<i32>,
    /// The same for keys.
    pub starts_k: Vec<i32>,
    /// `(sequences, pages_per_sequence)`; empty without pages.
    pub pages: Vec<i32>,
}

/// What lies in the slots of a page after the last key of its sequence. Large, so that reading it shows; finite,
/// because implementations may multiply it by a probability of zero.
const UNUSED_SLOT: f32 = 1000.0;

/// Values that are generated anew; a larger problem repeats them. Prime, so that no two rows of a head are alike.
const PERIOD: usize = 1_000_003;

impl Problem {
    /// The inputs of a case: normally distributed, unit variance.
    pub fn new(case: Case) -> Problem {
        let mut random = Random(0x2545_f491_4f6c_dd1d);
        let row = case.heads_k * case.head_dim;
        let q = random.normal(case.dtype, case.total_q() * case.heads_q * case.head_dim);
        let mut k = random.normal(case.dtype, case.stored_k() * row);
        let mut v = random.normal(case.dtype, case.stored_k() * row);
        let mut pages = Vec::new();
        if let Some(size) = case.page_size {
            let unused = case.dtype.encode(UNUSED_SLOT);
            let per_sequence = case.max_k().div_ceil(size);
            let mut free = random.shuffled(case.stored_k() / size);
            for (_, length) in &case.lengths {
                for n in 0..per_sequence {
                    let used = length.saturating_sub(n * size).min(size);
                    // Entries past the end of a sequence are never looked at.
                    let page = if used > 0 { free.pop().unwrap_or(0) } else { 0 };
                    pages.push(page as i32);
                    if used > 0 {
                        let slots = (page * size + used) * row..(page + 1) * size * row;
                        k[slots.clone()].fill(unused);
                        v[slots].fill(unused);
                    }
                }
            }
        }
        let starts_q = starts(case.lengths.iter().map(|(q, _)| *q));
        let starts_k = starts(case.lengths.iter().map(|(_, k)| *k));
        Problem { case, q, k, v, starts_q, starts_k, pages }
    }

    /// Entries of a row of the page table.
    pub fn pages_per_sequence(&self) -> usize {
        self.pages.len() / self.case.lengths.len()
    }

    /// The row of `k` and `v` where key `n` of a sequence lies.
    pub fn key_row(&self, sequence: usize, n: usize) -> usize {
        match self.case.page_size {
            None => self.starts_k[sequence] as usize + n,
            Some(size) => self.pages[sequence * self.pages_per_sequence() + n / size] as usize * size + n % size,
        }
    }
}

fn starts(lengths: impl Iterator<Item = usize>) -> Vec<i32> {
    let mut starts = vec![0];
    let mut total = 0;
    for length in lengths {
        total += length;
        starts.push(total as i32);
    }
    starts
}

/// A xorshift generator: no dependency, and the same numbers everywhere.
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0
    }

    /// Uniform in (0, 1].
    fn uniform(&mut self) -> f64 {
        ((self.next() >> 11) + 1) as f64 / (1_u64 << 53) as f64
    }

    /// Standard normal numbers (Box and Muller's method), encoded.
    fn normal(&mut self, dtype: Dtype, count: usize) -> Vec<u16> {
        let mut values = Vec::with_capacity(count);
        while values.len() < count.min(PERIOD) {
            let (radius, angle) = ((-2.0 * self.uniform().ln()).sqrt(), std::f64::consts::TAU * self.uniform());
            values.push(dtype.encode((radius * angle.cos()) as f32));
            values.push(dtype.encode((radius * angle.sin()) as f32));
        }
        values.truncate(count.min(PERIOD));
        while values.len() < count {
            let missing = count - values.len();
            values.extend_from_within(..missing.min(PERIOD));
        }
        values
    }

    /// The numbers below `count` in random order.
    fn shuffled(&mut self, count: usize) -> Vec<usize> {
        let mut numbers: Vec<usize> = (0..count).collect();
        for i in (1..count).rev() {
            numbers.swap(i, (self.next() % (i as u64 + 1)) as usize);
        }
        numbers
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::smoke::cases;

    #[test]
    fn masks_are_aligned_at_the_bottom_right() {
        assert_eq!(Mask::CAUSAL.visible(0, (2, 5)), 0..4);
        assert_eq!(Mask::CAUSAL.visible(1, (2, 5)), 0..5);
        assert_eq!(Mask::CAUSAL.visible(0, (5, 2)), 0..0);
        assert_eq!(Mask::CAUSAL.visible(4, (5, 2)), 0..2);
        assert_eq!(Mask::NONE.visible(0, (5, 2)), 0..2);
        let window = Mask { left: Some(1), right: Some(2) };
        assert_eq!(window.visible(0, (9, 9)), 0..3);
        assert_eq!(window.visible(4, (9, 9)), 3..7);
        assert_eq!(window.visible(8, (9, 9)), 7..9);
        assert_eq!(window.visible(0, (9, 4)), 0..0);
    }

    #[test]
    fn every_page_belongs_to_one_sequence() {
        for case in cases::matrix().into_iter().filter(|c| c.page_size.is_some()) {
            let problem = Problem::new(case);
            let mut seen = std::collections::HashSet::new();
            for (sequence, (_, length)) in problem.case.lengths.iter().enumerate() {
                for n in 0..*length {
                    assert!(seen.insert(problem.key_row(sequence, n)), "{} {sequence} {n}", problem.case.name);
                }
            }
            let used: usize = problem.case.lengths.iter().map(|(_, k)| k).sum();
            assert_eq!(seen.len(), used);
            assert!(seen.iter().all(|row| *row < problem.case.stored_k()));
        }
    }

    #[test]
    fn inputs_are_normal_and_repeatable() {
        let case = cases::matrix().remove(0);
        let (a, b) = (Problem::new(case.clone()), Problem::new(case));
        assert_eq!((&a.q, &a.k, &a.v), (&b.q, &b.k, &b.v));
        let values: Vec<f64> = a.q.iter().map(|x| f64::from(a.case.dtype.decode(*x))).collect();
        let mean = values.iter().sum::<f64>() / values.len() as f64;
        let variance = values.iter().map(|x| (x - mean) * (x - mean)).sum::<f64>() / values.len() as f64;
        assert!(mean.abs() < 0.02 && (variance - 1.0).abs() < 0.05, "{mean} {variance}");
    }
}
