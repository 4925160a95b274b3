//! The contract: schema 1, described by docs/schema.json.

use std::io::{self, Write};

use super::Report;

/// Writes the report as JSON.
pub fn write(report: &Report, out: &mut dyn Write) -> io::Result<()> {
    serde_json::to_writer_pretty(&mut *out, report)?;
    writeln!(out)
}

#[cfg(test)]
#[path = "../../tests/common/schema.rs"]
mod schema;

#[cfg(test)]
mod tests {
    use serde_json::Value;

    use super::*;
    use crate::report::sample;

    fn contract() -> Value {
        serde_json::from_str(include_str!("../../docs/schema.json")).expect("docs/schema.json is JSON")
    }

    #[test]
    fn the_schema_describes_the_contract() {
        let value: Value = serde_json::from_str(&sample::render(|report, _, out| write(report, out))).expect("JSON");
        assert_eq!(schema::problems(&contract(), &value), Vec::<String>::new());
        for (pointer, wrong) in
            [("/schema", 2.into()), ("/findings/0/line", 0.into()), ("/findings/0/fix", true.into())]
        {
            let mut value = value.clone();
            *value.pointer_mut(pointer).expect("there") = wrong;
            assert_eq!(schema::problems(&contract(), &value).len(), 1, "{pointer}");
        }
    }

    #[test]
    fn what_is_written_is_read_back() {
        let text = sample::render(|report, _, out| write(report, out));
        let report: Report = serde_json::from_str(&text).expect("the contract");
        let again = serde_json::to_string_pretty(&report).expect("JSON");
        assert_eq!(again.trim(), text.trim());
    }

    #[test]
    fn sample_report() {
        insta::assert_snapshot!(sample::render(|report, _, out| write(report, out)));
    }
}
