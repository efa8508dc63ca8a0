//! Regular expressions of a schema: each is compiled once, and all together have a size.

use std::collections::HashMap;

use regex::{Error, Regex, RegexBuilder};

/// Sizes that a compiled pattern can have, in bytes; it counts as the first one that is enough.
const SIZES: [usize; 4] = [4 << 10, 32 << 10, 256 << 10, 2 << 20];
/// What all patterns of a schema may take together: memory for as long as the type is there, and
/// time whenever it changes.
const MAX_BYTES: usize = 16 << 20;
/// What searching with a pattern may take beside it.
const SEARCH_BYTES: usize = 256 << 10;

/// The patterns of one schema.
pub(super) struct Patterns {
    known: HashMap<String, Regex>,
    left: usize,
}

impl Default for Patterns {
    fn default() -> Self {
        Self {
            known: HashMap::new(),
            left: MAX_BYTES,
        }
    }
}

impl Patterns {
    /// A pattern, compiled unless it is known.
    ///
    /// # Errors
    ///
    /// Says what is wrong with it.
    pub(super) fn get(&mut self, text: &str) -> Result<Regex, String> {
        if let Some(known) = self.known.get(text) {
            return Ok(known.clone());
        }
        for size in SIZES {
            let Some(left) = self.left.checked_sub(size) else {
                return Err(format!(
                    "the patterns of a schema may take {MAX_BYTES} bytes together"
                ));
            };
            let mut builder = RegexBuilder::new(text);
            match builder
                .size_limit(size)
                .dfa_size_limit(SEARCH_BYTES)
                .build()
            {
                Ok(regex) => {
                    self.left = left;
                    self.known.insert(text.to_owned(), regex.clone());
                    return Ok(regex);
                }
                // Counts as tried: the next size takes more time than all before it.
                Err(Error::CompiledTooBig(_)) => {}
                Err(e) => return Err(format!("pattern {text:?} is invalid: {e}")),
            }
        }
        Err(format!("pattern {text:?} is too large"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn patterns_are_bounded_alone_and_together() {
        let mut patterns = Patterns::default();
        for _ in 0..10_000 {
            patterns.get("^[a-z]+$").unwrap();
        }
        assert_eq!(patterns.known.len(), 1);
        assert!(patterns.get("(").unwrap_err().contains("is invalid"));
        let large = patterns.get("(a{1000}){1000}").unwrap_err();
        assert!(large.ends_with("is too large"), "{large}");
        let refused = (0..20_000).find_map(|at| patterns.get(&format!("^a{at}$")).err());
        let refused = refused.expect("there is a bound");
        assert_eq!(
            refused,
            "the patterns of a schema may take 16777216 bytes together"
        );
        assert!(patterns.known.len() > 1000, "{}", patterns.known.len());
    }
}
