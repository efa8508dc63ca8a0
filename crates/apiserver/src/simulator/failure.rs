//! Which workloads fail, and how.

/// What goes wrong with a workload.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Failure {
    /// No replica ever becomes ready.
    NeverReady,
    /// This many replicas become ready, every further one crashes.
    CrashAfter(u32),
}

impl Failure {
    /// Replicas that can be ready at most.
    pub(super) fn ready_at_most(self) -> i32 {
        match self {
            Self::NeverReady => 0,
            Self::CrashAfter(replicas) => i32::try_from(replicas).unwrap_or(i32::MAX),
        }
    }
}

/// A failure for the workloads whose name fits a pattern.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FailureRule {
    /// Name of the workload; `*` stands for any text.
    pub name: String,
    /// What happens.
    pub failure: Failure,
}

impl FailureRule {
    fn fits(&self, name: &str) -> bool {
        let mut parts = self.name.split('*');
        let Some(rest) = parts.next().and_then(|first| name.strip_prefix(first)) else {
            return false;
        };
        let mut parts: Vec<&str> = parts.collect();
        let Some(last) = parts.pop() else {
            return rest.is_empty();
        };
        let mut rest = rest;
        for part in parts {
            match rest.find(part) {
                Some(at) => rest = &rest[at + part.len()..],
                None => return false,
            }
        }
        rest.ends_with(last)
    }
}

/// The failure of a workload, if any.
pub(super) fn of(rules: &[FailureRule], name: &str) -> Option<Failure> {
    rules
        .iter()
        .find(|rule| rule.fits(name))
        .map(|rule| rule.failure)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn patterns_fit_names() {
        let cases = [
            ("web", "web", true),
            ("web", "web2", false),
            ("web*", "web2", true),
            ("*web", "my-web", true),
            ("*web", "web2", false),
            ("a*b*c", "a-b-c", true),
            ("a*b*c", "a-c", false),
            ("*", "anything", true),
            ("a*a", "a", false),
        ];
        for (pattern, name, want) in cases {
            let rule = FailureRule {
                name: pattern.to_owned(),
                failure: Failure::NeverReady,
            };
            assert_eq!(rule.fits(name), want, "{pattern} {name}");
        }
    }

    #[test]
    fn the_first_rule_that_fits_counts() {
        let rules = [
            FailureRule {
                name: "a*".to_owned(),
                failure: Failure::CrashAfter(1),
            },
            FailureRule {
                name: "*".to_owned(),
                failure: Failure::NeverReady,
            },
        ];
        assert_eq!(of(&rules, "ab"), Some(Failure::CrashAfter(1)));
        assert_eq!(of(&rules, "b"), Some(Failure::NeverReady));
        assert_eq!(of(&[], "b"), None);
    }
}
