//! The instructions that a warp executes as one: tensor core products, matrix loads, shuffles.

use crate::execute::{Context, Lanes, Warp};
use crate::fault::{Fault, FaultKind};
use crate::instruction::{Half, Op};
use crate::{LANES, Mask};

impl Warp {
    /// Executes a collective instruction with all lanes.
    pub fn collective(&mut self, op: &Op, context: &mut Context) -> Result<(), Fault> {
        match *op {
            Op::Shuffle { d, valid, a, distance, clamp, members } => {
                let clamp = self.read32(clamp, Mask::MAX, context)?;
                let members = self.read32(members, Mask::MAX, context)?;
                if clamp != [31; LANES] || members != [Mask::MAX; LANES] {
                    return Err(Fault::new(FaultKind::Undefined, "a shuffle that is not over the whole warp"));
                }
                let a = self.read32(a, Mask::MAX, context)?;
                let distance = self.read32(distance, Mask::MAX, context)?;
                // A butterfly over the whole warp never leaves it.
                let value = std::array::from_fn(|lane| a[lane ^ (distance[lane] as usize % LANES)]);
                self.write32(d, value, Mask::MAX);
                if let Some(valid) = valid {
                    self.write_predicate(valid, Mask::MAX, Mask::MAX);
                }
                Ok(())
            }
            Op::LoadMatrices { transposed, d, from } => {
                let addresses = self.shared_address(from, Mask::MAX, context)?;
                for (matrix, d) in d.into_iter().enumerate() {
                    let mut rows = [[0u16; 8]; 8];
                    for (row, values) in rows.iter_mut().enumerate() {
                        let lane = matrix * 8 + row;
                        *values = context.shared.read_row(addresses[lane], self.actor(lane, context))?;
                    }
                    let value = std::array::from_fn(|lane| {
                        let (row, column) = (lane / 4, lane % 4 * 2);
                        let (low, high) = if transposed {
                            (rows[column][row], rows[column + 1][row])
                        } else {
                            (rows[row][column], rows[row][column + 1])
                        };
                        u32::from(low) | u32::from(high) << 16
                    });
                    self.write32(d, value, Mask::MAX);
                }
                Ok(())
            }
            Op::MatrixMultiply { half, d, a, b, c } => {
                let mut left = [[0f32; 16]; 16];
                let mut right = [[0f32; 8]; 16];
                let mut sum = [[0f32; 8]; 16];
                for (i, r) in a.into_iter().enumerate() {
                    let values = self.register32(r, Mask::MAX)?;
                    for (lane, value) in values.into_iter().enumerate() {
                        let (row, column) = (lane / 4 + i % 2 * 8, lane % 4 * 2 + i / 2 * 8);
                        left[row][column] = widen(half, value as u16);
                        left[row][column + 1] = widen(half, (value >> 16) as u16);
                    }
                }
                for (i, r) in b.into_iter().enumerate() {
                    let values = self.register32(r, Mask::MAX)?;
                    for (lane, value) in values.into_iter().enumerate() {
                        let (row, column) = (lane % 4 * 2 + i * 8, lane / 4);
                        right[row][column] = widen(half, value as u16);
                        right[row + 1][column] = widen(half, (value >> 16) as u16);
                    }
                }
                let place = |i: usize, lane: usize| (lane / 4 + i / 2 * 8, lane % 4 * 2 + i % 2);
                for (i, r) in c.into_iter().enumerate() {
                    for (lane, value) in self.register32(r, Mask::MAX)?.into_iter().enumerate() {
                        let (row, column) = place(i, lane);
                        sum[row][column] = f32::from_bits(value);
                    }
                }
                for (sum, left) in sum.iter_mut().zip(&left) {
                    for (left, right) in left.iter().zip(&right) {
                        for (sum, right) in sum.iter_mut().zip(right) {
                            *sum += left * right;
                        }
                    }
                }
                for (i, d) in d.into_iter().enumerate() {
                    let value: Lanes<u32> = std::array::from_fn(|lane| {
                        let (row, column) = place(i, lane);
                        sum[row][column].to_bits()
                    });
                    self.write32(d, value, Mask::MAX);
                }
                Ok(())
            }
            _ => Err(Fault::new(FaultKind::Undefined, "no collective instruction")),
        }
    }
}

/// A 16-bit float as a 32-bit one.
#[inline(always)]
fn widen(half: Half, bits: u16) -> f32 {
    let bits = u32::from(bits);
    match half {
        Half::Bf16 => f32::from_bits(bits << 16),
        Half::F16 => {
            let (sign, magnitude) = ((bits & 0x8000) << 16, bits & 0x7fff);
            // Scaling moves the exponent from bias 15 to bias 127 and makes subnormals normal.
            let finite = f32::from_bits(magnitude << 13) * f32::from_bits(0x7780_0000);
            let magnitude = if magnitude >= 0x7c00 { magnitude << 13 | 0x7f80_0000 } else { finite.to_bits() };
            f32::from_bits(sign | magnitude)
        }
    }
}

/// A 32-bit float rounded to the nearest 16-bit one, ties to even.
pub fn round(half: Half, value: f32) -> u16 {
    let bits = value.to_bits();
    let (sign, magnitude) = ((bits >> 16 & 0x8000) as u16, bits & 0x7fff_ffff);
    match half {
        _ if value.is_nan() => 0x7fff,
        Half::Bf16 => ((bits + 0x7fff + (bits >> 16 & 1)) >> 16) as u16,
        // 65520, halfway past the largest: infinity.
        Half::F16 if magnitude >= 0x477f_f000 => sign | 0x7c00,
        // Below the smallest normal number: multiples of 2^-24.
        Half::F16 if magnitude < 0x3880_0000 => {
            sign | (f32::from_bits(magnitude) * 16_777_216.0).round_ties_even() as u16
        }
        Half::F16 => sign | ((magnitude + 0xfff + (magnitude >> 13 & 1) - 0x3800_0000) >> 13) as u16,
    }
}
