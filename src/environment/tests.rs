//! Environments as a whole, from miniature installations.

use super::testing::{Files, files};
use super::*;

fn load(targets: &[&Path]) -> Environment {
    let request = Request { targets: targets.iter().map(|path| path.to_path_buf()).collect(), ..Request::default() };
    Environment::load(&request).unwrap()
}

fn search_path(environment: &Environment) -> Vec<(u32, &str)> {
    environment.search_path.iter().map(|entry| (entry.root.0, entry.prefix.as_str())).collect()
}

fn names(environment: &Environment) -> Vec<String> {
    environment.distributions.iter().map(|d| format!("{} {}", d.name, d.raw_version)).collect()
}

fn metadata(name: &str, version: &str) -> String {
    format!("Metadata-Version: 2.4\nName: {name}\nVersion: {version}\n")
}

/// A site-packages folder with two owners of `flash_attn` and one of `vllm`.
fn site() -> Files {
    let files = files(&[
        ("flash_attn/__init__.py", "two"),
        ("flash_attn/cute/__init__.py", ""),
        ("flash_attn/cute/both.py", "four"),
        ("flash_attn/cute/made_later.py", ""),
        ("vllm/__init__.py", "import flash_attn"),
        ("vllm/unlisted.py", "from . import flash_attn_helpers"),
        ("flash_attn-2.8.3.dist-info/RECORD", "flash_attn/__init__.py,,3\nflash_attn/cute/both.py,,3\n"),
        ("vllm-0.26.0.dist-info/RECORD", "vllm/__init__.py,,\n../../bin/vllm,,\n"),
        ("vllm-0.26.0.dist-info/WHEEL", "Wheel-Version: 1.0\nTag: cp38-abi3-manylinux_2_31_x86_64\n"),
        ("vllm-0.26.0.dist-info/INSTALLER", "uv\n"),
        ("~orch-2.1.dist-info/METADATA", "Name: torch\nVersion: 2.1\n"),
        ("leftover-1.0.dist-info/licenses/LICENSE", ""),
    ]);
    let record = "flash_attn/cute/__init__.py,,0\nflash_attn/cute/both.py,,4\n";
    files.add("flash_attn_4-4.0.0b36.dist-info/RECORD", record);
    files.add("flash_attn_4-4.0.0b36.dist-info/METADATA", metadata("flash-attn-4", "4.0.0b36"));
    files.add("flash_attn-2.8.3.dist-info/METADATA", metadata("flash_attn", "2.8.3"));
    files.add("vllm-0.26.0.dist-info/METADATA", metadata("vllm", "0.26.0") + "Requires-Dist: torch==2.11.0\n\ntext");
    files
}

#[test]
fn distributions_are_read_and_leftovers_are_not() {
    let files = site();
    let environment = load(&[files.path()]);
    assert_eq!(names(&environment), ["flash-attn 2.8.3", "flash-attn-4 4.0.0b36", "vllm 0.26.0"]);
    let vllm = environment.distribution("vllm").unwrap();
    assert_eq!(vllm.requires, [("torch==2.11.0".to_owned(), 4)]);
    assert_eq!(vllm.tags, ["cp38-abi3-manylinux_2_31_x86_64"]);
    assert_eq!(vllm.installer.as_deref(), Some("uv"));
    assert_eq!(vllm.record(&environment.roots[0].tree).len(), 1);
    assert_eq!(environment.roots[0].kind, RootKind::SitePackages);
    assert_eq!((environment.python, environment.sys_platform.as_str()), (None, "linux"));
}

#[test]
fn owners_are_told_by_record_where_names_are_contested() {
    let files = site();
    let environment = load(&[files.path()]);
    let owner = |path: &str| environment.owner(RootId(0), path).map(|d| d.name.as_str());
    assert_eq!(owner("vllm/unlisted.py"), Some("vllm"));
    assert_eq!(owner("flash_attn/__init__.py"), Some("flash-attn"));
    assert_eq!(owner("flash_attn/cute/__init__.py"), Some("flash-attn-4"));
    // Both list it; the bytes are those of the second.
    assert_eq!(owner("flash_attn/cute/both.py"), Some("flash-attn-4"));
    assert_eq!(environment.claimants(RootId(0), "flash_attn/cute/both.py").len(), 2);
    assert_eq!(owner("flash_attn/other/x.py"), Some("flash-attn"));
    assert_eq!(owner("stranger.py"), None);
}

