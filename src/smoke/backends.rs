//! placeholder
use std::path::Path;
use super::{Options, report::Report};
/// x
pub fn run(_report: &mut Report, _python: &Path, _options: &Options) -> std::io::Result<()> { Ok(()) }
