//! What several integration tests share: the binary, and miniature environments.

#![allow(dead_code, reason = "each test uses its part")]

pub mod schema;

use std::fs;
use std::path::Path;
use std::process::{Command, Output};

/// A kernel that reads a parameter of its launcher: one FA001.
pub const BROKEN: &str = "\
class Forward:
    def __call__(self, q, mask=None):
        self.kernel(q).launch(grid=(1, 1, 1))

    def kernel(self, q):
        return q if mask is None else mask
";

/// The same, passed on.
pub const FIXED: &str = "\
class Forward:
    def __call__(self, q, mask=None):
        self.kernel(q, mask).launch(grid=(1, 1, 1))

    def kernel(self, q, mask):
        return q if mask is None else mask
";

/// A site-packages folder with one distribution that has this module.
pub fn site(folder: &Path, forward: &str) {
    write(folder, "flash_attn/cute/__init__.py", "from .forward import Forward\n");
    write(folder, "flash_attn/cute/forward.py", forward);
    let info = "flash_attn_4-4.99.0.dist-info";
    write(folder, &format!("{info}/METADATA"), "Metadata-Version: 2.1\nName: flash-attn-4\nVersion: 4.99.0\n");
    write(
        folder,
        &format!("{info}/RECORD"),
        "flash_attn/cute/__init__.py,,\nflash_attn/cute/forward.py,,\nflash_attn_4-4.99.0.dist-info/METADATA,,\n",
    );
}

/// Writes a file and the folders it lies in.
pub fn write(folder: &Path, path: &str, text: &str) {
    let path = folder.join(path);
    fs::create_dir_all(path.parent().expect("a folder")).expect("folders");
    fs::write(path, text).expect("a file");
}

/// The binary, in `folder`, with an environment that holds nothing to find.
pub fn doctor(folder: &Path) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_fa-doctor"));
    command.current_dir(folder);
    for variable in ["VIRTUAL_ENV", "CONDA_PREFIX", "NO_COLOR", "CLICOLOR", "CLICOLOR_FORCE", "PYTHONPATH"] {
        command.env_remove(variable);
    }
    command
}

/// Runs the binary with arguments separated by spaces.
pub fn run(folder: &Path, arguments: &str) -> Run {
    let output = doctor(folder).args(arguments.split_whitespace()).output().expect("the binary runs");
    Run::from(output)
}

/// What a run left behind.
pub struct Run {
    /// Exit code.
    pub code: i32,
    /// Standard output.
    pub out: String,
    /// Standard error.
    pub err: String,
}

impl From<Output> for Run {
    fn from(output: Output) -> Run {
        Run {
            code: output.status.code().expect("not killed"),
            out: String::from_utf8(output.stdout).expect("UTF-8"),
            err: String::from_utf8(output.stderr).expect("UTF-8"),
        }
    }
}
