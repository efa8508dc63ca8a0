//! From the text of a path to its steps.

use std::str::Chars;

use serde_json::{Number, Value};
use thiserror::Error;

use super::{Operator, Part, Slice, Step};
use crate::go_format::unicode_point;

/// Longest path, in bytes. Paths that people write have some dozen; a longer one costs time at each
/// look at the object, whatever the object is.
pub const MAX_PATH_BYTES: usize = 16 * 1024;

/// Why a text is no path. The texts are those of the reference, since they end in conditions.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum ParseError {
    /// A line ended, or the text did, before the closing brace.
    #[error("unclosed action")]
    UnclosedAction,
    /// A character that begins no step.
    #[error("unrecognized character in action: {}", unicode_point(*.0))]
    UnrecognizedCharacter(char),
    /// `..` right after `..`.
    #[error("invalid multiple recursive descent")]
    RepeatedRecursion,
    /// A text that begins like a number and is none.
    #[error("cannot parse number {0}")]
    InvalidNumber(String),
    /// `[` without `]`.
    #[error("unterminated array")]
    UnterminatedArray,
    /// Something between brackets that is no index, slice, union or quoted key.
    #[error("invalid array index {0}")]
    InvalidIndex(String),
    /// An index beyond 64 bits, or a lone minus sign.
    #[error("array index {0} is not a number")]
    IndexNotANumber(String),
    /// `[?(` without its end.
    #[error("unterminated filter")]
    UnterminatedFilter,
    /// A filter whose `)` is not followed by `]`.
    #[error("unclosed array expect ]")]
    UnclosedFilter,
    /// A quote without its counterpart.
    #[error("unterminated quoted string")]
    UnterminatedString,
    /// A quoted text with an escape that does not exist.
    #[error("unquote string {0} error invalid syntax")]
    InvalidEscape(String),
    /// More than [`MAX_PATH_BYTES`]; names the length. Ours.
    #[error("the path has {0} bytes, at most {MAX_PATH_BYTES} are allowed")]
    TooLong(usize),
}

/// Parses a template: texts and actions in braces.
pub(super) fn template(text: &str) -> Result<Vec<Part>, ParseError> {
    let mut parser = Parser { text, position: 0 };
    let mut parts = Vec::new();
    loop {
        let rest = parser.rest();
        let brace = rest.find('{').unwrap_or(rest.len());
        if brace > 0 {
            parts.push(Part::Text(rest[..brace].into()));
            parser.position += brace;
        }
        if parser.next().is_none() {
            return Ok(parts);
        }
        parts.push(Part::Action(parser.action()?));
    }
}

/// Parses `text` as an action of its own: a part of a union, a quoted key, a side of a filter.
///
/// Nests at most a few levels deep: parts of a union and keys hold no brackets, and a filter
/// inside a filter has to hide its end in quotes, of which there are two kinds.
fn nested(text: &str) -> Result<Vec<Step>, ParseError> {
    let parts = template(&format!("{{{text}}}"))?;
    match parts.into_iter().next() {
        Some(Part::Action(steps)) => Ok(steps),
        // The text begins with a brace, so that the first part is an action.
        _ => Ok(Vec::new()),
    }
}

struct Parser<'t> {
    text: &'t str,
    position: usize,
}

