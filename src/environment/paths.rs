//! The module search path: site-packages folders, .pth files, editable installs.

use std::collections::BTreeMap;
use std::io;
use std::path::{Component, Path, PathBuf};

use super::pth::{self, Action, Place};
use super::target::is_project;
use super::tree::join;
use super::{Root, RootId, RootKind, SearchEntry, Tree};

/// Folders that further `.pth` files may name in turn, before it looks like a cycle.
const DEEPEST_SITE: usize = 8;

/// Roots and search path under construction.
#[derive(Debug, Default)]
pub(super) struct Paths {
    pub roots: Vec<Root>,
    /// What was put in front, the latest first.
    front: Vec<SearchEntry>,
    path: Vec<SearchEntry>,
    /// Real places of the roots that are folders.
    places: BTreeMap<PathBuf, RootId>,
}

/// Where a path expression leads.
enum Resolved {
    /// Inside a root, which may be a wheel.
    Inside(SearchEntry),
    /// Anywhere on this machine.
    Disk(PathBuf),
}

impl Paths {
    /// A root that is no plain folder: a wheel, or several layers.
    pub(super) fn add_tree(&mut self, root: Root) -> SearchEntry {
        let id = RootId(self.roots.len() as u32);
        self.roots.push(root);
        let entry = SearchEntry { root: id, prefix: String::new() };
        self.append(entry.clone());
        entry
    }

    /// The entry for a folder, which is a part of a root that is there or a new root.
    pub(super) fn folder(&mut self, folder: &Path, kind: RootKind) -> io::Result<SearchEntry> {
        let place = folder.canonicalize()?;
        if let Some(entry) = self.inside_known(&place, kind) {
            return Ok(entry);
        }
        let tree = match kind {
            RootKind::Checkout if !is_project(folder) => Tree::importable(folder)?,
            _ => Tree::folder(folder)?,
        };
        let id = RootId(self.roots.len() as u32);
        self.roots.push(Root::new(folder, kind, tree));
        self.places.insert(place, id);
        Ok(SearchEntry { root: id, prefix: String::new() })
    }

    /// Appends a folder to the search path.
    pub(super) fn add_folder(&mut self, folder: &Path, kind: RootKind) -> io::Result<SearchEntry> {
        let entry = self.folder(folder, kind)?;
        self.append(entry.clone());
        Ok(entry)
    }

    fn inside_known(&self, place: &Path, kind: RootKind) -> Option<SearchEntry> {
        let (above, &root) = place.ancestors().find_map(|folder| self.places.get_key_value(folder))?;
        let is_library = |kind| kind == RootKind::StandardLibrary;
        // site-packages lies in the folder of the standard library, and is none of it.
        if above != place && is_library(self.roots[root.0 as usize].kind) != is_library(kind) {
            return None;
        }
        let mut prefix = String::new();
        for part in place.strip_prefix(above).ok()?.components() {
            prefix = join(&prefix, part.as_os_str().to_str()?);
        }
        Some(SearchEntry { root, prefix })
    }

    pub(super) fn append(&mut self, entry: SearchEntry) {
        if !self.contains(&entry) {
            self.path.push(entry);
        }
    }

    fn insert(&mut self, entry: SearchEntry) {
        if !self.contains(&entry) {
            self.front.insert(0, entry);
        }
    }

    fn contains(&self, entry: &SearchEntry) -> bool {
        self.front.contains(entry) || self.path.contains(entry)
    }

    /// The finished roots and search path.
    pub(super) fn finish(self) -> (Vec<Root>, Vec<SearchEntry>) {
        let mut path = self.front;
        path.extend(self.path);
        (self.roots, path)
    }

    /// Follows the `.pth` files of a site-packages folder.
    pub(super) fn follow_pth(&mut self, site: &SearchEntry) {
        self.follow(site, 0, &|_| true);
    }

    /// Follows only the import hooks of editable installs: the rest is in the path that an interpreter told.
    pub(super) fn follow_hooks(&mut self, site: &SearchEntry) {
        self.follow(site, 0, &|action| matches!(action, Action::Hook(_)));
    }

    fn follow(&mut self, site: &SearchEntry, depth: usize, wanted: &dyn Fn(&Action) -> bool) {
        let tree = &self.roots[site.root.0 as usize].tree;
        let is_pth = |name: &String| name.ends_with(".pth") && !name.starts_with('.');
        let names = tree.list(&site.prefix).into_iter().map(|(name, _)| name).filter(is_pth);
        let read = |name: String| tree.read(&join(&site.prefix, &name)).unwrap_or_default();
        let actions: Vec<Action> = names.flat_map(|name| pth::actions(&read(name))).filter(wanted).collect();
        for action in actions {
            match action {
                Action::Append(place) => {
                    if let Some(entry) = self.entry(site, &place) {
                        self.append(entry);
                    }
                }
                Action::Insert(place) => {
                    if let Some(entry) = self.entry(site, &place) {
                        self.insert(entry);
                    }
                }
                Action::AddSite(place) => {
                    if let Some(entry) = self.entry(site, &place)
                        && depth < DEEPEST_SITE
                        && !self.contains(&entry)
                    {
                        self.append(entry.clone());
                        self.follow(&entry, depth + 1, wanted);
                    }
                }
                Action::Hook(module) => self.follow_hook(site, &module),
            }
        }
    }

