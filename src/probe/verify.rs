//! Whether a patch leaves every case at least as good as it was.

use super::report::{CaseReport, Report};

/// Something that a patch would make worse.
#[derive(Debug, Clone)]
pub struct Worse {
    /// The case as installed.
    pub before: CaseReport,
    /// The case as patched.
    pub after: CaseReport,
}

/// The cases that are worse after than before. One that could not be checked after proves nothing, and counts.
pub fn worse(before: &Report, after: &Report) -> Vec<Worse> {
    let same = |a: &CaseReport, b: &CaseReport| a.package == b.package && a.name == b.name;
    let pairs = after.cases.iter().filter_map(|after| {
        let before = before.cases.iter().find(|before| same(before, after))?;
        (after.verdict.rank() > before.verdict.rank()).then(|| Worse { before: before.clone(), after: after.clone() })
    });
    pairs.collect()
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::super::report::Verdict;
    use super::*;

    fn report(verdicts: &[Verdict]) -> Report {
        let mut report = Report::empty("sm_120", Path::new("python"));
        for (index, verdict) in verdicts.iter().enumerate() {
            let mut case = CaseReport::new("p", *verdict, String::new());
            case.name = format!("case{index}");
            report.cases.push(case);
        }
        report
    }

    #[test]
    fn only_what_gets_worse_counts() {
        use Verdict::{Compiles, Defect, Gate, Mismatch, NotChecked, OverCapacity};
        let before = report(&[Compiles, Defect, Gate, Defect, Compiles, OverCapacity]);
        let after = report(&[Compiles, OverCapacity, Gate, Mismatch, NotChecked, Defect]);
        let names: Vec<String> = worse(&before, &after).into_iter().map(|worse| worse.after.name).collect();
        assert_eq!(names, ["case4", "case5"]);
    }
}
