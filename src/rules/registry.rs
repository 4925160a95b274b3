//! Every rule, in the order of its code.

use super::Rule;

/// All rules, sorted by code.
pub fn all() -> &'static [&'static dyn Rule] {
    &[
        &super::fa001_undefined_name::UndefinedName,
        &super::fa002_undefined_attribute::UndefinedAttribute,
        &super::fa003_call_mismatch::CallMismatch,
        &super::fa004_unresolved_import::UnresolvedImport,
        &super::fa005_missing_module_attribute::MissingModuleAttribute,
        &super::fa006_return_arity::ReturnArity,
        &super::fa007_op_schema::OpSchema,
        &super::fa101_version_floor::VersionFloor,
        &super::fa102_requirement_conflict::RequirementConflict,
        &super::fa103_clobbered_files::ClobberedFiles,
        &super::fa104_known_defect::KnownDefect,
        &super::fa105_patch_state::PatchState,
        &super::fa201_undefined_symbol::UndefinedSymbol,
        &super::fa202_missing_library::MissingLibraryRule,
        &super::fa203_libc_too_old::LibcTooOld,
        &super::fa204_no_kernel_image::NoKernelImage,
        &super::fa205_ptx_needs_newer_driver::PtxNeedsNewerDriver,
        &super::fa206_wheel_tag::WheelTag,
        &super::fa301_arch_gate::ArchGate,
        &super::fa302_toolchain_too_old::ToolchainTooOld,
        &super::fa303_smem_over_capacity::SmemOverCapacity,
        &super::fa401_silent_mask_loss::SilentMaskLoss,
    ]
}
