//! Text for XML and HTML.

/// Escapes text for an element or a quoted attribute; characters that XML 1.0 cannot hold become U+FFFD, and so do
/// those that reorder what the reader sees.
pub fn escape(text: &str) -> String {
    let mut escaped = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            '&' => escaped.push_str("&amp;"),
            '<' => escaped.push_str("&lt;"),
            '>' => escaped.push_str("&gt;"),
            '"' => escaped.push_str("&quot;"),
            '\'' => escaped.push_str("&#39;"),
            '\n' | '\t' => escaped.push(c),
            c if c.is_control() || matches!(c, '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}') => {
                escaped.push('\u{fffd}');
            }
            '\u{fffe}' | '\u{ffff}' => escaped.push('\u{fffd}'),
            c => escaped.push(c),
        }
    }
    escaped
}

#[cfg(test)]
mod tests {
    use super::escape;

    #[test]
    fn markup_holds_any_text() {
        assert_eq!(escape("a<b>&\"'\u{0}\u{1b}\u{202e}\n"), "a&lt;b&gt;&amp;&quot;&#39;\u{fffd}\u{fffd}\u{fffd}\n");
    }
}
