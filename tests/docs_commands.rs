//! Every command in the documentation and in `--help`, run: in a folder that has what the pages speak of, with
//! stand-ins for the programs of clusters. What is not run is listed with its reason, and is at least shell.

#![cfg(unix)]

mod common;

use std::fs;
use std::io::Write;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use clap::{CommandFactory, Parser};
use fa_doctor::cli::Cli;

use common::{site, write};

/// A kernel that reads a parameter of its launcher, which has a safe fix.
const BROKEN: &str = include_str!("../fixtures/FA001/keyword-launch/bad/flash_attn/cute/forward.py");

/// Beginnings of commands and their exit codes in the folder of [`Bench`], whose environments have one defect each;
/// the first that fits counts. Without one here a command must exit with 0.
const CODES: [(&str, &[i32]); 11] = [
    ("fa-doctor scan --write-baseline", &[0]),
    ("fa-doctor scan --baseline", &[0]),
    ("fa-doctor scan", &[1]),
    // There is no GPU, or there is one, and no DSL in a miniature.
    ("fa-doctor smoke", &[0, 1, 3]),
    ("srun", &[0, 1, 3]),
    ("fa-doctor probe", &[3]),
    ("fa-doctor fix .venv --write --verify", &[3]),
    ("fa-doctor fix .venv --write", &[0]),
    ("fa-doctor fix --write", &[0]),
    ("fa-doctor fix", &[1]),
    ("fa-doctor merge", &[1]),
];

/// Commands that are not run, and why.
const NOT_RUN: [(&str, &str); 10] = [
    ("cargo", "this is a test that cargo runs"),
    ("CC_x86_64_unknown_linux_musl", "minutes of building; the release workflow does it"),
    ("rustup", "the network"),
    ("FA_DOCTOR_CORPUS", "this is a test that cargo runs"),
    ("UPDATE_DOCS", "this is a test that cargo runs"),
    ("python3 scripts/", "released packages of gigabytes; .ci/run does it"),
    ("python scripts/", "NVIDIA's compiler; .ci/run does it"),
    ("scripts/gpu-smoke.sh", "a GPU"),
    ("python3.12 -m venv probe-env", "the network; .ci/run does it"),
    ("probe-env/bin/pip install", "the network; .ci/run does it"),
];

/// A folder with everything that the pages speak of.
struct Bench(tempfile::TempDir);

