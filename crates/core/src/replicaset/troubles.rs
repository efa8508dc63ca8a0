//! What is wrong in the clusters of a set: which one is named, and what it says.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

use super::facts::WorkKey;

/// Longest text that is kept of a work, in bytes: a cause with the name of its object fits, and a
/// set whose 10,000 clusters all fail keeps less than 3 MB of texts. The whole text is in the work.
pub const MAX_TROUBLE_BYTES: usize = 256;

/// What is wrong with a work, the worst first.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum TroubleKind {
    /// Its agent could not apply it.
    Failed,
    /// A condition rule says that it is degraded.
    Degraded,
    /// It is applied, and an object of it is not there.
    NotAvailable,
}

/// `failed`, `degraded`, `not available`
impl fmt::Display for TroubleKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Failed => "failed",
            Self::Degraded => "degraded",
            Self::NotAvailable => "not available",
        })
    }
}

/// Why a work is not as it should be.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Trouble {
    /// What is wrong.
    pub kind: TroubleKind,
    /// Reason of the condition that says so.
    pub reason: Box<str>,
    /// Its message in one line, at most [`MAX_TROUBLE_BYTES`] long.
    pub text: Box<str>,
}

impl Trouble {
    /// Keeps the part of a condition that is reported.
    pub fn new(kind: TroubleKind, reason: &str, message: &str) -> Self {
        Self {
            kind,
            reason: reason.into(),
            text: one_line(message).into(),
        }
    }
}

/// A text that can be a part of a message: in one line, without the `; ` that parts the message,
/// and not too long.
pub(super) fn one_line(text: &str) -> String {
    let mut line = String::new();
    for word in text.split_whitespace() {
        if !line.is_empty() {
            line.push(' ');
        }
        line.push_str(word);
        if line.len() > MAX_TROUBLE_BYTES {
            break;
        }
    }
    let mut line = line.replace("; ", ", ");
    if line.len() > MAX_TROUBLE_BYTES {
        let dots = '…';
        let mut end = MAX_TROUBLE_BYTES - dots.len_utf8();
        while !line.is_char_boundary(end) {
            end -= 1;
        }
        line.truncate(end);
        line.push(dots);
    }
    line
}

/// The works of a set with which something is wrong. Each counts in the numbers of the set.
#[derive(Debug, Clone, Default)]
pub(super) struct Troubles {
    works: BTreeMap<(TroubleKind, WorkKey), Arc<Trouble>>,
}

impl Troubles {
    pub(super) fn clear(&mut self) {
        self.works.clear();
    }

    /// Puts what is wrong with a work now in the place of what was.
    pub(super) fn replace(
        &mut self,
        key: &WorkKey,
        before: Option<&Arc<Trouble>>,
        now: Option<&Arc<Trouble>>,
    ) {
        if before == now {
            return;
        }
        if let Some(before) = before {
            self.works.remove(&(before.kind, key.clone()));
        }
        if let Some(now) = now {
            self.works.insert((now.kind, key.clone()), Arc::clone(now));
        }
    }

    /// The first cluster of a kind of trouble, and what is wrong there.
    pub(super) fn first(&self, kind: TroubleKind) -> Option<(&str, &Trouble)> {
        let none = WorkKey {
            cluster: String::new(),
            name: String::new(),
        };
        let (found, trouble) = self.works.range((kind, none)..).next()?;
        (found.0 == kind).then_some((&*found.1.cluster, &**trouble))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_text_is_one_line_of_bounded_length_that_does_not_look_like_two_parts() {
        assert_eq!(
            one_line("a\n  b; timed out in 5\tc"),
            "a b, timed out in 5 c"
        );
        for long in ["x".repeat(100_000), "ä; ".repeat(100_000), "a ".repeat(500)] {
            let line = one_line(&long);
            assert!(
                line.len() <= MAX_TROUBLE_BYTES && line.ends_with('…'),
                "{line}"
            );
            assert!(
                line.len() > MAX_TROUBLE_BYTES - 8 && !line.contains("; "),
                "{line}"
            );
        }
        let fits = "x".repeat(MAX_TROUBLE_BYTES);
        assert_eq!(one_line(&fits), fits);
    }

    #[test]
    fn the_first_cluster_of_each_kind_is_named() {
        let key = |cluster: &str| WorkKey {
            cluster: cluster.to_owned(),
            name: "w".to_owned(),
        };
        let trouble = |kind, text| Some(Arc::new(Trouble::new(kind, "R", text)));
        let mut troubles = Troubles::default();
        let failed = trouble(TroubleKind::Failed, "no such type");
        troubles.replace(&key("c2"), None, failed.as_ref());
        troubles.replace(&key("c1"), None, failed.as_ref());
        let degraded = trouble(TroubleKind::Degraded, "slow");
        troubles.replace(&key("c0"), None, degraded.as_ref());
        let first = |troubles: &Troubles, kind| {
            let (cluster, trouble) = troubles.first(kind)?;
            Some(format!("{cluster} {}", trouble.text))
        };
        let text = Some("c1 no such type".to_owned());
        assert_eq!(first(&troubles, TroubleKind::Failed), text);
        let text = Some("c0 slow".to_owned());
        assert_eq!(first(&troubles, TroubleKind::Degraded), text);
        assert_eq!(first(&troubles, TroubleKind::NotAvailable), None);
        troubles.replace(&key("c1"), failed.as_ref(), degraded.as_ref());
        troubles.replace(&key("c2"), failed.as_ref(), None);
        assert_eq!(first(&troubles, TroubleKind::Failed), None);
    }
}
