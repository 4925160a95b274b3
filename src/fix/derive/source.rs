//! Small rewrites of one source file that keep its layout: an item more in a list, a line more in a block.
//!
//! All offsets taken are those of the decoded text; the edits count the bytes of the file on disk.

use crate::finding::Edit;
use crate::python::Module;
use crate::python::ir::{Call, Function, GuardId, Span, StmtKind};

/// Rewrites of one module.
#[derive(Clone, Copy)]
pub struct Source<'m> {
    module: &'m Module,
}

impl<'m> Source<'m> {
    /// Of a module whose offsets are those of its file; `None` for one in another encoding.
    pub fn of(module: &'m Module) -> Option<Source<'m>> {
        module.utf8.then_some(Source { module })
    }

    fn text(&self) -> &'m str {
        &self.module.text
    }

    /// An edit of the file.
    pub fn edit(&self, start: usize, end: usize, content: impl Into<String>) -> Edit {
        let offset = self.module.offset;
        let (root, path) = (self.module.root, self.module.path.clone());
        Edit { path, start: start + offset, end: end + offset, content: content.into(), root }
    }

    /// The white space in front of the line that holds `at`.
    pub fn indentation(&self, at: usize) -> &'m str {
        let line = &self.text()[self.line_start(at)..];
        &line[..line.len() - line.trim_start_matches([' ', '\t']).len()]
    }

    /// One level of indentation, as the file has it.
    pub fn indent_unit(&self) -> &'static str {
        let inside = self.module.functions.iter().find(|function| function.lambda.is_none());
        let body = inside.map(|function| function.body_start as usize);
        match body.map(|at| (self.indentation(at), at)) {
            Some((white, _)) if white.starts_with('\t') => "\t",
            Some((white, _)) if white.len() == 2 => "  ",
            _ => "    ",
        }
    }

    fn line_start(&self, at: usize) -> usize {
        self.text()[..at].rfind('\n').map_or(0, |newline| newline + 1)
    }

    /// The end of the line that holds `at`, without its line ending.
    fn line_end(&self, at: usize) -> usize {
        let end = self.text()[at..].find('\n').map_or(self.text().len(), |newline| at + newline);
        if self.text()[..end].ends_with('\r') && end > at { end - 1 } else { end }
    }

    /// Whether nothing stands on the line in front of `at`.
    fn starts_line(&self, at: usize) -> bool {
        self.text()[self.line_start(at)..at].trim().is_empty()
    }

    /// What stands between `at` and the end of the line: an optional comma, then nothing but a comment. The offset is that
    /// of the byte after the comma.
    fn ends_line(&self, at: usize) -> Option<(bool, usize)> {
        let rest = &self.text()[at..self.line_end(at)];
        let after_space = rest.trim_start_matches([' ', '\t']);
        let (comma, tail) = match after_space.strip_prefix(',') {
            Some(tail) => (true, tail),
            None => (false, rest),
        };
        let quiet = tail.trim_start().is_empty() || tail.trim_start().starts_with('#');
        quiet.then(|| (comma, at + rest.len() - tail.len()))
    }

    /// Puts `new` into a parenthesised list behind the item `previous` (in front of everything, if there is none).
    ///
    /// A list with one item a line gets a line; comments stay with the items they are about.
    pub fn insert_item(&self, items: &[Span], parentheses: Span, previous: Option<usize>, new: &str) -> Vec<Edit> {
        let Some(previous) = previous else { return self.insert_first(items, parentheses, new) };
        let Span { start, end } = items[previous];
        let (start, end) = (start as usize, end as usize);
        // Stars and keywords belong to the item, and so does what its span leaves out in front.
        if self.starts_line(start)
            && let Some((comma, after_comma)) = self.ends_line(end)
            && self.line_end(end) < parentheses.end as usize
        {
            let line = self.line_end(end);
            let added = format!("\n{}{new},", self.indentation(start));
            if comma {
                return vec![self.edit(line, line, added)];
            }
            // The last item, without a trailing comma: it needs one now, and the new one takes its place as the last.
            let added = added.strip_suffix(',').unwrap_or(&added).to_owned();
            return if after_comma == line {
                vec![self.edit(end, end, format!(",{added}"))]
            } else {
                vec![self.edit(end, end, ","), self.edit(line, line, added)]
            };
        }
        vec![self.edit(end, end, format!(", {new}"))]
    }

    fn insert_first(&self, items: &[Span], parentheses: Span, new: &str) -> Vec<Edit> {
        let open = parentheses.start as usize + 1;
        match items.first() {
            None => vec![self.edit(open, open, new)],
            Some(first) if self.starts_line(first.start as usize) => {
                let line = self.line_end(open);
                vec![self.edit(line, line, format!("\n{}{new},", self.indentation(first.start as usize)))]
            }
            Some(_) => vec![self.edit(open, open, format!("{new}, "))],
        }
    }

    /// Takes the item at `index` out of a parenthesised list, with its comma, and with its line where it has one.
    pub fn remove_item(&self, items: &[Span], index: usize, parentheses: Span) -> Edit {
        let Span { start, end } = items[index];
        let (start, end) = (start as usize, end as usize);
        if self.starts_line(start)
            && let Some((comma, _)) = self.ends_line(end)
            && (comma || self.line_end(end) < parentheses.end as usize)
        {
            let next_line = (self.line_end(end) + 1..=self.text().len())
                .find(|at| self.text()[..*at].ends_with('\n'))
                .unwrap_or(self.text().len());
            return self.edit(self.line_start(start), next_line, "");
        }
        match (items.get(index + 1), index.checked_sub(1).map(|before| items[before])) {
            (Some(next), _) => self.edit(start, next.start as usize, ""),
            (None, Some(before)) => self.edit(before.end as usize, end, ""),
            (None, None) => {
                let comma = self.text()[end..parentheses.end as usize - 1].find(',').map_or(end, |at| end + at + 1);
                self.edit(start, comma, "")
            }
        }
    }

    /// Sends a call through `helper`: `f(a)` becomes `helper(f, a)`.
    pub fn wrap_call(&self, call: &Call, helper: &str) -> Vec<Edit> {
        let callee = self.module[call.callee].span;
        let (start, end) = (callee.start as usize, callee.end as usize);
        let inside = call.parentheses.start as usize + 1;
        let first = call.arguments.first().map(|argument| argument.span.start as usize);
        match first {
            Some(first) if self.starts_line(first) && self.line_start(first) > self.line_start(start) => {
                let indentation = self.indentation(first);
                vec![self.edit(start, start, format!("{helper}(\n{indentation}")), self.edit(end, inside, ",")]
            }
            Some(_) => vec![self.edit(start, start, format!("{helper}(")), self.edit(end, inside, ", ")],
            None => vec![self.edit(start, start, format!("{helper}(")), self.edit(end, inside, "")],
        }
    }

    /// Puts an import line behind the imports at the top of the file, or where they would be.
    pub fn insert_import(&self, line: &str) -> Edit {
        let mut after = None;
        let mut has_import = false;
        for (index, stmt) in self.module.stmts.iter().enumerate() {
            if stmt.scope != Module::SCOPE || stmt.guard != GuardId(0) {
                continue;
            }
            match &stmt.kind {
                StmtKind::Import(_) | StmtKind::ImportFrom(_) => (after, has_import) = (Some(stmt.span.end), true),
                StmtKind::Expr(value) if index == 0 && self.is_string(*value) => after = Some(stmt.span.end),
                _ => break,
            }
        }
        let Some(after) = after else { return self.edit_at_top(line) };
        let end = self.line_end(after as usize);
        let gap = if has_import { "" } else { "\n" };
        self.edit(end, end, format!("\n{gap}{line}"))
    }

    /// In front of the first statement, behind the comments that open the file.
    fn edit_at_top(&self, line: &str) -> Edit {
        let first = self.module.stmts.first().map_or(self.text().len(), |stmt| stmt.span.start as usize);
        let mut at = 0;
        for text in self.text()[..first].split_inclusive('\n') {
            if !text.starts_with('#') {
                break;
            }
            at += text.len();
        }
        self.edit(at, at, format!("{line}\n\n"))
    }

    fn is_string(&self, expr: crate::python::ir::ExprId) -> bool {
        use crate::python::ir::{Constant, ExprKind};
        matches!(self.module[expr].kind, ExprKind::Constant(Constant::Str(_)))
    }

    /// Puts a statement on a line of its own behind the statement with this span.
    pub fn insert_after(&self, stmt: Span, line: &str) -> Edit {
        let end = self.line_end(stmt.end as usize);
        self.edit(end, end, format!("\n{}{line}", self.indentation(stmt.start as usize)))
    }

    /// Puts a statement on a line of its own at `body_start`, the first statement of a body that is not its docstring.
    pub fn insert_at_body_start(&self, body_start: u32, line: &str) -> Option<Edit> {
        let at = body_start as usize;
        // A body on the line of its head (`def f(self): pass`) has no place for a second statement.
        self.starts_line(at).then(|| self.edit(at, at, format!("{line}\n{}", self.indentation(at))))
    }

    /// Puts statements with this span into `try:`, followed by `except ImportError:` with the lines of `fallback`.
    pub fn guard_import(&self, stmt: Span, fallback: &[String]) -> Option<Vec<Edit>> {
        let (start, end) = (stmt.start as usize, stmt.end as usize);
        let (_, after) = self.ends_line(end).filter(|_| self.starts_line(start))?;
        let (outer, unit) = (self.indentation(start), self.indent_unit());
        let mut edits = vec![self.edit(start, start, format!("try:\n{outer}{unit}"))];
        let mut line = self.line_end(start);
        while line < end {
            let next = line + self.text()[line..].find('\n')? + 1;
            if !self.text()[next..self.line_end(next)].trim().is_empty() {
                edits.push(self.edit(next, next, unit));
            }
            line = self.line_end(next);
        }
        let close = self.line_end(after);
        let body: Vec<String> = fallback.iter().map(|text| format!("\n{outer}{unit}{text}")).collect();
        edits.push(self.edit(close, close, format!("\n{outer}except ImportError:{}", body.concat())));
        Some(edits)
    }
}

