//! Which libraries of an environment are checked: the extension modules of the attention stack.

use rustc_hash::FxHashSet;

use crate::environment::{Distribution, Environment, RootId, RootKind};
use crate::packs::Packs;

/// A library to check.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Subject {
    /// Where it is.
    pub root: RootId,
    /// Relative to the root.
    pub path: String,
    /// Index into [`Environment::distributions`], where one owns it.
    pub distribution: Option<usize>,
}

/// Extension modules of the attention stack, sorted by place. Of a module that is built for several Pythons only those
/// for the environment's, if there is one.
pub fn extensions(environment: &Environment, packs: &Packs) -> Vec<Subject> {
    let mut subjects = Vec::new();
    for (index, distribution) in environment.distributions.iter().enumerate() {
        if packs.extensions.contains(&distribution.name) {
            let own = extensions_of(environment, distribution);
            subjects.extend(own.into_iter().map(|path| Subject {
                root: distribution.root,
                path,
                distribution: Some(index),
            }));
        }
    }
    for (index, root) in environment.roots.iter().enumerate() {
        if root.kind == RootKind::Checkout {
            let root_id = RootId(u32::try_from(index).unwrap_or(u32::MAX));
            let is_build = |name: &str| name.starts_with('.') || name == "build";
            let enter = |folder: &str| !folder.rsplit('/').next().is_some_and(is_build);
            let built = root.tree.walk_into("", &enter, &is_extension);
            subjects.extend(built.into_iter().map(|path| Subject { root: root_id, path, distribution: None }));
        }
    }
    subjects.sort_by(|a, b| (a.root, &a.path).cmp(&(b.root, &b.path)).then(b.distribution.cmp(&a.distribution)));
    subjects.dedup_by(|later, first| later.root == first.root && later.path == first.path);
    if let Some(python) = environment.python {
        let fitting: FxHashSet<(RootId, String)> =
            subjects.iter().filter(|s| python_of(&s.path) == Some(python)).map(module).collect();
        subjects.retain(|s| python_of(&s.path).is_none_or(|tag| tag == python) || !fitting.contains(&module(s)));
    }
    subjects
}

/// The module that a library implements: its path up to the first dot of the name.
pub fn module(subject: &Subject) -> (RootId, String) {
    let path = &subject.path;
    let name = path.rfind('/').map_or(0, |slash| slash + 1);
    let end = path[name..].find('.').map_or(path.len(), |dot| name + dot);
    (subject.root, path[..end].to_owned())
}

/// `(3, 10)` of `_C.cpython-310-x86_64-linux-gnu.so`.
pub fn python_of(path: &str) -> Option<(u32, u32)> {
    let (_, tag) = path.rsplit('/').next()?.split_once(".cpython-")?;
    let digits = &tag[..tag.find(|c: char| !c.is_ascii_digit()).unwrap_or(tag.len())];
    Some((digits.get(..1)?.parse().ok()?, digits.get(1..)?.parse().ok()?))
}

/// Extension modules that a distribution installed and that are there.
fn extensions_of(environment: &Environment, distribution: &Distribution) -> Vec<String> {
    let tree = &environment.root(distribution.root).tree;
    let recorded = distribution.record(tree);
    if !recorded.is_empty() {
        // By name first: asking for every header of torch would list all its folders.
        let is_own = |path: &String| is_extension(path) && tree.is_file(path);
        return recorded.into_iter().map(|entry| entry.path).filter(is_own).collect();
    }
    // Distribution packages of a system and develop installs come without RECORD.
    let folder = distribution.name.replace('-', "_");
    let prefix = &distribution.base.prefix;
    let folder = if prefix.is_empty() { folder } else { format!("{prefix}/{folder}") };
    tree.walk(&folder, &is_extension)
}

/// Whether the import system, or `torch.ops.load_library`, loads a file of this name.
pub fn is_extension(path: &str) -> bool {
    let (folder, name) = path.rsplit_once('/').unwrap_or(("", path));
    // What auditwheel bundles is loaded by those that need it.
    let bundled = folder.split('/').any(|part| part.ends_with(".libs"));
    !bundled && (name.ends_with(".so") || name.ends_with(".pyd"))
}

/// The libraries of torch that hold kernels.
pub fn torch_kernels(environment: &Environment) -> Vec<Subject> {
    let Some(index) = environment.distributions.iter().position(|d| d.name == "torch") else { return Vec::new() };
    let distribution = &environment.distributions[index];
    let tree = &environment.root(distribution.root).tree;
    let prefix = &distribution.base.prefix;
    let folder = if prefix.is_empty() { "torch/lib".to_owned() } else { format!("{prefix}/torch/lib") };
    let names = tree.list(&folder).into_iter().map(|(name, _)| name);
    names
        .filter(|name| name.starts_with("libtorch_cuda") && name.ends_with(".so"))
        .map(|name| Subject { root: distribution.root, path: format!("{folder}/{name}"), distribution: Some(index) })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_python_tags() {
        assert_eq!(python_of("a/_C.cpython-310-x86_64-linux-gnu.so"), Some((3, 10)));
        assert_eq!(python_of("_C.cpython-313t-x86_64-linux-gnu.so"), Some((3, 13)));
        for name in ["_C.abi3.so", "_C.so", "_C.cpython-.so", "_C.cpython-3.so", "_C.cpython-310/x.so"] {
            assert_eq!(python_of(name), None, "{name}");
        }
    }

    #[test]
    fn knows_extensions_by_name() {
        assert!(is_extension("a/_C.abi3.so") && is_extension("_C.pyd"));
        assert!(!is_extension("a.libs/libx.so") && !is_extension("a/libx.so.1") && !is_extension("a/so.py"));
    }
}