    /// The entry that a place stands for, if there is a folder.
    fn entry(&mut self, site: &SearchEntry, place: &Place) -> Option<SearchEntry> {
        match self.resolve(site, place)? {
            Resolved::Inside(entry) => {
                let tree = &self.roots[entry.root.0 as usize].tree;
                tree.is_folder(&entry.prefix).then_some(entry)
            }
            Resolved::Disk(folder) if is_everything(&folder) => None,
            Resolved::Disk(folder) => self.folder(&folder, RootKind::Checkout).ok(),
        }
    }

    fn resolve(&self, site: &SearchEntry, place: &Place) -> Option<Resolved> {
        match place {
            Place::SiteDir => Some(Resolved::Inside(site.clone())),
            Place::Literal(text) => self.joined(Resolved::Inside(site.clone()), text),
            Place::Package(name) => {
                let folder = name.replace('.', "/");
                let entries = std::iter::once(site).chain(&self.front).chain(&self.path);
                let candidates = entries.map(|entry| (entry.root, join(&entry.prefix, &folder)));
                let mut found = candidates.filter(|(root, path)| self.roots[root.0 as usize].tree.is_folder(path));
                found.next().map(|(root, prefix)| Resolved::Inside(SearchEntry { root, prefix }))
            }
            Place::Join(parts) => {
                let (first, rest) = parts.split_first()?;
                let mut resolved = self.resolve(site, first)?;
                for part in rest {
                    let Place::Literal(text) = part else { return None };
                    resolved = self.joined(resolved, text)?;
                }
                Some(resolved)
            }
            Place::Parent(place) => self.joined(self.resolve(site, place)?, ".."),
        }
    }

    /// `base/text`, staying inside the root as long as that goes.
    fn joined(&self, base: Resolved, text: &str) -> Option<Resolved> {
        let entry = match base {
            Resolved::Disk(folder) => return Some(Resolved::Disk(folder.join(text))),
            Resolved::Inside(entry) => entry,
        };
        let mut parts: Vec<&str> = entry.prefix.split('/').filter(|part| !part.is_empty()).collect();
        let mut leaves = false;
        for part in Path::new(text).components() {
            match part {
                Component::Normal(name) => parts.push(name.to_str()?),
                Component::CurDir => {}
                Component::ParentDir => leaves |= parts.pop().is_none(),
                Component::RootDir | Component::Prefix(_) => leaves = true,
            }
        }
        if !leaves {
            return Some(Resolved::Inside(SearchEntry { root: entry.root, prefix: parts.join("/") }));
        }
        let folder = self.roots[entry.root.0 as usize].tree.on_disk(&entry.prefix)?;
        Some(Resolved::Disk(folder.join(text)))
    }

    /// Makes what an import hook maps importable: a root that shows these names and nothing else of their project.
    fn follow_hook(&mut self, site: &SearchEntry, module: &str) {
        let path = join(&site.prefix, &format!("{}.py", module.replace('.', "/")));
        let source = self.roots[site.root.0 as usize].tree.read(&path).unwrap_or_default();
        let mut mounts = Vec::new();
        for (name, target) in pth::hook_mapping(&String::from_utf8_lossy(&source)) {
            mounts.extend(mount(&name, Path::new(&target)));
        }
        let Some(project) = mounts.first().and_then(|(at, target)| project_of(at, target)) else { return };
        if let Ok(tree) = Tree::mounted(&project, mounts) {
            self.add_tree(Root::new(&project, RootKind::Checkout, tree));
        }
    }
}

/// Whether a folder on the path is the root of the file system. Python looks there; nobody keeps packages there, and
/// searching it for modules would search the machine.
pub(super) fn is_everything(folder: &Path) -> bool {
    folder.canonicalize().is_ok_and(|place| place.parent().is_none())
}

/// Where a mapped module stands in the tree, and the file or folder that is it.
fn mount(name: &str, target: &Path) -> Option<(String, PathBuf)> {
    let at = name.replace('.', "/");
    if target.is_dir() {
        return Some((at, target.to_owned()));
    }
    if target.is_file() {
        // scikit-build-core names the file: `pkg/__init__.py` for a package.
        let file = target.file_name()?.to_str()?;
        return match file {
            "__init__.py" => Some((at, target.parent()?.to_owned())),
            _ => Some((format!("{at}{}", &file[file.find('.')?..]), target.to_owned())),
        };
    }
    // setuptools names a module without its suffix.
    let source = target.with_extension("py");
    source.is_file().then(|| (format!("{at}.py"), source))
}

/// The project folder of a mount: where its path in the tree begins.
fn project_of(at: &str, target: &Path) -> Option<PathBuf> {
    let project = target.ancestors().nth(at.split('/').count())?;
    Some(project.to_owned())
}
