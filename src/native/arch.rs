//! GPU architectures, which device code runs on which, and the driver that PTX needs.

use std::fmt;
use std::str::FromStr;

/// What a target may use beyond the instructions that later GPUs keep.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub enum Variant {
    /// `sm_90`: portable within its rules.
    #[default]
    Portable,
    /// `sm_100f`: runs on its family only.
    Family,
    /// `sm_90a`: runs on exactly this architecture.
    Specific,
}

/// `sm_120`, `sm_90a`, `compute_100f`: a compute capability and its variant.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Arch {
    /// 12 of 12.0.
    pub major: u32,
    /// 0 of 12.0.
    pub minor: u32,
    /// The suffix.
    pub variant: Variant,
}

impl Arch {
    /// The portable architecture of a device of this compute capability.
    pub fn device(major: u32, minor: u32) -> Arch {
        Arch { major, minor, variant: Variant::Portable }
    }

    /// From the number that fat binaries and macros use: 120 is 12.0.
    pub fn from_number(number: u32, variant: Variant) -> Arch {
        Arch { major: number / 10, minor: number % 10, variant }
    }

    /// 120 for 12.0.
    pub fn number(self) -> u32 {
        self.major.saturating_mul(10).saturating_add(self.minor)
    }

    fn suffix(self) -> &'static str {
        match self.variant {
            Variant::Portable => "",
            Variant::Family => "f",
            Variant::Specific => "a",
        }
    }

    /// As PTX targets are written: `compute_80`.
    pub fn compute(self) -> String {
        format!("compute_{}{}", self.number(), self.suffix())
    }

    /// The name that compilers use for kernels tuned to this device: `sm_120a` from 9.0 on, `sm_89` before.
    pub fn tuned(self) -> Arch {
        if self.major >= 9 { Arch { variant: Variant::Specific, ..self } } else { self }
    }

    /// Whether machine code built for `self` runs on `device`.
    pub fn cubin_runs_on(self, device: Arch) -> bool {
        match self.variant {
            Variant::Specific => self.major == device.major && self.minor == device.minor,
            Variant::Family | Variant::Portable => self.major == device.major && self.minor <= device.minor,
        }
    }

    /// Whether the driver of `device` can compile PTX written for `self`.
    pub fn ptx_runs_on(self, device: Arch) -> bool {
        match self.variant {
            Variant::Portable => (self.major, self.minor) <= (device.major, device.minor),
            Variant::Family | Variant::Specific => self.cubin_runs_on(device),
        }
    }
}

impl fmt::Display for Arch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "sm_{}{}", self.number(), self.suffix())
    }
}

impl FromStr for Arch {
    type Err = String;

    /// Reads `sm_120`, `sm120`, `120`, `12.0`, each with `a` or `f` or nothing behind.
    fn from_str(text: &str) -> Result<Arch, String> {
        let refuse = || format!("`{text}` is not an architecture like sm_120");
        let lower = text.trim().to_ascii_lowercase();
        let rest = lower.strip_prefix("sm_").or_else(|| lower.strip_prefix("sm")).unwrap_or(&lower);
        let (digits, variant) = match rest.as_bytes().last() {
            Some(b'a') => (&rest[..rest.len() - 1], Variant::Specific),
            Some(b'f') => (&rest[..rest.len() - 1], Variant::Family),
            _ => (rest, Variant::Portable),
        };
        let number = |text: &str| -> Result<u32, String> {
            let plain = (1..=3).contains(&text.len()) && text.bytes().all(|b| b.is_ascii_digit());
            if plain { text.parse().map_err(|_| refuse()) } else { Err(refuse()) }
        };
        match digits.split_once('.') {
            Some((major, minor)) if minor.len() == 1 => {
                Ok(Arch { major: number(major)?, minor: number(minor)?, variant })
            }
            Some(_) => Err(refuse()),
            None if digits.len() >= 2 => Ok(Arch::from_number(number(digits)?, variant)),
            None => Err(refuse()),
        }
    }
}

