//! Interned strings: the names and string literals of the sources.

use std::fmt;
use std::hash::BuildHasher;
use std::sync::{LazyLock, Mutex, PoisonError};

use rustc_hash::{FxBuildHasher, FxHashMap};

/// An interned string that lives as long as the process. Copying and hashing it costs nothing, which is what the
/// index is made of: one file of the attention stack mentions the same few hundred names thousands of times. It is a
/// thin pointer that aligns as the ids of the index do: half of an index is symbols and what lies beside them.
#[derive(Clone, Copy, Eq)]
#[repr(Rust, packed(4))]
pub struct Symbol(&'static &'static str);

/// The threads that parse ask for different names most of the time: each shard has a cache line of its own.
#[derive(Default)]
#[repr(align(64))]
struct Shard(Mutex<FxHashMap<&'static str, Symbol>>);

const SHARDS: usize = 64;

static INTERNED: LazyLock<[Shard; SHARDS]> = LazyLock::new(|| std::array::from_fn(|_| Shard::default()));

impl Symbol {
    /// The symbol of this text.
    pub fn new(text: &str) -> Symbol {
        let shard = (FxBuildHasher.hash_one(text) >> 7) as usize % SHARDS;
        let mut known = INTERNED[shard].0.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(&known) = known.get(text) {
            return known;
        }
        let kept: &'static str = Box::leak(text.into());
        let symbol = Symbol(Box::leak(Box::new(kept)));
        known.insert(kept, symbol);
        symbol
    }

    /// Its text.
    pub fn as_str(self) -> &'static str {
        self.0
    }
}

impl PartialEq for Symbol {
    fn eq(&self, other: &Symbol) -> bool {
        let (one, other) = (self.0, other.0);
        std::ptr::eq(one, other)
    }
}

impl PartialEq<str> for Symbol {
    fn eq(&self, other: &str) -> bool {
        *self.0 == other
    }
}

impl PartialEq<&str> for Symbol {
    fn eq(&self, other: &&str) -> bool {
        *self.0 == *other
    }
}

impl std::hash::Hash for Symbol {
    fn hash<H: std::hash::Hasher>(&self, state: &mut H) {
        std::ptr::hash(self.0, state);
    }
}

impl PartialOrd for Symbol {
    fn partial_cmp(&self, other: &Symbol) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Symbol {
    fn cmp(&self, other: &Symbol) -> std::cmp::Ordering {
        self.0.cmp(other.0)
    }
}

impl std::ops::Deref for Symbol {
    type Target = str;

    fn deref(&self) -> &str {
        self.0
    }
}

impl fmt::Display for Symbol {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.0)
    }
}

impl fmt::Debug for Symbol {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(self.0, f)
    }
}

#[cfg(test)]
mod tests {
    use super::Symbol;

    #[test]
    fn equal_texts_are_one_symbol() {
        let text = String::from("softmax_scale");
        assert_eq!(Symbol::new(&text), Symbol::new("softmax_scale"));
        assert_ne!(Symbol::new("scale"), Symbol::new("softmax_scale"));
        assert_eq!(Symbol::new(""), Symbol::new(""));
        assert_ne!(Symbol::new(""), Symbol::new("a"));
    }
}