impl<'t> Parser<'t> {
    fn rest(&self) -> &'t str {
        &self.text[self.position..]
    }

    fn peek(&self) -> Option<char> {
        self.rest().chars().next()
    }

    fn next(&mut self) -> Option<char> {
        let character = self.peek()?;
        self.position += character.len_utf8();
        Some(character)
    }

    /// Is the character before the one just read a backslash? As in the reference, a backslash
    /// that is itself escaped counts too.
    fn after_backslash(&self) -> bool {
        self.position >= 2 && self.text.as_bytes()[self.position - 2] == b'\\'
    }

    /// Parses up to and including the closing brace.
    fn action(&mut self) -> Result<Vec<Step>, ParseError> {
        let mut steps = Vec::new();
        loop {
            let rest = self.rest();
            if rest.starts_with("[?(") {
                self.position += 3;
                steps.push(self.filter()?);
                continue;
            }
            if rest.starts_with("..") {
                self.position += 2;
                if matches!(steps.last(), Some(Step::Recursive)) {
                    return Err(ParseError::RepeatedRecursion);
                }
                steps.push(Step::Recursive);
                if self.peek().is_some_and(is_word) {
                    steps.push(self.field());
                }
                continue;
            }
            let start = self.position;
            match self.next() {
                Some('}') => return Ok(steps),
                None | Some('\r' | '\n') => return Err(ParseError::UnclosedAction),
                Some(' ' | '@' | '$') => {}
                Some('[') => self.brackets(&mut steps)?,
                Some(quote @ ('"' | '\'')) => steps.push(self.quoted(start, quote)?),
                Some('.') => steps.push(self.field()),
                Some(character) if matches!(character, '+' | '-') || is_digit(character) => {
                    steps.push(self.number(start)?);
                }
                Some(character) if is_word(character) => steps.push(self.word(start)),
                Some(character) => return Err(ParseError::UnrecognizedCharacter(character)),
            }
        }
    }

    /// Parses a key after its dot; a backslash takes the next character as it is.
    fn field(&mut self) -> Step {
        let start = self.position;
        while let Some(character) = self.peek().filter(|&character| !ends_word(character)) {
            self.next();
            if character == '\\' {
                self.next();
            }
        }
        match &self.text[start..self.position] {
            "*" => Step::Wildcard,
            name => Step::Field(name.replace('\\', "")),
        }
    }

    fn word(&mut self, start: usize) -> Step {
        while self.peek().is_some_and(|character| !ends_word(character)) {
            self.next();
        }
        match &self.text[start..self.position] {
            "true" => Step::Constant(true.into()),
            "false" => Step::Constant(false.into()),
            "range" => Step::Range,
            "end" => Step::End,
            unknown => Step::Unknown(unknown.into()),
        }
    }

    fn number(&mut self, start: usize) -> Result<Step, ParseError> {
        while self
            .peek()
            .is_some_and(|character| character == '.' || is_digit(character))
        {
            self.next();
        }
        let text = &self.text[start..self.position];
        let number = text
            .parse()
            .map(|integer: i64| integer.into())
            .ok()
            .or_else(|| text.parse().map(|integer: u64| integer.into()).ok())
            .or_else(|| {
                text.parse().ok().and_then(Number::from_f64) // Refuses what is beyond a double.
            });
        match number {
            Some(number) => Ok(Step::Constant(Value::Number(number))),
            None => Err(ParseError::InvalidNumber(text.into())),
        }
    }

    fn quoted(&mut self, start: usize, quote: char) -> Result<Step, ParseError> {
        loop {
            match self.next() {
                None | Some('\n') => return Err(ParseError::UnterminatedString),
                Some(character) if character == quote && !self.after_backslash() => break,
                Some(_) => {}
            }
        }
        let text = &self.text[start..self.position];
        match unquote(&text[1..text.len() - 1], quote) {
            Some(text) => Ok(Step::Text(text.into())),
            None => Err(ParseError::InvalidEscape(text.into())),
        }
    }

    /// Parses what follows `[`: an index, a slice, a quoted key or a union of these.
    fn brackets(&mut self, steps: &mut Vec<Step>) -> Result<(), ParseError> {
        let start = self.position;
        loop {
            match self.next() {
                None | Some('\n') => return Err(ParseError::UnterminatedArray),
                Some(']') => break,
                Some(_) => {}
            }
        }
        let text = &self.text[start..self.position - 1];
        if text.contains(',') {
            let members = text
                .split(',')
                .map(|member| nested(&format!("[{}]", member.trim_matches(' '))))
                .collect::<Result<_, _>>()?;
            steps.push(Step::Union(members));
        } else if let Some(key) = quoted_key(text) {
            let as_reference = nested(&format!(".{key}"))?;
            match as_reference.as_slice() {
                [Step::Field(name)] if name == key => steps.extend(as_reference),
                _ => steps.push(Step::Quoted {
                    key: key.to_owned(),
                    steps: as_reference,
                }),
            }
        } else {
            steps.push(Step::Slice(slice(if text == "*" { ":" } else { text })?));
        }
        Ok(())
    }

    /// Parses what follows `[?(`, up to and including `)]`.
    fn filter(&mut self) -> Result<Step, ParseError> {
        let start = self.position;
        // Only the first quoted text may hide a closing parenthesis.
        let mut open: Option<char> = None;
        let mut closed = false;
        loop {
            match self.next() {
                None | Some('\n') => return Err(ParseError::UnterminatedFilter),
                Some(quote @ ('"' | '\'')) => match open {
                    None => open = Some(quote),
                    Some(first) => closed |= first == quote && !self.after_backslash(),
                },
                Some(')') if open.is_none() || closed => break,
                Some(_) => {}
            }
        }
        let text = &self.text[start..self.position - 1];
        if self.next() != Some(']') {
            return Err(ParseError::UnclosedFilter);
        }
        Ok(match split_comparison(text) {
            None => Step::Exists(nested(text)?),
            Some((left, operator, right)) => Step::Filter {
                left: nested(left)?,
                operator,
                right: nested(right)?,
            },
        })
    }
}

