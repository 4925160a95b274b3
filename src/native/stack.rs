//! Which libraries of an environment are checked: the extension modules of the attention stack.

use crate::environment::{Distribution, Environment, RootId, RootKind};

/// Distributions whose extension modules hold attention kernels or the ops around them.
const EXTENSIONS: [&str; 18] = [
    "vllm",
    "vllm-flash-attn",
    "flash-attn",
    "flash-attn-2",
    "flash-attn-3",
    "flash-attn-4",
    "flash-mla",
    "flashinfer-jit-cache",
    "flashinfer-python",
    "fa3-fwd",
    "natten",
    "sageattention",
    "sageattn3",
    "sgl-kernel",
    "sglang-kernel",
    "spas-sage-attn",
    "transformer-engine-torch",
    "xformers",
];

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

/// Extension modules of the attention stack, sorted by place.
pub fn extensions(environment: &Environment) -> Vec<Subject> {
    let mut subjects = Vec::new();
    for (index, distribution) in environment.distributions.iter().enumerate() {
        if EXTENSIONS.contains(&distribution.name.as_str()) {
            let paths = files_of(environment, distribution);
            let own = paths.into_iter().filter(|path| is_extension(path));
            subjects.extend(own.map(|path| Subject { root: distribution.root, path, distribution: Some(index) }));
        }
    }
    for (index, root) in environment.roots.iter().enumerate() {
        if root.kind == RootKind::Checkout {
            let root_id = RootId(u32::try_from(index).unwrap_or(u32::MAX));
            let enter =
                |folder: &str| !folder.rsplit('/').next().is_some_and(|name| name.starts_with('.') || name == "build");
            let built = root.tree.walk_into("", &enter, &is_extension);
            subjects.extend(built.into_iter().map(|path| Subject { root: root_id, path, distribution: None }));
        }
    }
    subjects.sort_by(|a, b| (a.root, &a.path).cmp(&(b.root, &b.path)).then(b.distribution.cmp(&a.distribution)));
    subjects.dedup_by(|later, first| later.root == first.root && later.path == first.path);
    subjects
}

/// Files that a distribution installed and that are there.
fn files_of(environment: &Environment, distribution: &Distribution) -> Vec<String> {
    let tree = &environment.root(distribution.root).tree;
    let recorded = distribution.record(tree);
    if !recorded.is_empty() {
        return recorded.into_iter().map(|entry| entry.path).filter(|path| tree.is_file(path)).collect();
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
