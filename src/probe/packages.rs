//! Which installed packages hold CuTe attention kernels.

use crate::environment::tree::{join, split};
use crate::environment::{Environment, RootId, RootKind};
use crate::packs::Packs;

/// A package with kernels behind the flash-attention interface.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Package {
    /// As it is imported: `vllm.vllm_flash_attn.cute`.
    pub module: String,
    /// The root that holds it.
    pub root: RootId,
    /// Its folder, relative to the root.
    pub folder: String,
    /// It has the gradients too: an excerpt without them is for one model, and compiled when it is asked for.
    pub whole: bool,
}

/// The module that offers the functions.
pub const INTERFACE: &str = "interface.py";

/// Every package below the audited modules whose interface offers the attention function and is made with the DSL. Of
/// several with one name, the one that an import finds.
pub fn find(environment: &Environment, packs: &Packs) -> Vec<Package> {
    let mut found: Vec<Package> = Vec::new();
    for entry in &environment.search_path {
        let root = environment.root(entry.root);
        if root.kind == RootKind::StandardLibrary {
            continue;
        }
        for audited in &packs.audited {
            let top = join(&entry.prefix, &audited.replace('.', "/"));
            for path in root.tree.walk(&top, &|path| split(path).1 == INTERFACE) {
                let folder = split(&path).0.to_owned();
                let module = folder[entry.prefix.len()..].trim_start_matches('/').replace('/', ".");
                let is_new = !found.iter().any(|package| package.module == module);
                let Ok(source) = root.tree.read(&path) else { continue };
                let has = |text: &str| memchr::memmem::find(&source, text.as_bytes()).is_some();
                if is_new && has("def flash_attn_varlen_func(") && has("import cutlass") {
                    let whole = has("def _flash_attn_bwd(");
                    found.push(Package { module, root: entry.root, folder, whole });
                }
            }
        }
    }
    found.sort_by(|a, b| a.module.cmp(&b.module));
    found
}
