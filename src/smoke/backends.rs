//! placeholder
use super::{Options, report::Report};
use std::path::Path;
/// x
pub fn run(_report: &mut Report, _python: &Path, _options: &Options) -> std::io::Result<()> {
    Ok(())
}
