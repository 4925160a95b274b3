//! The contract: schema 1, described by docs/schema.json.

use std::io::{self, Write};

use super::Report;

/// Writes the report as JSON.
pub fn write(report: &Report, out: &mut dyn Write) -> io::Result<()> {
    serde_json::to_writer_pretty(&mut *out, report)?;
    writeln!(out)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::sample;

    #[test]
    fn sample_report() {
        insta::assert_snapshot!(sample::render(|report, _, out| write(report, out)));
    }
}