#[test]
fn mentions_are_searched_where_modules_can_be() {
    let files = site();
    files.add("vllm/__pycache__/x.py", "flash_attn");
    files.add("vllm-0.26.0.dist-info/x.py", "flash_attn");
    files.add("vllm/include/ops/x.py", "flash_attn");
    let environment = load(&[files.path()]);
    assert_eq!(environment.files_mentioning(&["flash_attn"]), [(RootId(0), "vllm/__init__.py".to_owned())]);
}

#[test]
fn wheels_together_are_one_installation() {
    let files = files(&[]);
    let code = "import sys, os, dsl; sys.path.insert(0, os.path.join(dsl.__path__[0], 'inner'))\n";
    let top = files
        .wheel("dsl-1-py3-none-any.whl", &[("dsl.pth", code), ("dsl-1.dist-info/METADATA", &metadata("dsl", "1"))]);
    let core = files.wheel(
        "dsl_core-1-py3-none-any.whl",
        &[
            ("dsl/inner/cutlass/__init__.py", "core"),
            ("dsl/both.py", "core"),
            ("dsl_core-1.dist-info/METADATA", &metadata("dsl-core", "1")),
        ],
    );
    let base = files.wheel(
        "dsl_base-1-cp312-cp312-manylinux_2_28_x86_64.whl",
        &[
            ("dsl/inner/cutlass/_mlir/__init__.py", ""),
            ("dsl/both.py", "base"),
            ("dsl_base-1.dist-info/METADATA", &metadata("dsl-base", "1")),
            ("dsl_base-1.dist-info/WHEEL", "Tag: cp312-cp312-manylinux_2_28_x86_64\n"),
        ],
    );
    let environment = load(&[&top, &core, &base]);
    assert_eq!(search_path(&environment), [(0, "dsl/inner"), (0, "")]);
    let root = &environment.roots[0];
    assert_eq!(root.kind, RootKind::Wheel);
    let listed: Vec<_> = root.tree.list("dsl/inner/cutlass").into_iter().map(|(name, _)| name).collect();
    assert_eq!(listed, ["__init__.py", "_mlir"]);
    assert_eq!(root.tree.read("dsl/both.py").unwrap(), b"base");
    assert_eq!(environment.label_of(RootId(0), "dsl/both.py"), base.display().to_string());
    assert_eq!(environment.label_of(RootId(0), "dsl-1.dist-info"), top.display().to_string());
    assert_eq!(environment.labels().len(), 3);
    assert_eq!(environment.python, Some((3, 12)));
    assert_eq!(root.tree.on_disk("dsl/both.py"), None);
    assert_eq!(names(&environment), ["dsl 1", "dsl-base 1", "dsl-core 1"]);
}

#[test]
fn unpacked_wheels_together_are_one_installation_on_disk() {
    let files = files(&[
        ("one/pkg/__init__.py", ""),
        ("one/one-1.dist-info/METADATA", "Name: one\nVersion: 1\n"),
        ("one/one-1.dist-info/WHEEL", ""),
        ("two/pkg/sub/m.py", ""),
        ("two/two-1.dist-info/METADATA", "Name: two\nVersion: 1\n"),
        ("two/two-1.dist-info/WHEEL", ""),
    ]);
    let environment = load(&[files.path()]);
    let tree = &environment.roots[0].tree;
    assert_eq!(tree.on_disk("pkg/__init__.py"), Some(files.path().join("one/pkg/__init__.py")));
    assert_eq!(tree.on_disk("pkg/sub/new.py"), Some(files.path().join("two/pkg/sub/new.py")));
    assert_eq!(tree.walk("", &|path| path.ends_with(".py")), ["pkg/__init__.py", "pkg/sub/m.py"]);
}

#[test]
fn pth_files_extend_the_path() {
    let files = files(&[
        ("site-packages/b.pth", "inside\n../outside\nmissing\n# no\n"),
        ("site-packages/a.pth", "import sys, os, dsl; sys.path.insert(0, os.path.join(dsl.__path__[0], 'x'))\n"),
        ("site-packages/.hidden.pth", "hidden\n"),
        ("site-packages/hidden/h.py", ""),
        ("site-packages/inside/i.py", ""),
        ("site-packages/dsl/x/y.py", ""),
        ("outside/o.py", ""),
    ]);
    files.add("site-packages/c.pth", files.path().join("outside").display().to_string());
    let environment = load(&[&files.path().join("site-packages")]);
    assert_eq!(search_path(&environment), [(0, "dsl/x"), (0, ""), (0, "inside"), (1, "")]);
    assert_eq!(environment.roots[1].kind, RootKind::Checkout);
    assert!(environment.roots[1].tree.is_file("o.py"));
}

