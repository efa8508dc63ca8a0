//! Bounds on the text of an expression, before anything parses it.
//!
//! The parser recurses once a bracket, an operator of a chain and a field, and visits the operand
//! of two prefix operators in a row twice, which nested is twice as often with each level.

use std::borrow::Cow;

use crate::failure::Failure;
use crate::program::error;

/// Deepest nesting of an expression, as in cel-go.
pub(crate) const MAX_DEPTH: u16 = 250;

pub(crate) fn too_deep() -> Failure {
    error(&format!("expression recursion limit exceeded: {MAX_DEPTH}"))
}

/// Refuses a text that is too long or nests too deep, and gives it without pairs of prefix
/// operators, which change nothing.
///
/// # Errors
///
/// In the words of cel-go.
pub(crate) fn check(source: &str, max_characters: usize) -> Result<Cow<'_, str>, Failure> {
    let characters = source.chars().count();
    if characters > max_characters {
        return Err(error(&format!(
            "expression code point size exceeds limit: size: {characters}, limit {max_characters}"
        )));
    }
    let mut depth = Depth::default();
    let mut prefixes = Prefixes::default();
    let mut rest = source;
    while let Some(token) = next(rest) {
        let at = source.len() - rest.len();
        depth.see(token)?;
        prefixes.see(token, at);
        rest = &rest[token.len()..];
    }
    if prefixes.pairs.is_empty() {
        return Ok(source.into());
    }
    let mut text = source.as_bytes().to_vec();
    for at in prefixes.pairs.into_iter().flatten() {
        text[at] = b' ';
    }
    // Only ASCII has been replaced, by ASCII.
    Ok(String::from_utf8_lossy(&text).into_owned().into())
}

/// The first token of a text, roughly: a literal, a word, spaces, or one sign.
fn next(text: &str) -> Option<&str> {
    let first = text.chars().next()?;
    let is_word = |c: char| c.is_alphanumeric() || c == '_';
    let length = if first.is_whitespace() {
        text.find(|c: char| !c.is_whitespace())
    } else if text.starts_with("//") {
        text.find('\n')
    } else if is_word(first) {
        let end = text.find(|c| !is_word(c)).unwrap_or(text.len());
        let prefix = text[..end].to_ascii_lowercase();
        match text[end..].chars().next() {
            // Raw texts and bytes.
            Some('"' | '\'') if matches!(&*prefix, "r" | "b" | "rb" | "br") => {
                Some(end + literal(&text[end..], prefix.contains('r')))
            }
            _ => Some(end),
        }
    } else if matches!(first, '"' | '\'') {
        Some(literal(text, false))
    } else if text.starts_with("&&") || text.starts_with("||") {
        Some(2)
    } else {
        Some(first.len_utf8())
    };
    Some(&text[..length.unwrap_or(text.len())])
}

/// Length of the literal that a text begins with, of which `text` has the opening quote.
fn literal(text: &str, raw: bool) -> usize {
    let quote = &text[..1];
    let tripled = quote.repeat(3);
    let close = if text.starts_with(&tripled) {
        tripled.as_str()
    } else {
        quote
    };
    let mut at = close.len();
    while let Some(c) = text[at..].chars().next() {
        if text[at..].starts_with(close) {
            return at + close.len();
        }
        at += c.len_utf8();
        if c == '\\' && !raw {
            at += text[at..].chars().next().map_or(0, char::len_utf8);
        }
    }
    text.len()
}

/// How deep the parser recurses at most.
#[derive(Default)]
struct Depth {
    outer: Vec<Chain>,
    inner: Chain,
    /// Levels of all that is around.
    around: usize,
    previous: Option<char>,
}

/// Operators between two separators, each of which can be a level.
#[derive(Clone, Copy, Default)]
struct Chain {
    choices: usize,
    others: usize,
}

impl Chain {
    fn levels(self) -> usize {
        self.choices + self.others
    }
}