/// Splits at the first run of operator characters; both sides hold at least one character, to
/// which end the run gives up its last one.
fn split_comparison(text: &str) -> Option<(&str, Operator, &str)> {
    let is_operator = |character| matches!(character, '!' | '<' | '>' | '=');
    let start = text.find(is_operator).filter(|&start| start > 0)?;
    let run = text[start..].find(|character| !is_operator(character));
    let end = run.map_or(text.len() - 1, |length| start + length);
    if end == start {
        return None;
    }
    let operator = match &text[start..end] {
        "==" => Operator::Equal,
        "!=" => Operator::NotEqual,
        "<" => Operator::Less,
        "<=" => Operator::LessOrEqual,
        ">" => Operator::Greater,
        ">=" => Operator::GreaterOrEqual,
        unknown => Operator::Unknown(unknown.into()),
    };
    Some((&text[..start], operator, &text[end..]))
}

/// The key in `'key'`; a quote inside is not allowed.
fn quoted_key(text: &str) -> Option<&str> {
    let key = text.strip_prefix('\'')?.strip_suffix('\'')?;
    (!key.contains('\'')).then_some(key)
}

fn slice(text: &str) -> Result<Slice, ParseError> {
    let parts: Vec<&str> = text.split(':').collect();
    let is_bound = |part: &&str| {
        part.strip_prefix('-')
            .unwrap_or(part)
            .bytes()
            .all(|byte| byte.is_ascii_digit())
    };
    if parts.len() > 3 || !parts.iter().all(is_bound) {
        return Err(ParseError::InvalidIndex(text.into()));
    }
    let bound = |position: usize| -> Result<Option<i64>, ParseError> {
        match parts.get(position) {
            None | Some(&"") => Ok(None),
            Some(part) => part
                .parse()
                .map(Some)
                .map_err(|_| ParseError::IndexNotANumber((*part).into())),
        }
    };
    let (start, end, step) = (bound(0)?, bound(1)?, bound(2)?);
    let single = parts.len() == 1;
    // `[]` reads as `[0]`.
    let end = if single {
        Some(start.unwrap_or(0).wrapping_add(1))
    } else {
        end
    };
    Ok(Slice {
        start,
        end,
        step,
        single,
    })
}

/// Resolves the escapes of a Go string literal; `None` if there is one that Go does not know.
fn unquote(text: &str, quote: char) -> Option<String> {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.chars();
    while let Some(character) = rest.next() {
        if character == quote {
            return None;
        }
        let resolved = if character == '\\' {
            escape(&mut rest, quote)?
        } else {
            character.into()
        };
        match resolved {
            Resolved::Byte(byte) => bytes.push(byte),
            Resolved::Character(character) => {
                bytes.extend_from_slice(character.encode_utf8(&mut [0; 4]).as_bytes());
            }
        }
    }
    // `\xff` makes a byte that is no text; JSON could not carry it either.
    Some(String::from_utf8_lossy(&bytes).into_owned())
}

enum Resolved {
    Byte(u8),
    Character(char),
}

impl From<char> for Resolved {
    fn from(character: char) -> Self {
        Self::Character(character)
    }
}

fn escape(rest: &mut Chars<'_>, quote: char) -> Option<Resolved> {
    let kind = rest.next()?;
    let mut digits = |count: usize, radix: u32, first: u32| {
        (0..count).try_fold(first, |sum, _| {
            sum.checked_mul(radix)?
                .checked_add(rest.next()?.to_digit(radix)?)
        })
    };
    Some(match kind {
        'a' => '\u{7}'.into(),
        'b' => '\u{8}'.into(),
        'f' => '\u{c}'.into(),
        'n' => '\n'.into(),
        'r' => '\r'.into(),
        't' => '\t'.into(),
        'v' => '\u{b}'.into(),
        '\\' => '\\'.into(),
        'x' => Resolved::Byte(u8::try_from(digits(2, 16, 0)?).ok()?),
        '0'..='7' => Resolved::Byte(u8::try_from(digits(2, 8, kind.to_digit(8)?)?).ok()?),
        'u' => char::from_u32(digits(4, 16, 0)?)?.into(),
        'U' => char::from_u32(digits(8, 16, 0)?)?.into(),
        _ if kind == quote => quote.into(),
        _ => return None,
    })
}

/// Ends a key, a word or a number's surroundings.
fn ends_word(character: char) -> bool {
    matches!(
        character,
        ' ' | '\t' | '\r' | '\n' | '.' | ',' | '[' | ']' | '$' | '@' | '{' | '}'
    )
}

fn is_word(character: char) -> bool {
    character == '_' || character.is_alphabetic() || is_digit(character)
}

/// A digit of any script. Only those of ASCII make a number; the others end in an error that says
/// so. (Counts fractions such as ½ too, where the reference reports an unrecognized character.)
fn is_digit(character: char) -> bool {
    character.is_numeric()
}