#[test]
fn a_folder_of_everything_shows_what_can_be_imported() {
    let files = files(&[
        ("home/lone.py", ""),
        ("home/pkg/__init__.py", ""),
        ("home/scripts/run.py", ""),
        ("home/ns/inner/__init__.py", ""),
        ("home/data/deep/er/x.py", ""),
        ("home/my-project/x.py", ""),
        ("home/notes.txt", ""),
        ("home/a-1.dist-info/METADATA", "Name: a\nVersion: 1\n"),
        ("project/setup.py", "setup(name='p')"),
        ("project/cmake/x.cmake", ""),
        ("site-packages/a.pth", "../home\n../project\n/\n"),
    ]);
    let environment = load(&[&files.path().join("site-packages")]);
    let shown =
        |root: usize| environment.roots[root].tree.list("").into_iter().map(|(name, _)| name).collect::<Vec<_>>();
    assert_eq!(shown(1), ["a-1.dist-info", "lone.py", "ns", "pkg", "scripts"]);
    assert_eq!(shown(2), ["cmake", "setup.py"]);
    assert_eq!(environment.roots.len(), 3);
    assert_eq!(names(&environment), ["a 1"]);
}

#[cfg(unix)]
#[test]
fn editable_installs_show_what_they_map() {
    let files = files(&[
        ("src/vllm/__init__.py", ""),
        ("src/vllm/a.py", "import flash_attn"),
        ("src/tests/t.py", "import flash_attn"),
        ("src/single.py", ""),
        (
            "site-packages/__editable__.vllm-0.26.0.pth",
            "import __editable___vllm_finder; __editable___vllm_finder.install()",
        ),
        ("site-packages/vllm-0.26.0.dist-info/METADATA", "Name: vllm\nVersion: 0.26.0\n"),
        ("site-packages/vllm-0.26.0.dist-info/RECORD", "__editable___vllm_finder.py,,\n"),
    ]);
    let src = files.path().join("src").display().to_string();
    let mapping = format!("MAPPING: dict[str, str] = {{'vllm': '{src}/vllm', 'single': '{src}/single'}}\n");
    files.add("site-packages/__editable___vllm_finder.py", mapping);
    let direct = format!(r#"{{"url": "file://{src}", "dir_info": {{"editable": true}}}}"#);
    files.add("site-packages/vllm-0.26.0.dist-info/direct_url.json", direct);
    let environment = load(&[&files.path().join("site-packages")]);
    let root = &environment.roots[1];
    assert_eq!(root.tree.walk("", &|_| true), ["single.py", "vllm/__init__.py", "vllm/a.py"]);
    assert_eq!(root.tree.on_disk("vllm/a.py"), Some(files.path().join("src/vllm/a.py")));
    assert_eq!(environment.files_mentioning(&["flash_attn"]), [(RootId(1), "vllm/a.py".to_owned())]);
    assert_eq!(environment.owner(RootId(1), "vllm/a.py").map(|d| d.name.as_str()), Some("vllm"));
}

#[test]
fn a_checkout_is_called_what_its_files_say() {
    let files = files(&[
        ("setup.py", "NAME = \"Flash_Attn\"\next(name=\"other\")\nsetup(\n    name=NAME,\n    version=version(),\n)\n"),
        ("pyproject.toml", "[tool.setuptools.packages.find]\nwhere = [\"lib\"]\n"),
        ("flash_attn/__init__.py", "__version__ = \"2.8.3\"\n"),
        ("flash_attn/pyproject.toml", "[tool.ruff]\n"),
        ("flash_attn/cute/__init__.py", ""),
        ("flash_attn/cute/pyproject.toml", "[project]\nname = \"flash-attn-4\"\ndynamic = [\"version\"]\n"),
        ("hopper/__init__.py", "__version__ = '3.0.0'\n"),
        ("hopper/setup.py", "setup(name='flash_attn_3', version=read())\n"),
        ("hopper/flash_attn_interface.py", ""),
        ("lib/x/__init__.py", ""),
        ("src/__init__.py", ""),
        ("tests/t.py", ""),
    ]);
    let environment = load(&[files.path()]);
    assert_eq!(search_path(&environment), [(0, ""), (0, "lib"), (0, "hopper")]);
    assert_eq!(names(&environment), ["flash-attn 2.8.3", "flash-attn-3 3.0.0", "flash-attn-4 unknown"]);
    let owner = |path: &str| environment.owner(RootId(0), path).map(|d| d.name.as_str());
    assert_eq!(owner("flash_attn/__init__.py"), Some("flash-attn"));
    assert_eq!(owner("flash_attn/cute/interface.py"), Some("flash-attn-4"));
    assert_eq!(owner("hopper/flash_attn_interface.py"), Some("flash-attn-3"));
    for package in ["flash_attn", "flash_attn/cute"] {
        assert_eq!(search_path(&load(&[&files.path().join(package)])), search_path(&environment));
    }
}

#[test]
fn eggs_and_nameless_metadata_are_distributions_too() {
    let files = files(&[
        ("site-packages/a.egg-info/PKG-INFO", "Name: a\nVersion: 1\n"),
        ("site-packages/a.egg-info/requires.txt", "torch\n[x]\nb\n"),
        ("site-packages/b-2-py3.12.egg-info", "Name: b\nVersion: 2\n"),
        ("site-packages/c-3.dist-info/METADATA", "nothing here"),
        ("site-packages/d-4.dist-info/RECORD", ""),
    ]);
    let environment = load(&[&files.path().join("site-packages")]);
    assert_eq!(names(&environment), ["a 1", "b 2", "c 3", "d 4"]);
    assert_eq!(environment.distributions[0].requires[1], ("b ; extra == \"x\"".to_owned(), 3));
}

#[test]
fn architectures_are_normalised_and_kept_once() {
    let files = site();
    let request = |arch: &[&str]| Request {
        targets: vec![files.path().to_owned()],
        arch: arch.iter().map(|text| text.to_string()).collect(),
        ..Request::default()
    };
    let environment = Environment::load(&request(&["12.0", "sm_120a", "90"])).unwrap();
    assert_eq!(environment.arch, ["sm_120", "sm_90"]);
    assert_eq!(Environment::load(&request(&["hopper"])).unwrap_err().exit_code(), 2);
}

#[test]
fn bad_wheels_have_messages_of_their_own() {
    let files = files(&[("html-1-py3-none-any.whl", "<html>")]);
    let whole = files.wheel("a-1-py3-none-any.whl", &[("a.py", "x = 1")]);
    let cut = files.add("cut-1-py3-none-any.whl", &std::fs::read(whole).unwrap()[..60]);
    let message = |path: &Path| {
        let error = Environment::load(&Request { targets: vec![path.to_owned()], ..Request::default() }).unwrap_err();
        assert_eq!(error.exit_code(), 3);
        error.to_string()
    };
    assert!(message(&cut).contains("truncated"));
    assert!(message(&files.path().join("html-1-py3-none-any.whl")).contains("web page"));
}

#[cfg(unix)]
#[test]
fn an_interpreter_comes_behind_the_targets() {
    use std::os::unix::fs::PermissionsExt;
    let files = files(&[
        ("lib/python3.12/os.py", ""),
        ("lib/python3.12/lib-dynload/x.so", ""),
        ("lib/python3.12/site-packages/torch-2.dist-info/METADATA", "Name: torch\nVersion: 2\n"),
        ("extra/e.py", ""),
    ]);
    let at = |name: &str| files.path().join(name).display().to_string();
    let (library, dynamic, site) =
        (at("lib/python3.12"), at("lib/python3.12/lib-dynload"), at("lib/python3.12/site-packages"));
    let answer = format!(
        r#"{{"version": [3, 12], "executable": "/x/python", "prefix": "/x", "base_prefix": "/x", "platform": "linux",
        "path": ["{}", "{library}.zip", "{library}", "{dynamic}", "{site}"], "sites": ["{site}"], "library": ["{library}"]}}"#,
        at("extra")
    );
    let python = files.add("python", format!("#!/bin/sh\necho 'fa-doctor-probe:{}'\n", answer.replace('\n', " ")));
    std::fs::set_permissions(&python, std::fs::Permissions::from_mode(0o755)).unwrap();
    let wheel = files.wheel("vllm-1-py3-none-any.whl", &[("vllm-1.dist-info/METADATA", "Name: vllm\nVersion: 1\n")]);
    let request = Request { targets: vec![wheel], python: Some(python), ..Request::default() };
    let environment = Environment::load(&request).unwrap();
    assert_eq!(search_path(&environment), [(0, ""), (1, ""), (2, ""), (2, "lib-dynload"), (3, "")]);
    let kinds: Vec<_> = environment.roots.iter().map(|root| root.kind).collect();
    assert_eq!(kinds, [RootKind::Wheel, RootKind::Checkout, RootKind::StandardLibrary, RootKind::SitePackages]);
    assert_eq!(names(&environment), ["vllm 1", "torch 2"]);
    assert_eq!(environment.python, Some((3, 12)));
    assert_eq!(environment.interpreter, Some(PathBuf::from("/x/python")));
}