impl Depth {
    fn see(&mut self, token: &str) -> Result<(), Failure> {
        let first = token.chars().next().unwrap_or(' ');
        if first.is_whitespace() || token.starts_with("//") {
            return Ok(());
        }
        match first {
            '(' | '[' | '{' => {
                self.inner.others += 1;
                self.around += self.inner.levels();
                self.outer.push(std::mem::take(&mut self.inner));
            }
            ')' | ']' | '}' => {
                if let Some(outer) = self.outer.pop() {
                    self.inner = outer;
                    self.around -= outer.levels();
                }
            }
            ',' => self.inner = Chain::default(),
            '&' | '|' | ':' => self.inner.others = 0,
            // Those of optional fields and elements are no choice.
            '?' if matches!(self.previous, Some('.' | '[' | '{' | ',')) => {}
            '?' => {
                self.inner.choices += 1;
                self.inner.others = 0;
            }
            // A prefix operator is one level, however often it is repeated.
            '!' | '-' if self.previous == Some(first) => {}
            '.' | '+' | '-' | '*' | '/' | '%' | '<' | '>' | '=' | '!' => self.inner.others += 1,
            'i' if token == "in" => self.inner.others += 1,
            _ => {}
        }
        self.previous = Some(first);
        if self.around + self.inner.levels() > usize::from(MAX_DEPTH) {
            return Err(too_deep());
        }
        Ok(())
    }
}

/// Finds pairs of prefix operators.
#[derive(Default)]
struct Prefixes {
    pairs: Vec<[usize; 2]>,
    /// Where one stands that has no other yet.
    open: Option<(usize, char)>,
    /// Whether a value has just ended: what follows is no prefix.
    after_value: bool,
}

impl Prefixes {
    fn see(&mut self, token: &str, at: usize) {
        let first = token.chars().next().unwrap_or(' ');
        if first.is_whitespace() || token.starts_with("//") {
            return;
        }
        let is_prefix = matches!(first, '!' | '-') && !self.after_value;
        match self.open.take() {
            Some((before, sign)) if is_prefix && sign == first => {
                self.pairs.push([before, at]);
            }
            _ if is_prefix => self.open = Some((at, first)),
            _ => {}
        }
        let is_word = first.is_alphanumeric() || first == '_';
        self.after_value =
            (is_word && token != "in") || matches!(first, '"' | '\'' | ')' | ']' | '}');
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn depth_is_fine(source: &str) -> bool {
        check(source, 100_000).is_ok()
    }

    #[test]
    fn pairs_of_prefix_operators_go() {
        let cases = [
            ("!!a", "  a"),
            ("!!!a", "  !a"),
            ("! !a", "   a"),
            ("a--b", "a--b"),
            ("a---b", "a-  b"),
            ("--1", "  1"),
            ("!-1", "!-1"),
            ("a in --[1]", "a in   [1]"),
            ("(--(--x))", "(  (  x))"),
            ("'!!' + r'--\\'", "'!!' + r'--\\'"),
            ("a != !!b", "a !=   b"),
        ];
        for (source, expected) in cases {
            assert_eq!(check(source, 100).unwrap(), expected, "{source}");
        }
    }

    #[test]
    fn what_nests_counts_and_what_stands_side_by_side_does_not() {
        let chain = |part: &str, count: usize| format!("a{}", part.repeat(count));
        for part in ["+1", ".a", "[0]", " in [1]", ".?a", "-(1)", ".f(1)"] {
            assert!(depth_is_fine(&chain(part, 100)), "{part}");
            assert!(!depth_is_fine(&chain(part, 251)), "{part}");
        }
        for part in [
            " && b.c == 1",
            " || b.c.d(1) + 1 == 2",
            ", b.c",
            " ? '' : c.d",
        ] {
            let source = chain(part, 240);
            assert!(depth_is_fine(&source), "{part}");
        }
        assert!(depth_is_fine(&chain(" || b", 4000)));
        assert!(!depth_is_fine(&chain(" ? '' : c", 251)));
        for brackets in ["()", "[]", "{}"] {
            let nested = |count: usize| {
                let (open, close) = brackets.split_at(1);
                format!("{}{}", open.repeat(count), close.repeat(count))
            };
            assert!(depth_is_fine(&nested(250)), "{brackets}");
            assert!(!depth_is_fine(&nested(251)), "{brackets}");
        }
        let text = "(".repeat(1000);
        for quoted in [
            format!("'{text}'"),
            format!("\"\\\"{text}\""),
            format!("'''{text}' {text}'''"),
            format!("r'{text}'"),
            format!("b\"{text}\""),
            format!("1 // {text}\n + 1"),
        ] {
            assert!(depth_is_fine(&quoted), "{quoted}");
        }
        assert!(!depth_is_fine(&format!("r'\\'{text}")));
    }

    #[test]
    fn long_texts_are_refused_by_characters() {
        assert!(check("'é'", 3).is_ok());
        let error = check("'éé'", 3).unwrap_err().to_string();
        assert!(error.ends_with("expression code point size exceeds limit: size: 4, limit 3"));
    }
}