impl Bench {
    fn new() -> Bench {
        let bench = Bench(tempfile::tempdir().expect("a folder"));
        let place = bench.0.path();
        let packages = "lib/python3.12/site-packages";
        for environment in [".venv", "opt/venv"] {
            site(&place.join(environment).join(packages), BROKEN);
            write(place, &format!("{environment}/pyvenv.cfg"), "version = 3.12.1\n");
            let answer = format!(
                r#"{{"version": [3, 12], "executable": "x", "prefix": "{0}", "base_prefix": "/usr", "path": ["{0}/{packages}"],
                "sites": ["{0}/{packages}"], "library": [], "platform": "linux"}}"#,
                place.join(environment).display()
            );
            let answer = answer.replace('\n', " ");
            bench.program(&format!("{environment}/bin/python"), &format!("echo 'fa-doctor-probe:{answer}'"));
        }
        site(&place.join("path/to/vllm/site"), BROKEN);
        fs::rename(place.join("path/to/vllm/site/flash_attn"), place.join("path/to/vllm/flash_attn"))
            .expect("a folder");
        write(place, "path/to/vllm/pyproject.toml", "[project]\nname = 'flash-attn-4'\nversion = '4.99.0'\n");
        write(place, "requirements.txt", "vllm==0.26.0\n");
        write(place, "results/.keep", "");
        write(place, "home/.local/share/.keep", "");
        fs::create_dir_all(place.join("probe-env")).expect("a folder");
        std::os::unix::fs::symlink(place.join(".venv/bin"), place.join("probe-env/bin")).expect("a link");
        bench.wheel("vllm-0.26.0-cp38-abi3-manylinux_2_28_x86_64.whl", "vllm/vllm_flash_attn/cute/flash_fwd.py");
        std::os::unix::fs::symlink(env!("CARGO_BIN_EXE_fa-doctor"), bench.path("bin/fa-doctor")).expect("a link");
        bench.program("bin/srun", "while case \"${1-}\" in --*) :;; *) false;; esac; do shift; done; exec \"$@\"");
        // The real one is run by tests/packaging.rs and .ci/run. What it reinstalls has the bytes of the release again.
        let release = bench.path("release/forward.py");
        fs::write(&release, BROKEN).expect("a file");
        let installed = place.join(".venv").join(packages).join("flash_attn/cute/forward.py");
        bench.program("bin/pip", &format!("cp {} {}", release.display(), installed.display()));
        bench.program(
            "bin/kubectl",
            "case \"$*\" in *jsonpath*) printf gpu-1;; get*) echo pod/fa-doctor-1;;\n\
             *'-c scan'*) fa-doctor scan .venv --format json || true;;\n\
             *'-c smoke'*) fa-doctor smoke --format json || true;; esac",
        );
        bench
    }

    fn path(&self, name: &str) -> PathBuf {
        let path = self.0.path().join(name);
        fs::create_dir_all(path.parent().expect("a folder")).expect("folders");
        path
    }

    /// A program that is these lines of shell.
    fn program(&self, name: &str, lines: &str) {
        let path = self.path(name);
        fs::write(&path, format!("#!/bin/sh\n{lines}\n")).expect("a script");
        fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).expect("its mode");
    }

    /// A wheel with the broken kernel at this path.
    fn wheel(&self, name: &str, path: &str) {
        let mut parts = name.split('-');
        let (package, version) = (parts.next().expect("a name"), parts.next().expect("a version"));
        let info = format!("{package}-{version}.dist-info");
        let mut wheel = zip::ZipWriter::new(fs::File::create(self.path(name)).expect("a wheel"));
        let mut file = |name: &str, text: &str| {
            wheel.start_file(name, zip::write::SimpleFileOptions::default()).expect("an entry");
            wheel.write_all(text.as_bytes()).expect("its bytes");
        };
        file(path, BROKEN);
        let package_of = path.rsplit_once('/').map_or("", |(folder, _)| folder);
        file(&format!("{package_of}/__init__.py"), "from .flash_fwd import Forward\n");
        // What nothing imports is dead code, and no error.
        let user = format!("from {} import Forward\n", package_of.replace('/', "."));
        file(&format!("{package}/__init__.py"), &user);
        file(&format!("{info}/METADATA"), &format!("Metadata-Version: 2.1\nName: {package}\nVersion: {version}\n"));
        file(&format!("{info}/WHEEL"), "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n");
        file(&format!("{info}/RECORD"), "");
        wheel.finish().expect("a wheel");
    }

    /// Runs a command as a user's shell would.
    fn shell(&self, command: &str) -> Output {
        let place = self.0.path();
        let mut shell = Command::new("bash");
        for variable in ["VIRTUAL_ENV", "CONDA_PREFIX", "CLICOLOR_FORCE", "PYTHONPATH", "XDG_CACHE_HOME"] {
            shell.env_remove(variable);
        }
        let path = std::env::var("PATH").unwrap_or_default();
        shell
            .args(["-uo", "pipefail", "-c", command])
            .current_dir(place)
            .env("HOME", place.join("home"))
            .env("PATH", format!("{}:{path}", place.join("bin").display()))
            .output()
            .expect("bash")
    }

    /// Runs a documented command, or checks its syntax, and judges the exit code.
    fn documented(&self, page: &str, command: &str, Ran { ran, wrong }: &mut Ran) {
        let command = command.strip_prefix("RUN ").unwrap_or(command).replace("/opt/venv", "opt/venv");
        if NOT_RUN.iter().any(|(start, _)| command.starts_with(start)) {
            let syntax = self.shell(&format!("bash -n <<'END'\n{command}\nEND"));
            assert!(syntax.status.success(), "{page}: {command}: {}", String::from_utf8_lossy(&syntax.stderr));
            return;
        }
        // A subcommand that is merely named need not have its arguments.
        if command.split_whitespace().count() == 2 && Cli::try_parse_from(command.split_whitespace()).is_err() {
            return;
        }
        if command.contains("results/*.json") && !self.path("results/gpu-1.json").exists() {
            self.shell("fa-doctor scan .venv --output results/gpu-1.json");
        }
        let output = self.shell(&command);
        let code = output.status.code().unwrap_or(-1);
        let expected = CODES.iter().find(|(start, _)| command.starts_with(start)).map_or(&[0][..], |(_, codes)| codes);
        let said = format!(
            "{}{}",
            String::from_utf8_lossy(&output.stdout).lines().take(20).collect::<Vec<_>>().join("\n"),
            String::from_utf8_lossy(&output.stderr)
        );
        if !expected.contains(&code) || said.contains("panicked") {
            wrong.push(format!("{page}: `{command}` exits with {code}, not {expected:?}:\n{said}"));
        }
        *ran += 1;
    }
}