/// The spans of a call's arguments.
pub fn argument_spans(call: &Call) -> Vec<Span> {
    call.arguments.iter().map(|argument| argument.span).collect()
}

/// The spans of a function's parameters.
pub fn parameter_spans(function: &Function) -> Vec<Span> {
    function.parameters.iter().map(|parameter| parameter.span).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::environment::RootId;
    use crate::fix::apply;
    use crate::python::ir::ExprKind;
    use crate::python::{self, Origin, Symbol};

    fn module(text: &str) -> Module {
        let origin = Origin { name: Symbol::new("m"), is_package: false, root: RootId(0), path: "m.py".into() };
        python::index(text.as_bytes(), origin).unwrap()
    }

    fn changed(text: &str, edit: impl Fn(&Module, Source<'_>) -> Vec<Edit>) -> String {
        let module = module(text);
        let edits = edit(&module, Source::of(&module).unwrap());
        let (result, _) = apply::apply(text, &edits.iter().collect::<Vec<_>>()).unwrap();
        assert!(self::module(&result).errors.is_empty(), "{result}");
        result
    }

    fn call(module: &Module) -> &Call {
        module
            .exprs
            .iter()
            .find_map(|expr| if let ExprKind::Call(call) = &expr.kind { Some(&**call) } else { None })
            .unwrap()
    }

    /// Adds an argument behind the one at `previous`.
    fn added(text: &str, previous: Option<usize>) -> String {
        changed(text, |module, source| {
            let call = call(module);
            source.insert_item(&argument_spans(call), call.parentheses, previous, "new")
        })
    }

    fn removed(text: &str, index: usize) -> String {
        changed(text, |module, source| {
            let call = call(module);
            vec![source.remove_item(&argument_spans(call), index, call.parentheses)]
        })
    }

    #[test]
    fn arguments_are_added_in_the_style_of_their_list() {
        assert_eq!(added("f(a, b)\n", Some(1)), "f(a, b, new)\n");
        assert_eq!(added("f(a, b)\n", Some(0)), "f(a, new, b)\n");
        assert_eq!(added("f(a, b,)\n", Some(1)), "f(a, b, new,)\n");
        assert_eq!(added("f()\n", None), "f(new)\n");
        assert_eq!(added("f(a)\n", None), "f(new, a)\n");
        assert_eq!(added("f(\n    a,\n    b,\n)\n", Some(1)), "f(\n    a,\n    b,\n    new,\n)\n");
        assert_eq!(added("f(\n    a,\n    b,\n)\n", Some(0)), "f(\n    a,\n    new,\n    b,\n)\n");
        assert_eq!(added("f(\n    a,\n    b\n)\n", Some(1)), "f(\n    a,\n    b,\n    new\n)\n");
        assert_eq!(added("f(\n    a,\n)\n", None), "f(\n    new,\n    a,\n)\n");
        assert_eq!(added("f(a,\n  b)\n", Some(1)), "f(a,\n  b, new)\n");
        assert_eq!(added("f(\n    a, b,\n    c, d)\n", Some(3)), "f(\n    a, b,\n    c, d, new)\n");
    }

    #[test]
    fn comments_stay_with_what_they_are_about() {
        assert_eq!(
            added("f(\n    a,  # one\n    # two\n    b,  # three\n)\n", Some(0)),
            "f(\n    a,  # one\n    new,\n    # two\n    b,  # three\n)\n"
        );
        assert_eq!(added("f(\n    a,\n    b  # last\n)\n", Some(1)), "f(\n    a,\n    b,  # last\n    new\n)\n");
        assert_eq!(added("f(  # why\n    a,\n)\n", None), "f(  # why\n    new,\n    a,\n)\n");
    }

    #[test]
    fn parameters_are_added_before_keyword_only_tails() {
        let text = "def f(\n    self,\n    a: int,\n    *,\n    b=1,\n):\n    pass\n";
        let result = changed(text, |module, source| {
            let function = &module.functions[0];
            source.insert_item(&parameter_spans(function), function.parentheses, Some(1), "new: int = 0")
        });
        assert_eq!(result, "def f(\n    self,\n    a: int,\n    new: int = 0,\n    *,\n    b=1,\n):\n    pass\n");
    }

    #[test]
    fn arguments_go_with_their_comma_and_line() {
        assert_eq!(removed("f(a, b=None)\n", 1), "f(a)\n");
        assert_eq!(removed("f(a, b=None, c=1)\n", 1), "f(a, c=1)\n");
        assert_eq!(removed("f(b=None)\n", 0), "f()\n");
        assert_eq!(removed("f(b=None, )\n", 0), "f( )\n");
        assert_eq!(removed("f(\n    a,\n    b=None,  # old\n    c,\n)\n", 1), "f(\n    a,\n    c,\n)\n");
        assert_eq!(removed("f(\n    a,\n    b=None\n)\n", 1), "f(\n    a,\n)\n");
        assert_eq!(removed("f(a,\n  b=None)\n", 1), "f(a)\n");
    }

    #[test]
    fn calls_are_wrapped_in_place() {
        let wrapped = |text| changed(text, |module, source| source.wrap_call(call(module), "h"));
        assert_eq!(wrapped("x = f.g(a, b=1)\n"), "x = h(f.g, a, b=1)\n");
        assert_eq!(wrapped("x = f()\n"), "x = h(f)\n");
        assert_eq!(wrapped("x = f(\n    a,  # one\n    b=1,\n)\n"), "x = h(\n    f,\n    a,  # one\n    b=1,\n)\n");
        assert_eq!(wrapped("x = f(*a, **b)\n"), "x = h(f, *a, **b)\n");
    }

    #[test]
    fn imports_go_behind_imports() {
        let import = |text| changed(text, |_, source| vec![source.insert_import("from p import h")]);
        assert_eq!(
            import("import a\nfrom b import (\n    c,\n)\n\nx = 1\n"),
            "import a\nfrom b import (\n    c,\n)\nfrom p import h\n\nx = 1\n"
        );
        assert_eq!(import("\"\"\"Doc.\"\"\"\n\nx = 1\n"), "\"\"\"Doc.\"\"\"\n\nfrom p import h\n\nx = 1\n");
        assert_eq!(import("# License\n\nx = 1\n"), "# License\nfrom p import h\n\n\nx = 1\n");
        assert_eq!(
            import("import a  # why\nif a:\n    import b\n"),
            "import a  # why\nfrom p import h\nif a:\n    import b\n"
        );
        assert_eq!(import("import a"), "import a\nfrom p import h");
        assert_eq!(
            import("from __future__ import annotations\r\nx = 1\r\n"),
            "from __future__ import annotations\r\nfrom p import h\r\nx = 1\r\n"
        );
    }

    #[test]
    fn imports_are_guarded_with_their_continuation_lines() {
        let guard = |text| {
            changed(text, |module, source| {
                let stmt = module.stmts.iter().find(|stmt| matches!(stmt.kind, StmtKind::ImportFrom(_))).unwrap();
                source.guard_import(stmt.span, &["b = None".to_owned()]).unwrap()
            })
        };
        assert_eq!(
            guard("def f():\n    from a import b  # why\n    return b\n"),
            "def f():\n    try:\n        from a import b  # why\n    except ImportError:\n        b = None\n    return b\n"
        );
        assert_eq!(
            guard("from a import (\n    b,\n\n    c,\n)\n"),
            "try:\n    from a import (\n        b,\n\n        c,\n    )\nexcept ImportError:\n    b = None\n"
        );
    }

    #[test]
    fn byte_order_marks_and_windows_line_endings_survive() {
        let text = "\u{feff}f(\r\n    a,\r\n)\r\n";
        assert_eq!(added(text, Some(0)), "\u{feff}f(\r\n    a,\r\n    new,\r\n)\r\n");
    }
}
