//! Replays the inputs of `tests/fuzz/corpus`: seeds, what once went wrong, and all of them cut short. `scripts/fuzz.sh`
//! makes more.

#[path = "fuzz/targets.rs"]
mod targets;

use std::fs;
use std::path::Path;

/// The program gives its threads this much stack (src/main.rs).
const STACK: usize = 256 << 20;

#[test]
fn every_input_of_the_corpus_comes_back() {
    let threads = targets::ALL.map(|(name, target)| {
        let corpus = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fuzz/corpus").join(name);
        let run = move || {
            let mut count = 0;
            for entry in fs::read_dir(&corpus).expect("a corpus") {
                let bytes = fs::read(entry.expect("an entry").path()).expect("an input");
                target(&bytes);
                for part in 1..8 {
                    target(&bytes[..bytes.len() * part / 8]);
                }
                count += 1;
            }
            assert!(count > 0, "{name}");
        };
        std::thread::Builder::new().name(name.to_owned()).stack_size(STACK).spawn(run).expect("a thread")
    });
    for thread in threads {
        let name = thread.thread().name().unwrap_or_default().to_owned();
        assert!(thread.join().is_ok(), "{name}");
    }
}

#[test]
fn the_corpus_stays_small() {
    let files = walkdir::WalkDir::new(Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fuzz/corpus"));
    let sizes = files.into_iter().map(|entry| entry.expect("an entry").metadata().expect("metadata"));
    let total: u64 = sizes.filter(|metadata| metadata.is_file()).map(|metadata| metadata.len()).sum();
    assert!(total < 1 << 20, "{total} bytes");
}
