//! Miniature trees and wheels for the tests of this folder.

use std::fs;
use std::io::Write;
use std::path::{Path, PathBuf};

use zip::write::SimpleFileOptions;
use zip::{CompressionMethod, ZipWriter};

/// A temporary folder.
pub(super) struct Files(tempfile::TempDir);

impl Files {
    pub(super) fn path(&self) -> &Path {
        self.0.path()
    }

    pub(super) fn add(&self, path: &str, content: impl AsRef<[u8]>) -> PathBuf {
        let file = self.path().join(path);
        fs::create_dir_all(file.parent().expect("a parent")).expect("a folder");
        fs::write(&file, content).expect("a file");
        file
    }

    /// A wheel: its files deflated, those with a name ending in `.stored` stored.
    pub(super) fn wheel(&self, name: &str, content: &[(&str, &str)]) -> PathBuf {
        let file = self.path().join(name);
        let mut writer = ZipWriter::new(fs::File::create(&file).expect("a file"));
        for (path, text) in content {
            let method =
                if path.ends_with(".stored") { CompressionMethod::Stored } else { CompressionMethod::Deflated };
            writer.start_file(*path, SimpleFileOptions::default().compression_method(method)).expect("an entry");
            writer.write_all(text.as_bytes()).expect("its bytes");
        }
        writer.finish().expect("a directory");
        file
    }
}

pub(super) fn files(content: &[(&str, &str)]) -> Files {
    let files = Files(tempfile::tempdir().expect("a temporary folder"));
    for (path, text) in content {
        files.add(path, text);
    }
    files
}
