//! The rules: one file each, all behind [`Rule`], listed once in [`registry`].

mod cmake;
pub mod context;
pub mod fa001_undefined_name;
pub mod fa002_undefined_attribute;
pub mod fa003_call_mismatch;
pub mod fa004_unresolved_import;
pub mod fa005_missing_module_attribute;
pub mod fa006_return_arity;
pub mod fa007_op_schema;
pub mod fa101_version_floor;
pub mod fa102_requirement_conflict;
pub mod fa103_clobbered_files;
pub mod fa104_known_defect;
pub mod fa105_patch_state;
pub mod fa201_undefined_symbol;
pub mod fa202_missing_library;
pub mod fa203_libc_too_old;
pub mod fa204_no_kernel_image;
pub mod fa205_ptx_needs_newer_driver;
pub mod fa206_wheel_tag;
pub mod fa301_arch_gate;
pub mod fa302_toolchain_too_old;
pub mod fa303_smem_over_capacity;
pub mod fa401_silent_mask_loss;
mod gate_syntax;
mod libraries;
#[cfg(test)]
mod native_tests;
mod packaging;
pub mod registry;
mod sources;

pub use context::{Context, Sink};

/// What a rule is, for `rules`, `explain`, the README table and SARIF.
#[derive(Debug)]
pub struct RuleInfo {
    /// `FA001`.
    pub code: &'static str,
    /// `undefined-name`.
    pub name: &'static str,
    /// One line, without a full stop.
    pub summary: &'static str,
    /// The rule's own source file: its `//!` comment is the documentation (see [`RuleInfo::docs`]).
    pub source: &'static str,
}

impl RuleInfo {
    /// The documentation: the `//!` lines at the top of the rule's source, in Markdown, with the sections
    /// "What it does", "Why is this bad", "Example", "Fix" and "References".
    pub fn docs(&self) -> String {
        let lines = self.source.lines().map_while(|line| line.strip_prefix("//!"));
        lines.map(|line| line.strip_prefix(' ').unwrap_or(line)).collect::<Vec<_>>().join("\n")
    }
}

/// A check over the whole environment.
pub trait Rule: Sync {
    /// What it is.
    fn info(&self) -> &'static RuleInfo;

    /// Codes of the rules whose findings this one leaves alone or adds to: they run first, selected or not.
    fn builds_on(&self) -> &'static [&'static str] {
        &[]
    }

    /// Reports what it finds.
    fn check(&self, context: &Context<'_>, sink: &mut Sink);
}
