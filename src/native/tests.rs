//! Readers of foreign bytes against libraries that the fixture writes, damages and makes up.

use object::elf as raw;
use proptest::prelude::*;

use super::arch::Arch;
use super::coverage::targets;
use super::elf::{Elf, ElfError, Machine, skeleton};
use super::fatbin::{FatbinError, parse, read};
use super::fixture::{Library, fatbin};
use super::ptxas::Ptxas;
use super::schema;
use super::sparse;

/// A library with something in every table.
fn library() -> Library {
    Library::default()
        .soname("libx.so.1")
        .needs(&["libc10.so", "libc.so.6"])
        .runpath("$ORIGIN/../lib:/opt/lib")
        .undefined(&["_ZN3c103fooEv"])
        .weak("__gmon_start__")
        .versioned("memcpy", "libc.so.6", "GLIBC_2.14")
        .exports(&["own", "other"])
        .defines_versions(&["X_1.0", "X_2.0"])
        .fatbin(&["sm_80 compute_80@9.0", "sm_90a"])
        .section(".rodata", *b"\0attend(Tensor! q, int n=1) -> Tensor[]\0")
}

#[test]
fn reads_every_table() {
    for file in [library().build(), library().big_endian().build(), library().without_hash().build()] {
        let elf = Elf::parse(&file).expect("a library");
        assert_eq!(elf.soname.as_deref(), Some("libx.so.1"));
        assert_eq!(elf.needed, ["libc10.so", "libc.so.6"]);
        assert_eq!(elf.search_folders(), ["$ORIGIN/../lib", "/opt/lib"]);
        let undefined = elf.undefined();
        let names: Vec<_> = undefined.iter().map(|symbol| (symbol.name, symbol.weak)).collect();
        assert_eq!(names, [(b"_ZN3c103fooEv".as_slice(), false), (b"__gmon_start__", true), (b"memcpy", false)]);
        assert_eq!(undefined[2].version, Some(("libc.so.6".to_owned(), "GLIBC_2.14".to_owned())));
        assert!(elf.exports(b"own") && elf.exports(b"other"));
        assert!(!elf.exports(b"memcpy") && !elf.exports(b"") && !elf.exports(b"own2"));
        assert_eq!(elf.exported().count(), 2);
        assert!(elf.versions_needed().expect("versions")["libc.so.6"].contains("GLIBC_2.14"));
        assert_eq!(elf.versions_defined().expect("versions").len(), 2);
    }
}

#[test]
fn tells_other_formats_apart() {
    let error = |bytes: &[u8]| Elf::parse(bytes).expect_err("no library");
    assert_eq!(error(b"\x7fELF\x01\x01"), ElfError::Not64Bit);
    assert_eq!(error(b"MZ\x90\0"), ElfError::Windows);
    assert_eq!(error(&[0xcf, 0xfa, 0xed, 0xfe, 0, 0]), ElfError::MacOs);
    for other in [b"".as_slice(), b"\x7fELF", b"version https://git-lfs.github.com/spec/v1"] {
        assert_eq!(error(other), ElfError::NotElf);
    }
    assert!(matches!(error(b"\x7fELF\x02"), ElfError::Malformed(_)));
    let arm = Library::default().machine(raw::EM_AARCH64).build();
    assert_eq!(Elf::parse(&arm).expect("a library").machine, Machine::Aarch64);
}

#[test]
fn a_skeleton_has_the_same_tables_and_nothing_else() {
    let big = library().section(".text", vec![0x90; 1 << 20]);
    for file in [big.build(), big.big_endian().build()] {
        let bones = skeleton(&file).expect("a skeleton");
        assert!(bones.len() < 4096, "{}", bones.len());
        let (before, after) = (Elf::parse(&file).expect("a library"), Elf::parse(&bones).expect("a library"));
        assert_eq!(before.needed, after.needed);
        assert_eq!(before.undefined(), after.undefined());
        assert!(after.exports(b"own") && !after.exports(b"memcpy"));
        assert_eq!(before.versions_needed(), after.versions_needed());
        assert_eq!(before.versions_defined(), after.versions_defined());
        assert_eq!(after.section(b".nv_fatbin"), Ok(Some(b"".as_slice())));
    }
}

