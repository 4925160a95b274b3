//! Readers of bytes that nobody vouches for. Each must come back, whatever it is given. Shared by libFuzzer
//! (`driver.rs`) and by the test that replays `corpus/` (`../fuzz.rs`).

use std::cell::RefCell;
use std::fs;
use std::path::{Path, PathBuf};

use fa_doctor::config::Settings;
use fa_doctor::config::baseline::Baseline;
use fa_doctor::environment::{EntryKind, Request, RootId, Tree};
use fa_doctor::merge::merge;
use fa_doctor::native::arch::Arch;
use fa_doctor::native::coverage::{Coverage, targets};
use fa_doctor::native::elf::{Elf, skeleton};
use fa_doctor::native::ptxas::Ptxas;
use fa_doctor::native::{fatbin, schema, sparse, symbols};
use fa_doctor::packs::Packs;
use fa_doctor::progress::Progress;
use fa_doctor::python::{self, Origin, Symbol};
use fa_doctor::report::{Format, Style, Workplace};
use fa_doctor::scan::{Options, scan};
use fa_doctor::{pin, probe};

/// A reader that must come back.
pub type Target = fn(&[u8]);

/// A name for each reader; `corpus/NAME-*` are its inputs.
pub const ALL: [(&str, Target); 6] =
    [("native", native), ("wheel", wheel), ("python", python), ("site", site), ("text", text), ("result", result)];

/// What separates the files that one input stands for.
const BETWEEN: &[u8] = b"\n----\n";

thread_local! {
    /// One folder for all inputs of a thread: making one for each would be most of the time.
    static PLACE: RefCell<tempfile::TempDir> = RefCell::new(tempfile::tempdir().expect("a folder"));
}

fn place() -> PathBuf {
    PLACE.with_borrow(|place| place.path().to_owned())
}

/// Libraries: ELF tables, device code, schemas, ptxas.
fn native(bytes: &[u8]) {
    let streamed = sparse::read(&mut &*bytes, bytes.len() as u64).expect("a stream of this length");
    let whole = Elf::parse(bytes).ok().map(|elf| elf.undefined());
    assert_eq!(whole, Elf::parse(&streamed[..bytes.len()]).ok().map(|elf| elf.undefined()));
    let _ = fatbin::parse(bytes);
    let _ = Ptxas::read(bytes);
    let _ = probe::cubin::usage(bytes);
    schema::all(bytes);
    schema::find(bytes, "attend");
    let Ok(elf) = Elf::parse(bytes) else { return };
    if let Ok(containers) = fatbin::read(&elf) {
        targets(&containers);
        Coverage::of(&containers, Arch::device(12, 0)).verdict();
    }
    symbols::explain(elf.undefined().iter().collect(), &[&elf]);
    elf.exports(b"own");
    elf.exports(b"a name that is not there");
    let _ = elf.exported().count();
    let _ = elf.versions_needed();
    let _ = elf.versions_defined();
    let _ = skeleton(bytes).map(|bones| Elf::parse(&bones).is_ok());
}

/// A wheel: its directory, every small file in it, and a scan of the whole.
fn wheel(bytes: &[u8]) {
    let path = place().join("flash_attn_4-4.99.0-py3-none-any.whl");
    fs::write(&path, bytes).expect("a file");
    let Ok(tree) = Tree::wheel(&path) else { return };
    for name in tree.walk("", &|_| true).iter().take(64) {
        assert_eq!(tree.kind(name), Some(EntryKind::File));
        if tree.size(name).is_some_and(|size| size < 1 << 20) {
            let _ = tree.read(name);
        }
    }
    scan_of(path);
}

/// A Python source.
fn python(bytes: &[u8]) {
    let origin = Origin { name: Symbol::new("x"), is_package: false, root: RootId(0), path: "x.py".into() };
    let _ = python::index(bytes, origin);
}

/// An environment: METADATA, RECORD, a .pth file and sources, as one input, through every rule and format.
fn site(bytes: &[u8]) {
    let folder = place().join("site");
    let info = "flash_attn_4-4.99.0.dist-info";
    let names = [
        format!("{info}/METADATA"),
        format!("{info}/RECORD"),
        "paths.pth".to_owned(),
        "flash_attn/cute/forward.py".to_owned(),
        "flash_attn/cute/__init__.py".to_owned(),
        "vllm/__init__.py".to_owned(),
        "CMakeLists.txt".to_owned(),
    ];
    let mut rest = bytes;
    for name in names {
        let end = rest.windows(BETWEEN.len()).position(|window| window == BETWEEN);
        write(&folder.join(name), &rest[..end.unwrap_or(rest.len())]);
        rest = end.map_or(&[], |end| &rest[end + BETWEEN.len()..]);
    }
    scan_of(folder);
}

/// Settings, packs, baselines, pins.
fn text(bytes: &[u8]) {
    let path = |name: &str| place().join(name);
    for name in ["fa-doctor.toml", "pyproject.toml", "uv.lock", "requirements.txt", "baseline.json"] {
        write(&path(name), bytes);
    }
    for name in ["fa-doctor.toml", "pyproject.toml"] {
        let _ = Settings::load(Some(&path(name)), &place()).map_err(|error| error.to_string());
    }
    let _ = Baseline::read(&path("baseline.json"));
    for name in ["pyproject.toml", "uv.lock", "requirements.txt"] {
        let _ = pin::read(&path(name));
    }
    let text = String::from_utf8_lossy(bytes);
    let _ = Packs::embedded().add("x.toml", &text).map_err(|error| error.to_string());
    let _ = text.parse::<Arch>();
    let _ = schema::parse(&text);
    symbols::demangle(&text);
    symbols::demangle_name(&text);
}

/// Results of nodes.
fn result(bytes: &[u8]) {
    let text = String::from_utf8_lossy(bytes).into_owned();
    let names = ["node-1.json", "node-2.smoke.json"];
    if let Ok(merged) = merge(names.map(|name| (Path::new(name), text.clone()))) {
        assert_eq!(merged.nodes.len(), 2);
    }
}

fn scan_of(path: PathBuf) {
    let request = Request { targets: vec![path], arch: vec!["sm_120".into()], ..Request::default() };
    let options = Options { capabilities: true, all: true, ..Options::default() };
    let Ok(outcome) = scan(&request, &options, &Progress::new(true)) else { return };
    let view = Workplace::new(&outcome.environment, &outcome.packs);
    for format in [Format::Text, Format::Html, Format::Sarif, Format::Markdown] {
        let mut out = Vec::new();
        format.write(&outcome.report, &view, Style::PLAIN, &mut out).expect("writing into memory");
    }
}

fn write(path: &Path, bytes: &[u8]) {
    fs::create_dir_all(path.parent().expect("a folder")).expect("folders");
    fs::write(path, bytes).expect("a file");
}
