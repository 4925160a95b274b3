//! The fix engine on a toy language whose defects are words, and the diff of its plans.

use std::collections::BTreeMap;
use std::io;

use fa_doctor::environment::RootId;
use fa_doctor::finding::{Applicability, Edit, Finding, Fix, Severity};
use fa_doctor::fix::diff;
use fa_doctor::fix::engine::{Choice, Overlay, Plan, Workspace, plan};
use fa_doctor::report::style::Style;

/// Words that are defects, and what their fixes put there.
const WORDS: [(&str, &str, Applicability); 8] = [
    ("bad", "good", Applicability::Safe),
    ("first", "second", Applicability::Safe),
    ("second", "third", Applicability::Safe),
    ("guess", "good", Applicability::Unsafe),
    ("hard", "good", Applicability::Manual),
    ("breaks", "(", Applicability::Safe),
    ("brings", "hard", Applicability::Safe),
    ("stays", "stays ", Applicability::Safe),
];

struct Toy {
    files: BTreeMap<String, Vec<u8>>,
    scans: usize,
}

impl Toy {
    fn new(files: &[(&str, &str)]) -> Toy {
        Toy { files: files.iter().map(|(path, text)| ((*path).into(), (*text).into())).collect(), scans: 0 }
    }

    fn findings(&self, overlay: &Overlay) -> Vec<Finding> {
        let mut files: BTreeMap<&str, &[u8]> = self.files.iter().map(|(path, bytes)| (&path[..], &bytes[..])).collect();
        files.extend(overlay.iter().map(|((_, path), bytes)| (&path[..], &bytes[..])));
        let mut findings = Vec::new();
        for (path, bytes) in files {
            let text = String::from_utf8_lossy(bytes);
            for (word, content, applicability) in WORDS {
                for (start, _) in text.match_indices(word) {
                    let edit = |start, end, content: &str| Edit {
                        path: path.into(),
                        start,
                        end,
                        content: content.into(),
                        root: RootId(0),
                    };
                    findings.push(Finding {
                        code: if word == "bad" { "FA001" } else { "FA002" }.into(),
                        name: "toy".into(),
                        severity: Severity::Error,
                        package: None,
                        version: None,
                        path: path.into(),
                        line: text[..start].lines().count() as u32,
                        column: 1,
                        end_line: 1,
                        end_column: 1,
                        symbol: word.into(),
                        message: String::new(),
                        help: None,
                        arch: Vec::new(),
                        related: Vec::new(),
                        fix: Some(Fix {
                            applicability,
                            title: format!("Replace `{word}`"),
                            edits: vec![edit(start, start + word.len(), content)],
                        }),
                        root: RootId(0),
                    });
                }
            }
        }
        findings
    }
}

impl Workspace for Toy {
    fn read(&mut self, _root: RootId, path: &str) -> io::Result<Option<Vec<u8>>> {
        Ok(self.files.get(path).cloned())
    }

    fn scan(&mut self, overlay: &Overlay) -> anyhow::Result<Vec<Finding>> {
        self.scans += 1;
        Ok(self.findings(overlay))
    }

    fn syntax_errors(&self, bytes: &[u8]) -> usize {
        bytes.iter().filter(|byte| **byte == b'(').count()
    }
}

fn run(toy: &mut Toy, unsafe_too: bool, selected: &dyn Fn(&Finding) -> bool) -> Plan {
    let first = toy.findings(&Overlay::new());
    plan(toy, first, &Choice { unsafe_too, selected }).unwrap()
}

fn after(plan: &Plan, path: &str) -> String {
    String::from_utf8(plan.files[&(RootId(0), path.to_owned())].after.clone()).unwrap()
}

fn reasons(plan: &Plan) -> Vec<(&str, &str)> {
    plan.skipped.iter().map(|skipped| (&skipped.finding.symbol[..], &skipped.reason[..])).collect()
}

#[test]
fn one_round_applies_everything_that_fits_together() {
    let mut toy = Toy::new(&[("a.py", "x bad y\n"), ("b.py", "bad guess hard\n")]);
    let plan = run(&mut toy, false, &|_| true);
    assert_eq!((after(&plan, "a.py"), after(&plan, "b.py")), ("x good y\n".into(), "good guess hard\n".into()));
    assert_eq!(plan.applied.len(), 2);
    assert_eq!(
        reasons(&plan),
        [("guess", "it is a judgement, and needs --unsafe"), ("hard", "it is for a person to make")]
    );
    assert_eq!(toy.scans, 1);
}

#[test]
fn judgements_are_applied_when_asked_for_and_codes_selected() {
    let mut toy = Toy::new(&[("a.py", "bad guess\n")]);
    assert_eq!(after(&run(&mut toy, true, &|_| true), "a.py"), "good good\n");
    let plan = run(&mut toy, true, &|finding| finding.code == "FA001");
    assert_eq!(after(&plan, "a.py"), "good guess\n");
    assert_eq!(reasons(&plan), [("guess", "FA002 is not selected")]);
}

#[test]
fn fixes_that_touch_wait_for_the_next_round() {
    let mut toy = Toy::new(&[("a.py", "badbad bad\n")]);
    let plan = run(&mut toy, false, &|_| true);
    assert_eq!(after(&plan, "a.py"), "badbad bad\n".replace("bad", "good"));
}

#[test]
fn a_fix_that_breaks_or_brings_or_does_not_help_is_dropped_and_the_others_stay() {
    let mut toy = Toy::new(&[("a.py", "bad breaks\nbrings\nstays\n")]);
    let plan = run(&mut toy, false, &|_| true);
    assert_eq!(after(&plan, "a.py"), "good breaks\nbrings\nstays\n");
    assert_eq!(
        reasons(&plan),
        [
            ("breaks", "it would leave a.py with a syntax error"),
            ("brings", "it would bring FA002 hard"),
            ("stays", "stays is still there with it"),
        ]
    );
}

#[test]
fn nothing_to_do_is_no_plan() {
    let mut toy = Toy::new(&[("a.py", "good\n")]);
    let plan = run(&mut toy, true, &|_| true);
    assert!(plan.files.is_empty() && plan.applied.is_empty() && toy.scans == 0);
}

#[test]
fn the_diff_can_be_applied_and_says_what_each_hunk_does() {
    let text = format!("bad\n{}guess\n", "line\n".repeat(10));
    let mut toy = Toy::new(&[("pkg/a.py", &text)]);
    let plan = run(&mut toy, true, &|_| true);
    let expected = "\
--- a/pkg/a.py
+++ b/pkg/a.py
@@ -1,4 +1,4 @@ FA001: Replace `bad`
-bad
+good
 line
 line
 line
@@ -9,4 +9,4 @@ FA002: Replace `guess`
 line
 line
 line
-guess
+good
";
    assert_eq!(diff::render(&plan, Style::PLAIN), expected);
    assert!(diff::render(&plan, Style { color: true, ..Style::PLAIN }).contains("\u{1b}[32m+good"));
}

#[test]
fn a_missing_newline_at_the_end_is_shown_and_kept() {
    let mut toy = Toy::new(&[("a.py", "x\r\nbad")]);
    let plan = run(&mut toy, false, &|_| true);
    assert_eq!(after(&plan, "a.py"), "x\r\ngood");
    let shown = diff::render(&plan, Style::PLAIN);
    assert!(shown.ends_with("-bad\n\\ No newline at end of file\n+good\n\\ No newline at end of file\n"), "{shown}");
}
