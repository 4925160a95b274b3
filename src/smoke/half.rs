//! The two 16-bit floats, by bit pattern.

use serde::{Deserialize, Serialize};

/// An element type of queries, keys, values and outputs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Dtype {
    /// IEEE half precision: 5 bits of exponent, 10 of mantissa.
    F16,
    /// Brain float: the upper half of a 32-bit float.
    Bf16,
}

impl Dtype {
    /// `f16` or `bf16`.
    pub fn name(self) -> &'static str {
        match self {
            Dtype::F16 => "f16",
            Dtype::Bf16 => "bf16",
        }
    }

    /// The greatest absolute error of an output element that counts as right, for inputs of unit variance.
    /// Rounding the output alone costs up to a quarter of it, rounding the probabilities the same again.
    pub fn tolerance(self) -> f64 {
        match self {
            Dtype::F16 => 2.5e-3,
            Dtype::Bf16 => 2e-2,
        }
    }

    /// The nearest 16-bit value of a finite number, ties to even.
    pub fn encode(self, value: f32) -> u16 {
        let bits = value.to_bits();
        let (sign, magnitude) = ((bits >> 16 & 0x8000) as u16, bits & 0x7fff_ffff);
        match self {
            Dtype::Bf16 => ((bits + 0x7fff + (bits >> 16 & 1)) >> 16) as u16,
            // At 65520, halfway past the largest number, infinity begins.
            Dtype::F16 if magnitude >= 0x477f_f000 => sign | 0x7c00,
            // Below the smallest normal number: multiples of 2^-24.
            Dtype::F16 if magnitude < 0x3880_0000 => {
                sign | (f32::from_bits(magnitude) * 16_777_216.0).round_ties_even() as u16
            }
            Dtype::F16 => sign | ((magnitude + 0xfff + (magnitude >> 13 & 1) - 0x3800_0000) >> 13) as u16,
        }
    }

    /// The exact value of a bit pattern.
    pub fn decode(self, bits: u16) -> f32 {
        let bits = u32::from(bits);
        match self {
            Dtype::Bf16 => f32::from_bits(bits << 16),
            Dtype::F16 => {
                let (sign, exponent, mantissa) = ((bits & 0x8000) << 16, bits >> 10 & 31, bits & 0x3ff);
                let magnitude = match exponent {
                    31 => 0x7f80_0000 | mantissa << 13,
                    0 => (mantissa as f32 / 16_777_216.0).to_bits(),
                    _ => (exponent + 112) << 23 | mantissa << 13,
                };
                f32::from_bits(sign | magnitude)
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_finite_value_survives_a_round_trip() {
        for dtype in [Dtype::F16, Dtype::Bf16] {
            for bits in 0..=u16::MAX {
                let value = dtype.decode(bits);
                if value.is_finite() {
                    assert_eq!(dtype.encode(value), bits, "{dtype:?} {bits:#06x} {value}");
                }
            }
        }
    }

    #[test]
    fn known_values() {
        for (value, f16, bf16) in [(1.0, 0x3c00, 0x3f80), (-2.0, 0xc000, 0xc000), (0.5, 0x3800, 0x3f00)] {
            assert_eq!((Dtype::F16.encode(value), Dtype::Bf16.encode(value)), (f16, bf16));
        }
        assert_eq!(Dtype::F16.decode(0x7bff), 65504.0);
        assert_eq!(Dtype::F16.encode(65519.0), 0x7bff);
        assert_eq!(Dtype::F16.encode(65520.0), 0x7c00);
        assert_eq!(Dtype::F16.decode(0x0001), 2.0_f32.powi(-24));
    }

    #[test]
    fn ties_go_to_even() {
        // Halfway between 1 and the next f16, 1 + 2^-10.
        assert_eq!(Dtype::F16.encode(1.0 + 2.0_f32.powi(-11)), 0x3c00);
        assert_eq!(Dtype::F16.encode(1.0 + 3.0 * 2.0_f32.powi(-11)), 0x3c02);
        assert_eq!(Dtype::Bf16.encode(1.0 + 2.0_f32.powi(-8)), 0x3f80);
        assert_eq!(Dtype::Bf16.encode(1.0 + 3.0 * 2.0_f32.powi(-8)), 0x3f82);
    }
}