#[test]
fn a_stream_is_kept_where_it_is_read() {
    const BIG: usize = 3 << 20;
    let code = fatbin(&["sm_80 compute_80@9.0", "sm_90a sm_120f"], BIG);
    let library = library().section(".text", vec![0x90; BIG]).section("__nv_relfatbin", code);
    for file in [library.build(), library.big_endian().build()] {
        let kept = sparse::read(&mut file.as_slice(), file.len() as u64).expect("a file");
        assert_eq!(kept.len(), file.len());
        let zeros = kept.iter().filter(|&&byte| byte == 0).count();
        if cfg!(target_os = "linux") {
            assert!(zeros > file.len() - (1 << 18), "{zeros} of {}", file.len());
        }
        let (whole, part) = (Elf::parse(&file).expect("a library"), Elf::parse(&kept).expect("a library"));
        assert_eq!(whole.undefined(), part.undefined());
        assert!(part.exports(b"own"));
        assert_eq!(whole.versions_needed(), part.versions_needed());
        assert_eq!(read(&whole), read(&part));
        let section = part.section(b"__nv_relfatbin").expect("a section").expect("there");
        assert_eq!(parse(section), parse(whole.section(b"__nv_relfatbin").expect("a section").expect("there")));
        assert_eq!(skeleton(&file), skeleton(&kept));
        // A stream that ends early is no file.
        assert!(sparse::read(&mut &file[..file.len() - 1], file.len() as u64).is_err());
    }
    assert!(sparse::read(&mut [].as_slice(), 0).is_ok());
}

#[test]
fn reads_device_code() {
    let file = library().build();
    let containers = read(&Elf::parse(&file).expect("a library")).expect("device code");
    assert_eq!(containers.len(), 2);
    assert_eq!(targets(&containers), ["sm_80", "sm_90a", "compute_80"]);
    assert_eq!(containers[0][1].isa, Some((9, 0)));
    assert_eq!(containers[1][0].arch.to_string(), "sm_90a");
    let none = Library::default().build();
    assert_eq!(read(&Elf::parse(&none).expect("a library")), Ok(Vec::new()));
    // Code that waits for the device linker counts only where no linked code is.
    let both = Library::default().section("__nv_relfatbin", fatbin(&["sm_70"], 24)).fatbin(&["sm_80"]).build();
    assert_eq!(targets(&read(&Elf::parse(&both).expect("a library")).expect("device code")), ["sm_80"]);
    let unlinked = Library::default().section("__nv_relfatbin", fatbin(&["sm_100f"], 24)).build();
    assert_eq!(targets(&read(&Elf::parse(&unlinked).expect("a library")).expect("device code")), ["sm_100f"]);
}

#[test]
fn refuses_damaged_device_code() {
    let good = fatbin(&["sm_80 sm_90"], 24);
    let with = |at: usize, bytes: &[u8]| {
        let mut bad = good.clone();
        bad[at..at + bytes.len()].copy_from_slice(bytes);
        parse(&bad)
    };
    assert_eq!(with(8, &u64::MAX.to_le_bytes()), Err(FatbinError::Overrun(0)), "a payload without end");
    assert_eq!(with(6, &8u16.to_le_bytes()), Err(FatbinError::Overrun(0)), "a header shorter than itself");
    assert_eq!(with(16 + 4, &0u32.to_le_bytes()), Err(FatbinError::Entry(16)), "an entry that never ends");
    assert_eq!(with(16 + 8, &u64::MAX.to_le_bytes()), Err(FatbinError::Entry(16)), "an entry past the container");
    assert_eq!(with(16, &9u16.to_le_bytes()).map(|c| c[0].len()), Ok(1), "an entry of another kind is passed over");
    assert_eq!(with(16 + 28, &u32::MAX.to_le_bytes()).map(|c| c[0].len()), Ok(2), "an architecture yet to come");
    assert_eq!(parse(&good[..20]), Err(FatbinError::Overrun(0)));
    assert_eq!(parse(&[0; 64]), Ok(Vec::new()), "nothing but padding");
}

#[test]
fn schemas_come_from_read_only_data_alone() {
    let file = library().section(".text", *b"\0hidden(Tensor q) -> Tensor\0").build();
    let found = schema::find(&file, "attend");
    assert_eq!(found.len(), 1);
    assert_eq!(found[0].arguments.len(), 2);
    assert_eq!(schema::all(&file), found);
    assert!(schema::find(&file, "hidden").is_empty());
    assert!(schema::find(&file, "end").is_empty(), "the end of another name");
    assert!(schema::find(&file, "ns::attend").is_empty());
    assert!(schema::find(b"attend(Tensor q) -> Tensor", "attend").is_empty(), "no library");
}

