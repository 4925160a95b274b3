//! Arithmetic on the values of all lanes: closures over arrays of 32, which the compiler turns into vector code.

use crate::execute::{Lanes, lanes_of};
use crate::fault::{Fault, FaultKind};
use crate::instruction::{Compare, Integer, Unary};
use crate::{LANES, Mask};

#[inline(always)]
pub fn map2<A: std::marker::Copy, B: std::marker::Copy, R>(
    a: Lanes<A>,
    b: Lanes<B>,
    f: impl Fn(A, B) -> R,
) -> Lanes<R> {
    std::array::from_fn(|i| f(a[i], b[i]))
}

#[inline(always)]
pub fn map_float(a: Lanes<u32>, b: Lanes<u32>, f: impl Fn(f32, f32) -> f32) -> Lanes<u32> {
    map2(a, b, |a, b| f(f32::from_bits(a), f32::from_bits(b)).to_bits())
}

pub fn multiply_wide(signed: bool, a: Lanes<u32>, b: Lanes<u32>) -> Lanes<u64> {
    if signed {
        map2(a, b, |a, b| (i64::from(a as i32) * i64::from(b as i32)) as u64)
    } else {
        map2(a, b, |a, b| u64::from(a) * u64::from(b))
    }
}

pub fn integer32(f: Integer, a: Lanes<u32>, b: Lanes<u32>, active: Mask) -> Result<Lanes<u32>, Fault> {
    let divides = matches!(f, Integer::DivSigned | Integer::DivUnsigned | Integer::RemSigned | Integer::RemUnsigned);
    if divides && lanes_of(active).any(|lane| b[lane] == 0) {
        return Err(Fault::new(FaultKind::Undefined, "division by zero"));
    }
    Ok(match f {
        Integer::Add => map2(a, b, u32::wrapping_add),
        Integer::Sub => map2(a, b, u32::wrapping_sub),
        Integer::Mul => map2(a, b, u32::wrapping_mul),
        Integer::DivSigned => map2(a, b, |a, b| (a as i32).checked_div(b as i32).unwrap_or(i32::MIN) as u32),
        Integer::DivUnsigned => map2(a, b, |a, b| a.checked_div(b).unwrap_or(0)),
        Integer::RemSigned => map2(a, b, |a, b| (a as i32).checked_rem(b as i32).unwrap_or(0) as u32),
        Integer::RemUnsigned => map2(a, b, |a, b| a.checked_rem(b).unwrap_or(0)),
        Integer::MaxSigned => map2(a, b, |a, b| (a as i32).max(b as i32) as u32),
        Integer::MaxUnsigned => map2(a, b, u32::max),
        Integer::MinSigned => map2(a, b, |a, b| (a as i32).min(b as i32) as u32),
        Integer::MinUnsigned => map2(a, b, u32::min),
        Integer::And => map2(a, b, |a, b| a & b),
        Integer::Or => map2(a, b, |a, b| a | b),
        Integer::Xor => map2(a, b, |a, b| a ^ b),
        Integer::ShiftLeft => map2(a, b, |a, b| a.checked_shl(b).unwrap_or(0)),
        Integer::ShiftRightSigned => map2(a, b, |a, b| (a as i32 >> b.min(31)) as u32),
        Integer::ShiftRightUnsigned => map2(a, b, |a, b| a.checked_shr(b).unwrap_or(0)),
    })
}

pub fn integer64(f: Integer, a: Lanes<u64>, b: Lanes<u64>) -> Result<Lanes<u64>, Fault> {
    Ok(match f {
        Integer::Add => map2(a, b, u64::wrapping_add),
        Integer::Sub => map2(a, b, u64::wrapping_sub),
        Integer::Mul => map2(a, b, u64::wrapping_mul),
        Integer::MaxSigned => map2(a, b, |a, b| (a as i64).max(b as i64) as u64),
        Integer::MaxUnsigned => map2(a, b, u64::max),
        Integer::MinSigned => map2(a, b, |a, b| (a as i64).min(b as i64) as u64),
        Integer::MinUnsigned => map2(a, b, u64::min),
        Integer::And => map2(a, b, |a, b| a & b),
        Integer::Or => map2(a, b, |a, b| a | b),
        Integer::Xor => map2(a, b, |a, b| a ^ b),
        _ => return Err(Fault::new(FaultKind::Undefined, format!("64-bit {f:?} is not supported"))),
    })
}

pub fn unary(f: Unary, a: Lanes<u32>) -> Lanes<u32> {
    let float = |f: fn(f32) -> f32| a.map(|a| f(f32::from_bits(a)).to_bits());
    match f {
        Unary::Move => a,
        Unary::Not => a.map(|a| !a),
        Unary::NegateInteger => a.map(u32::wrapping_neg),
        Unary::NegateFloat => a.map(|a| a ^ 0x8000_0000),
        Unary::AbsoluteFloat => a.map(|a| a & 0x7fff_ffff),
        Unary::Exp2 => float(|x| flush(flush(x).exp2())),
        Unary::Log2 => float(|x| flush(flush(x).log2())),
        Unary::Reciprocal => float(|x| 1.0 / x),
    }
}

/// `.ftz`: subnormal numbers become zero.
fn flush(x: f32) -> f32 {
    if x.is_subnormal() { 0.0_f32.copysign(x) } else { x }
}

pub fn insert(from: u32, to: u32, position: u32, length: u32) -> u32 {
    if position > 31 {
        return to;
    }
    let ones = if length > 31 { u32::MAX } else { (1 << length) - 1 };
    to & !(ones << position) | (from & ones) << position
}

pub fn compare<T: PartialOrd + std::marker::Copy>(f: Compare, a: Lanes<T>, b: Lanes<T>) -> Mask {
    let mask =
        |test: fn(&T, &T) -> bool| (0..LANES).fold(0, |mask, lane| mask | Mask::from(test(&a[lane], &b[lane])) << lane);
    match f {
        Compare::Eq => mask(|a, b| a == b),
        Compare::Ne => mask(|a, b| a != b && a.partial_cmp(b).is_some()),
        Compare::Lt => mask(|a, b| a < b),
        Compare::Le => mask(|a, b| a <= b),
        Compare::Gt => mask(|a, b| a > b),
        Compare::Ge => mask(|a, b| a >= b),
        Compare::Ltu => mask(|a, b| a < b || a.partial_cmp(b).is_none()),
        Compare::Leu => mask(|a, b| a <= b || a.partial_cmp(b).is_none()),
        Compare::Gtu => mask(|a, b| a > b || a.partial_cmp(b).is_none()),
        Compare::Geu => mask(|a, b| a >= b || a.partial_cmp(b).is_none()),
    }
}
