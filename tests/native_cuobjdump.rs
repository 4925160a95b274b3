//! Device code as we list it against what NVIDIA's `cuobjdump` lists, library by library.
//!
//! `scripts/cuobjdump.py` fetches both and runs this.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::Command;

use fa_doctor::native::elf::Elf;
use fa_doctor::native::fatbin;

/// How often a library holds each kind of code: `ELF sm_90a`, `PTX sm_80`.
type Listing = BTreeMap<String, usize>;

/// The paths in an environment variable.
fn paths(variable: &str) -> Vec<PathBuf> {
    let value = std::env::var_os(variable).unwrap_or_else(|| panic!("{variable} is not set: run scripts/cuobjdump.py"));
    std::env::split_paths(&value).collect()
}

/// Ours, with PTX named by the machine it targets, as cuobjdump does.
fn ours(path: &Path) -> Listing {
    let bytes = std::fs::read(path).expect("a library");
    let containers = fatbin::read(&Elf::parse(&bytes).expect("a library")).expect("device code");
    let mut listing = Listing::new();
    for code in containers.iter().flatten() {
        let kind = if code.isa.is_some() { "PTX" } else { "ELF" };
        *listing.entry(format!("{kind} {}", code.arch)).or_default() += 1;
    }
    listing
}

/// `ELF file    1: name.1.sm_80.cubin`, one line for each entry.
fn theirs(cuobjdump: &Path, path: &Path) -> Listing {
    let output = Command::new(cuobjdump).args(["-lelf", "-lptx"]).arg(path).output().expect("cuobjdump");
    assert!(output.status.success(), "{}: {}", path.display(), String::from_utf8_lossy(&output.stderr));
    let mut listing = Listing::new();
    for line in String::from_utf8_lossy(&output.stdout).lines() {
        let Some((kind, name)) = line.split_once(" file ") else { continue };
        let target = name.rsplit('.').nth(1).unwrap_or_default();
        *listing.entry(format!("{kind} {target}")).or_default() += 1;
    }
    listing
}

/// cuobjdump names some family targets without their `f`.
fn without_families(listing: &Listing) -> Listing {
    let mut merged = Listing::new();
    for (name, count) in listing {
        *merged.entry(name.trim_end_matches('f').to_owned()).or_default() += count;
    }
    merged
}

#[test]
#[ignore = "needs NVIDIA's cuobjdump and real libraries: scripts/cuobjdump.py"]
fn agrees_with_cuobjdump() {
    let cuobjdump = paths("FA_DOCTOR_CUOBJDUMP").remove(0);
    let libraries = paths("FA_DOCTOR_LIBRARIES");
    assert!(libraries.len() >= 5, "at least five libraries make a comparison");
    for library in libraries {
        let (ours, theirs) = (ours(&library), theirs(&cuobjdump, &library));
        let same = ours == theirs;
        println!(
            "{}: {} entries, {}",
            library.display(),
            ours.values().sum::<usize>(),
            if same { "identical" } else { "but for families" }
        );
        assert_eq!(without_families(&ours), without_families(&theirs), "{}", library.display());
    }
}
