//! Which distribution owns a file: by the top-level name where only one has it, by RECORD where several do.

use std::sync::OnceLock;

use rustc_hash::FxHashMap;

use super::tree::{is_below, join, split};
use super::{Distribution, Environment, RootId};

/// What has been found out about owners so far.
#[derive(Debug, Default)]
pub(crate) struct Ownership {
    /// Distributions (indices) by root and top-level path, with the RECORDs of the contested ones.
    by_top: OnceLock<FxHashMap<(RootId, String), Claim>>,
}

#[derive(Debug, Default)]
struct Claim {
    claimants: Vec<usize>,
    /// The claimants of every path below the name; read when first asked for.
    files: OnceLock<FxHashMap<String, Vec<usize>>>,
}

impl Environment {
    /// The distribution that owns `path` of `root`: by RECORD for contested top-level names, else by the top-level
    /// folder that the distribution installs.
    pub fn owner(&self, root: RootId, path: &str) -> Option<&Distribution> {
        let owners = self.owners(root, path);
        let index = match owners.as_slice() {
            [] => return self.project(root, path),
            [only] => *only,
            several => self.survivor(root, path, several),
        };
        Some(&self.distributions[index])
    }

    /// Every distribution that lists `path`; more than one means that one has overwritten the other's file.
    pub fn claimants(&self, root: RootId, path: &str) -> Vec<&Distribution> {
        self.owners(root, path).into_iter().map(|index| &self.distributions[index]).collect()
    }

    /// Top-level paths that several distributions install into, with these distributions, in no particular order.
    pub fn contested(&self) -> impl Iterator<Item = (RootId, &str, Vec<&Distribution>)> {
        let claims = self.ownership.by_top.get_or_init(|| self.claims());
        claims.iter().filter(|(_, claim)| claim.claimants.len() > 1).map(|((root, top), claim)| {
            (*root, top.as_str(), claim.claimants.iter().map(|&index| &self.distributions[index]).collect())
        })
    }

    fn owners(&self, root: RootId, path: &str) -> Vec<usize> {
        let claims = self.ownership.by_top.get_or_init(|| self.claims());
        let tops = || self.tops(root, path).filter_map(|top| claims.get(&(root, top)));
        let Some(claim) = tops().next() else { return Vec::new() };
        if claim.claimants.len() < 2 {
            return claim.claimants.clone();
        }
        let files = claim.files.get_or_init(|| self.files(&claim.claimants));
        // A file that nobody lists belongs to whoever has the nearest folder.
        let mut place = path;
        loop {
            if let Some(owners) = files.get(place) {
                return owners.clone();
            }
            if place.is_empty() {
                return claim.claimants.clone();
            }
            place = split(place).0;
        }
    }

    /// The top-level path of `path` in each folder that distributions are installed into, the innermost first.
    fn tops(&self, root: RootId, path: &str) -> impl Iterator<Item = String> {
        let mut bases: Vec<&str> = self.search_path.iter().filter(|e| e.root == root).map(|e| &*e.prefix).collect();
        bases.sort_unstable_by_key(|base| std::cmp::Reverse(base.len()));
        let tops = bases.into_iter().filter(|base| is_below(path, base)).map(|base| {
            let rest = path[base.len()..].trim_start_matches('/');
            join(base, rest.split('/').next().unwrap_or(rest))
        });
        tops.collect::<Vec<_>>().into_iter()
    }

    fn claims(&self) -> FxHashMap<(RootId, String), Claim> {
        // What a project in a checkout would install is told by its folder. One after the other: whoever asks first may
        // be a worker of the thread pool, and a worker that waits for others here could be handed a question that waits
        // for this very answer.
        let names = self.distributions.iter().map(|distribution| match distribution.is_project() {
            true => Vec::new(),
            false => distribution.top_level(&self.root(distribution.root).tree),
        });
        let names: Vec<Vec<String>> = names.collect();
        let mut claims: FxHashMap<(RootId, String), Claim> = FxHashMap::default();
        for (index, names) in names.iter().enumerate() {
            let distribution = &self.distributions[index];
            for name in names {
                let top = join(&distribution.base.prefix, name);
                let claimants = &mut claims.entry((distribution.root, top)).or_default().claimants;
                if claimants.last() != Some(&index) {
                    claimants.push(index);
                }
            }
        }
        claims
    }

    /// Claimants by path, and for each folder those with files right inside.
    fn files(&self, claimants: &[usize]) -> FxHashMap<String, Vec<usize>> {
        let records: Vec<_> = claimants
            .iter()
            .map(|&index| (index, self.distributions[index].record(&self.root(self.distributions[index].root).tree)))
            .collect();
        let mut files: FxHashMap<String, Vec<usize>> = FxHashMap::default();
        for (index, record) in records {
            for entry in record {
                let folder = split(&entry.path).0.to_owned();
                for key in [entry.path, folder] {
                    let owners = files.entry(key).or_default();
                    if owners.last() != Some(&index) {
                        owners.push(index);
                    }
                }
            }
        }
        files
    }

    /// Of several that list a path the one whose digest fits the bytes that are there.
    fn survivor(&self, root: RootId, path: &str, claimants: &[usize]) -> usize {
        let tree = &self.root(root).tree;
        let size = tree.size(path);
        let digest = || {
            let bytes = tree.map(path).ok()?;
            Some(<[u8; 32]>::from(<sha2::Sha256 as sha2::Digest>::digest(&*bytes)))
        };
        let recorded = |index: usize| {
            let entries = self.distributions[index].record(tree);
            entries.into_iter().find(|entry| entry.path == path)
        };
        let fits: Vec<_> = claimants
            .iter()
            .filter_map(|&index| recorded(index).map(|entry| (index, entry)))
            .filter(|(_, entry)| entry.size.is_none() || entry.size == size)
            .collect();
        match fits.as_slice() {
            [] => claimants[0],
            [(index, _)] => *index,
            several => {
                let digest = digest();
                let fitting = several.iter().find(|(_, entry)| entry.sha256.is_some() && entry.sha256 == digest);
                fitting.unwrap_or(&several[0]).0
            }
        }
    }

    /// The distribution of a source project, or the one whose editable install points there.
    fn project(&self, root: RootId, path: &str) -> Option<&Distribution> {
        let place = &self.root(root).path;
        let points_here = |d: &&Distribution| {
            d.editable.as_ref().is_some_and(|folder| {
                let folder = std::path::Path::new(folder);
                folder == place || folder.canonicalize().ok() == place.canonicalize().ok()
            })
        };
        let projects = self.distributions.iter().filter(|d| d.root == root && d.is_project());
        let holding = projects.filter(|d| is_below(path, &d.base.prefix)).max_by_key(|d| d.base.prefix.len());
        holding.or_else(|| self.distributions.iter().find(points_here))
    }
}
