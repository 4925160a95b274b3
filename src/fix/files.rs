//! The file-system steps of a transaction: each is one method, and a hook before each lets tests stop or fail there.
//!
//! Nothing else in `fix` writes to disk.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Write};
use std::path::Path;
use std::time::SystemTime;

/// One kind of step.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Step {
    /// A folder is made.
    CreateFolder,
    /// A file is made, empty.
    CreateFile,
    /// Bytes go into a new file (asked twice: before the first and before the second half).
    Write,
    /// Mode, owner and extended attributes are set.
    Attributes,
    /// A file reaches the disk.
    Sync,
    /// A folder's entries reach the disk.
    SyncFolder,
    /// A link is made.
    Link,
    /// A file takes its final name.
    Rename,
    /// A file or an empty folder goes away.
    Remove,
}

/// Asked before every step; an error stands for the step's own failure.
pub type Hook<'a> = &'a dyn Fn(Step, &Path) -> io::Result<()>;

/// The disk.
#[derive(Clone, Copy)]
pub struct Disk<'a> {
    hook: Hook<'a>,
}

/// What a file has besides its bytes.
#[derive(Debug, Clone, Default)]
pub struct Attributes {
    #[cfg(unix)]
    mode: u32,
    #[cfg(unix)]
    owner: (u32, u32),
    #[cfg(any(target_os = "linux", target_os = "macos"))]
    extended: Vec<(std::ffi::CString, Vec<u8>)>,
    /// Set on the new file, where it is to look as old as the one it stands for.
    pub modified: Option<SystemTime>,
}

impl Disk<'static> {
    /// The disk as it is.
    pub fn real() -> Disk<'static> {
        Disk { hook: &|_, _| Ok(()) }
    }
}

impl<'a> Disk<'a> {
    /// A disk whose steps `hook` may refuse.
    pub fn with_hook(hook: Hook<'a>) -> Disk<'a> {
        Disk { hook }
    }

    /// Makes a folder; its parent exists.
    pub fn create_folder(&self, path: &Path) -> io::Result<()> {
        (self.hook)(Step::CreateFolder, path)?;
        fs::create_dir(path)
    }

    /// Writes a file that does not exist yet, down to the disk.
    pub fn write_new(&self, path: &Path, bytes: &[u8], attributes: Option<&Attributes>) -> io::Result<()> {
        (self.hook)(Step::CreateFile, path)?;
        let mut file = OpenOptions::new().write(true).create_new(true).open(path)?;
        let (first, second) = bytes.split_at(bytes.len() / 2);
        (self.hook)(Step::Write, path)?;
        file.write_all(first)?;
        (self.hook)(Step::Write, path)?;
        file.write_all(second)?;
        if let Some(attributes) = attributes {
            (self.hook)(Step::Attributes, path)?;
            attributes.apply(path, &file)?;
        }
        (self.hook)(Step::Sync, path)?;
        file.sync_all()
    }

    /// Makes a symbolic link with this text.
    pub fn symlink(&self, text: &str, path: &Path) -> io::Result<()> {
        (self.hook)(Step::Link, path)?;
        #[cfg(unix)]
        return std::os::unix::fs::symlink(text, path);
        #[cfg(windows)]
        return std::os::windows::fs::symlink_file(text, path);
    }

    /// Gives a file its final name, over whatever had it.
    pub fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        (self.hook)(Step::Rename, to)?;
        fs::rename(from, to)
    }

    /// Removes a file or a link; one that is gone already is no error.
    pub fn remove(&self, path: &Path) -> io::Result<()> {
        (self.hook)(Step::Remove, path)?;
        ignore_missing(fs::remove_file(path))
    }

    /// Removes an empty folder; one that is gone already is no error.
    pub fn remove_folder(&self, path: &Path) -> io::Result<()> {
        (self.hook)(Step::Remove, path)?;
        ignore_missing(fs::remove_dir(path))
    }

    /// Makes what was created, renamed and removed in a folder last through a power cut.
    pub fn sync_folder(&self, path: &Path) -> io::Result<()> {
        (self.hook)(Step::SyncFolder, path)?;
        // Elsewhere a folder cannot be opened as a file, and the journal of the file system has to do.
        if cfg!(unix) { File::open(path)?.sync_all() } else { Ok(()) }
    }
}

/// Turns "there is no such file" into success.
pub fn ignore_missing(result: io::Result<()>) -> io::Result<()> {
    match result {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        other => other,
    }
}

/// The bytes of a file; `None` if there is none.
pub fn read_optional(path: &Path) -> io::Result<Option<Vec<u8>>> {
    match fs::read(path) {
        Ok(bytes) => Ok(Some(bytes)),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(error),
    }
}

impl Attributes {
    /// Those of a file (of its target, where it is a link), without its age.
    pub fn of(path: &Path) -> io::Result<Attributes> {
        let metadata = fs::metadata(path)?;
        #[cfg(unix)]
        let attributes = {
            use std::os::unix::fs::MetadataExt;
            Attributes {
                mode: metadata.mode() & 0o7777,
                owner: (metadata.uid(), metadata.gid()),
                #[cfg(any(target_os = "linux", target_os = "macos"))]
                extended: extended_attributes(path),
                modified: None,
            }
        };
        #[cfg(not(unix))]
        let attributes = {
            let _ = metadata;
            Attributes::default()
        };
        Ok(attributes)
    }

    /// Those of a new file in `folder`: readable as its neighbours are, owned as the folder is.
    pub fn of_new_file_in(folder: &Path) -> io::Result<Attributes> {
        let attributes = Attributes::of(folder)?;
        #[cfg(unix)]
        let attributes = Attributes { mode: attributes.mode & 0o666, owner: attributes.owner, ..Attributes::default() };
        Ok(attributes)
    }

    /// Sets what can be set: another owner takes privileges and some file systems have no extended attributes, and neither
    /// is a reason to leave a defect in place.
    fn apply(&self, path: &Path, file: &File) -> io::Result<()> {
        #[cfg(any(target_os = "linux", target_os = "macos"))]
        for (name, value) in &self.extended {
            let _kept_where_possible = rustix::fs::setxattr(path, name, value, rustix::fs::XattrFlags::empty());
        }
        #[cfg(unix)]
        {
            use std::os::unix::fs::PermissionsExt;
            let _kept_where_possible = std::os::unix::fs::fchown(file, Some(self.owner.0), Some(self.owner.1));
            // After the owner: changing that clears mode bits.
            file.set_permissions(fs::Permissions::from_mode(self.mode))?;
        }
        #[cfg(not(unix))]
        let _ = path;
        if let Some(modified) = self.modified {
            file.set_modified(modified)?;
        }
        Ok(())
    }
}

/// Extended attributes, where the file system has them.
#[cfg(any(target_os = "linux", target_os = "macos"))]
fn extended_attributes(path: &Path) -> Vec<(std::ffi::CString, Vec<u8>)> {
    use rustix::fs::{getxattr, listxattr};
    use std::ffi::CString;

    // The largest list and value that Linux allows.
    const LIMIT: usize = 64 * 1024;
    let mut names = vec![0u8; LIMIT];
    let Ok(length) = listxattr(path, &mut names[..]) else { return Vec::new() };
    let mut value = vec![0u8; LIMIT];
    names[..length]
        .split(|byte| *byte == 0)
        .filter(|name| !name.is_empty())
        .filter_map(|name| {
            let name = CString::new(name).ok()?;
            let length = getxattr(path, name.as_c_str(), &mut value[..]).ok()?;
            Some((name, value[..length].to_vec()))
        })
        .collect()
}