/// A CUDA version, of a driver (what `cuDriverGetVersion` says) or of a toolkit.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct CudaVersion {
    /// 13 of 13.0.
    pub major: u32,
    /// 0 of 13.0.
    pub minor: u32,
}

impl CudaVersion {
    /// From the number of `cuDriverGetVersion`: 13010 is 13.1.
    pub fn from_number(number: u32) -> CudaVersion {
        CudaVersion { major: number / 1000, minor: number % 1000 / 10 }
    }
}

impl fmt::Display for CudaVersion {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}", self.major, self.minor)
    }
}

/// The first CUDA driver that compiles PTX of this ISA.
///
/// The PTX ISA manual's release table. From 9.0 on the minor numbers of the two run in step, and so they are
/// assumed to go on.
pub fn driver_for_isa((major, minor): (u32, u32)) -> CudaVersion {
    let (major, minor) = match (major, minor) {
        (0..=6, _) => (10, 2),
        (7, minor) => (11, minor),
        (8, minor @ 0..=5) => (12, minor),
        (8, 6) => (12, 7),
        (8, 7) => (12, 8),
        (8, _) => (12, 9),
        (major, minor) => (major.saturating_add(4), minor),
    };
    CudaVersion { major, minor }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn arch(text: &str) -> Arch {
        text.parse().expect(text)
    }

    #[test]
    fn reads_every_spelling() {
        for text in ["sm_120", "SM120", "120", "12.0", " sm_120 "] {
            assert_eq!(arch(text), Arch::device(12, 0), "{text}");
        }
        assert_eq!(arch("9.0a").to_string(), "sm_90a");
        assert_eq!(arch("sm_100f").compute(), "compute_100f");
        for text in ["", "sm_", "x", "12.", "12.00", "sm_12x", "a", "sm_99999", "9", "é"] {
            assert!(text.parse::<Arch>().is_err(), "{text}");
        }
    }

    #[test]
    fn machine_code_runs_within_a_major_version() {
        let runs = |code: &str, device: &str| arch(code).cubin_runs_on(arch(device));
        assert!(runs("sm_80", "sm_80") && runs("sm_80", "sm_86") && runs("sm_86", "sm_89"));
        assert!(!runs("sm_86", "sm_80") && !runs("sm_80", "sm_90") && !runs("sm_90", "sm_100"));
        assert!(runs("sm_120", "sm_121") && !runs("sm_100", "sm_120") && !runs("sm_100f", "sm_120"));
        assert!(runs("sm_90a", "sm_90") && !runs("sm_120a", "sm_121") && !runs("sm_100a", "sm_103"));
        assert!(runs("sm_100f", "sm_103") && runs("sm_120f", "sm_121") && !runs("sm_103f", "sm_100"));
    }

    #[test]
    fn ptx_runs_on_everything_later_unless_it_is_specific() {
        let runs = |code: &str, device: &str| arch(code).ptx_runs_on(arch(device));
        assert!(runs("sm_80", "sm_80") && runs("sm_80", "sm_120") && !runs("sm_90", "sm_89"));
        assert!(!runs("sm_90a", "sm_100") && runs("sm_90a", "sm_90") && runs("sm_100f", "sm_103"));
    }

    #[test]
    fn isa_table() {
        let driver = |major, minor| driver_for_isa((major, minor)).to_string();
        let table = [(7, 0), (7, 8), (8, 0), (8, 5), (8, 6), (8, 7), (8, 8), (9, 0), (9, 1)].map(|(a, b)| driver(a, b));
        assert_eq!(table, ["11.0", "11.8", "12.0", "12.5", "12.7", "12.8", "12.9", "13.0", "13.1"]);
        assert_eq!(CudaVersion::from_number(12080).to_string(), "12.8");
    }
}