/// How many commands ran, and which of them not as documented.
#[derive(Default)]
struct Ran {
    ran: usize,
    wrong: Vec<String>,
}

/// The commands of a page: those of a block belong together, and each in running text stands for itself.
#[derive(Default)]
struct Commands {
    blocks: Vec<Vec<String>>,
    inline: Vec<String>,
}

impl Commands {
    fn of(markdown: &str) -> Commands {
        let mut commands = Commands::default();
        let mut lines = markdown.lines().peekable();
        while let Some(line) = lines.next() {
            if let Some(language) = line.strip_prefix("```") {
                let block: Vec<&str> = lines.by_ref().take_while(|line| !line.starts_with("```")).collect();
                match language {
                    "console" => commands.blocks.push(prompted(&block)),
                    "dockerfile" => {
                        let run = block.iter().filter(|line| line.starts_with("RUN "));
                        commands.blocks.push(run.map(|line| line.to_string()).collect());
                    }
                    _ => {}
                }
            } else if line.starts_with("    ") {
                let mut block = vec![line.trim_start()];
                while let Some(line) = lines.next_if(|line| line.starts_with("    ")) {
                    block.push(line.trim_start());
                }
                let prompted = prompted(&block);
                let all = || block.iter().map(|line| line.to_string()).collect();
                commands.blocks.push(if prompted.is_empty() { all() } else { prompted });
            } else {
                let code = line.split('`').skip(1).step_by(2);
                let complete = code.filter(|code| code.starts_with("fa-doctor "));
                commands.inline.extend(complete.map(|code| code.replace(" CODE", " FA001")));
            }
        }
        commands
    }
}

/// What stands behind the prompts, with the lines that go on.
fn prompted(block: &[&str]) -> Vec<String> {
    let mut commands: Vec<String> = Vec::new();
    for line in block {
        match (line.strip_prefix("$ "), commands.last_mut()) {
            (Some(command), _) => commands.push(command.to_owned()),
            (None, Some(last)) => last.push_str(&format!("\n{line}")),
            (None, None) => {}
        }
    }
    // Output follows some commands: only what the shell still waits for goes on.
    commands.into_iter().map(complete).collect()
}

/// The beginning of `text` that is a whole command for the shell.
fn complete(text: String) -> String {
    let lines: Vec<&str> = text.lines().collect();
    let whole = (1..=lines.len()).map(|count| lines[..count].join("\n")).find(|command| {
        let output = Command::new("bash").args(["-n", "-c", command]).output().expect("bash");
        // An unfinished here-document is a warning only.
        output.status.success() && output.stderr.is_empty() && !command.ends_with('\\')
    });
    whole.unwrap_or(text)
}

fn pages() -> Vec<(String, String)> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let mut paths: Vec<PathBuf> = ["README.md", "CONTRIBUTING.md", "SECURITY.md"].map(|name| root.join(name)).to_vec();
    let docs = walkdir::WalkDir::new(root.join("docs")).sort_by_file_name();
    paths.extend(docs.into_iter().map(|entry| entry.expect("an entry").into_path()));
    paths.retain(|path| path.extension().is_some_and(|extension| extension == "md"));
    let named = |path: PathBuf| (path.display().to_string(), fs::read_to_string(&path).expect("a page"));
    paths.into_iter().map(named).collect()
}