/// Everything that reads bytes, on `bytes`: must come back, whatever they are.
fn read_all(bytes: &[u8]) {
    let streamed = sparse::read(&mut &*bytes, bytes.len() as u64).expect("a stream of this length");
    let whole = Elf::parse(bytes).ok().map(|elf| elf.undefined());
    assert_eq!(whole, Elf::parse(&streamed[..bytes.len()]).ok().map(|elf| elf.undefined()));
    let _ = parse(bytes);
    let _ = Ptxas::read(bytes);
    schema::all(bytes);
    schema::find(bytes, "attend");
    if let Ok(elf) = Elf::parse(bytes) {
        let _ = read(&elf);
        elf.undefined();
        elf.exports(b"own");
        elf.exports(b"a name that is not there");
        let _ = elf.exported().count();
        let _ = elf.versions_needed();
        let _ = elf.versions_defined();
        let _ = skeleton(bytes).map(|bones| Elf::parse(&bones).is_ok());
    }
}

#[test]
fn no_truncation_panics() {
    let file = library().build();
    for length in 0..file.len() {
        read_all(&file[..length]);
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: cases(), failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn no_damage_panics(damage in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..24), big: bool) {
        let mut file = if big { library().big_endian().build() } else { library().build() };
        for (at, byte) in damage {
            let at = at.index(file.len());
            file[at] = byte;
        }
        read_all(&file);
    }

    #[test]
    fn no_damaged_field_panics(
        damage in prop::collection::vec((any::<prop::sample::Index>(), extreme(), 0usize..4), 1..6),
    ) {
        let mut file = library().build();
        for (at, value, width) in damage {
            let width = 1 << width;
            let at = at.index(file.len()) / width * width;
            let end = file.len().min(at + width);
            file[at..end].copy_from_slice(&value.to_le_bytes()[..end - at]);
        }
        read_all(&file);
    }

    #[test]
    fn no_device_code_panics(bytes in prop::collection::vec(any::<u8>(), 0..300), at in 0usize..4) {
        let mut file = fatbin(&["sm_80 compute_80@8.7", "sm_90a"], 24);
        let at = at * 16;
        let end = file.len().min(at + bytes.len());
        file[at..end].copy_from_slice(&bytes[..end - at]);
        read_all(&file);
    }

    #[test]
    fn no_text_panics(text in "[a-z(){}!?*=,.:>\\[\\] \\-\"é]{0,60}") {
        let _ = schema::parse(&text);
        let _ = text.parse::<Arch>();
        super::symbols::demangle(&text);
        super::symbols::demangle_name(&format!("_ZN{text}"));
        super::symbols::Family::of(text.as_bytes());
    }

    #[test]
    fn what_is_written_is_read(archs in prop::collection::vec((50u32..130, 0u8..3, any::<bool>()), 1..8)) {
        let name = |(number, variant, ptx): &(u32, u8, bool)| {
            let suffix = ["", "a", "f"][usize::from(*variant)];
            if *ptx { format!("compute_{number}{suffix}@9.1") } else { format!("sm_{number}{suffix}") }
        };
        let text: Vec<String> = archs.iter().map(name).collect();
        let containers = parse(&fatbin(&[&text.join(" ")], 24)).expect("device code");
        let read: Vec<String> = containers[0]
            .iter()
            .map(|code| if code.isa.is_some() { format!("{}@9.1", code.arch.compute()) } else { code.arch.to_string() })
            .collect();
        prop_assert_eq!(read, text);
    }
}

/// Numbers that break arithmetic.
fn extreme() -> impl Strategy<Value = u64> {
    prop_oneof![Just(0), Just(1), Just(u64::MAX), Just(u64::MAX - 7), Just(1 << 31), Just(1 << 63), any::<u64>()]
}

/// FA_DOCTOR_FUZZ_CASES for a long run.
fn cases() -> u32 {
    std::env::var("FA_DOCTOR_FUZZ_CASES").ok().and_then(|text| text.parse().ok()).unwrap_or(256)
}