#[test]
fn every_command_in_the_documentation_runs() {
    let mut ran = Ran::default();
    for (page, text) in pages() {
        let commands = Commands::of(&text);
        for block in commands.blocks {
            let bench = Bench::new();
            // What starts Python needs one: see below.
            for command in block.iter().filter(|command| !command.starts_with("python - ")) {
                bench.documented(&page, command, &mut ran);
            }
        }
        for command in commands.inline {
            Bench::new().documented(&page, &command, &mut ran);
        }
    }
    assert!(ran.wrong.is_empty(), "{}", ran.wrong.join("\n\n"));
    assert!(ran.ran > 60, "only {} commands were found", ran.ran);
}

#[test]
fn every_example_of_the_help_runs() {
    let mut ran = Ran::default();
    let program = Cli::command();
    for command in std::iter::once(&program).chain(program.get_subcommands()) {
        let help = command.get_after_help().map(ToString::to_string).unwrap_or_default();
        for example in help.lines().map(str::trim).filter(|line| line.contains("fa-doctor ")) {
            let bench = Bench::new();
            bench.documented(command.get_name(), example, &mut ran);
        }
    }
    assert!(ran.wrong.is_empty(), "{}", ran.wrong.join("\n\n"));
    assert!(ran.ran >= Cli::command().get_subcommands().filter(|command| !command.is_hide_set()).count());
}

#[test]
fn the_job_of_a_cluster_runs() {
    let manifest = include_str!("../docs/kubernetes.yaml");
    let mut ran = Vec::new();
    for line in manifest.lines().filter_map(|line| line.trim().strip_prefix("command: ")) {
        let words: Vec<String> = serde_json::from_str(line).expect("a list of words");
        let [shell, option, script] = words.as_slice() else { panic!("{line}") };
        assert_eq!((shell.as_str(), option.as_str()), ("sh", "-c"));
        let output = Bench::new().shell(script);
        assert!(output.status.success(), "{script}");
        serde_json::from_slice::<serde_json::Value>(&output.stdout).expect("JSON in the log");
        ran.push(script.clone());
    }
    assert_eq!(ran.len(), 2);
}

#[test]
#[ignore = "needs python3"]
fn the_script_for_ray_runs() {
    let page = include_str!("../docs/offline.md");
    let commands = Commands::of(page);
    let block = commands.blocks.iter().find(|block| block[0].starts_with("python - ")).expect("the script");
    let bench = Bench::new();
    bench.program("bin/python", "exec python3 \"$@\"");
    let ray = "class util:\n    get_node_ip_address = staticmethod(lambda: '10.0.0.1')\n\n\
               class Remote:\n    def __init__(self, run):\n        self.run = run\n\n    def remote(self):\n        return self.run\n\n\
               def remote(**options):\n    return Remote\n\n\
               def nodes():\n    return [{}]\n\n\
               def get(calls):\n    return [call() for call in calls]\n";
    write(bench.0.path(), "ray.py", ray);
    let mut ran = Ran::default();
    for command in block {
        bench.documented("docs/offline.md", command, &mut ran);
    }
    assert!(ran.wrong.is_empty(), "{}", ran.wrong.join("\n\n"));
    assert!(bench.path("results/10.0.0.1.smoke.json").is_file());
}

#[test]
#[ignore = "needs FA_DOCTOR_CORPUS, which scripts/corpus.py prepares"]
fn the_readme_shows_what_the_real_wheel_gives() {
    let corpus = std::env::var("FA_DOCTOR_CORPUS").expect("FA_DOCTOR_CORPUS");
    let page = include_str!("../README.md");
    let (_, rest) = page.split_once("    $ fa-doctor scan ").expect("the example");
    let shown: Vec<&str> = rest.lines().take_while(|line| !line.is_empty()).map(str::trim).collect();
    let bench = Bench::new();
    fs::remove_file(bench.path("vllm-0.26.0-cp38-abi3-manylinux_2_28_x86_64.whl")).expect("the miniature");
    let output = bench.shell(&format!("cd {corpus}/wheels && fa-doctor scan {}", shown[0]));
    assert_eq!(output.status.code(), Some(1));
    let printed = String::from_utf8(output.stdout).expect("UTF-8");
    assert_eq!(
        printed.split_whitespace().collect::<Vec<_>>(),
        shown[1..].join(" ").split_whitespace().collect::<Vec<_>>()
    );
}
