//! Names as people give them on the command line.

/// Refuses what would leave its place in a URL or in a list.
fn part(text: &str, what: &str) -> Result<String, String> {
    let allowed = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || "-.".contains(c);
    if text.is_empty() || !text.chars().all(allowed) {
        return Err(format!("\"{text}\" is not a {what} name"));
    }
    Ok(text.to_owned())
}

/// A name behind one of these kinds, as in `mwrs/web`, which is how kubectl takes it.
fn of_kind<'a>(text: &'a str, kinds: &[&str]) -> Option<&'a str> {
    let (kind, name) = text.split_once('/')?;
    kinds.contains(&kind).then_some(name)
}

pub(super) fn namespace(text: &str) -> Result<String, String> {
    part(text, "namespace")
}

pub(super) fn cluster_name(text: &str) -> Result<String, String> {
    part(text, "cluster")
}

pub(super) fn set_name(text: &str) -> Result<String, String> {
    let name = of_kind(text, &["mwrs", "manifestworkreplicaset"]).unwrap_or(text);
    part(name, "ManifestWorkReplicaSet")
}

pub(super) fn work_name(text: &str) -> Result<String, String> {
    let name = of_kind(text, &["work", "manifestwork"]).unwrap_or(text);
    part(name, "ManifestWork")
}

pub(super) fn revision_number(text: &str) -> Result<i64, String> {
    let number = text.parse().ok().filter(|number| *number > 0);
    number.ok_or_else(|| format!("\"{text}\" is not a revision number (1 or higher)"))
}

/// A rule, of a kind if that was said.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct RuleArg {
    /// `Some(true)`: a ClusterWatchRule.
    pub(super) cluster_wide: Option<bool>,
    pub(super) name: String,
}

pub(super) fn rule_name(text: &str) -> Result<RuleArg, String> {
    let (cluster_wide, name) = if let Some(name) = of_kind(text, &["clusterwatchrule", "cwr"]) {
        (Some(true), name)
    } else if let Some(name) = of_kind(text, &["watchrule", "wr"]) {
        (Some(false), name)
    } else {
        (None, text)
    };
    Ok(RuleArg {
        cluster_wide,
        name: part(name, "WatchRule or ClusterWatchRule")?,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_taken_as_kubectl_does_and_others_are_refused() {
        assert_eq!(set_name("web"), Ok("web".to_owned()));
        assert_eq!(set_name("mwrs/web.x"), Ok("web.x".to_owned()));
        assert_eq!(work_name("work/web"), Ok("web".to_owned()));
        assert_eq!(work_name("manifestwork/web"), Ok("web".to_owned()));
        for odd in ["", "mwrs/", "../x", "a/b", "A", "a,b"] {
            assert!(set_name(odd).is_err(), "{odd}");
            assert!(work_name(odd).is_err(), "{odd}");
            assert!(cluster_name(odd).is_err(), "{odd}");
            assert!(rule_name(odd).is_err(), "{odd}");
        }
        assert_eq!(revision_number("3"), Ok(3));
        for odd in ["0", "-1", "x", ""] {
            let error = revision_number(odd).unwrap_err();
            assert!(error.contains("is not a revision number"), "{error}");
        }
    }

    #[test]
    fn a_rule_may_say_its_kind() {
        for (text, cluster_wide) in [
            ("config", None),
            ("watchrule/config", Some(false)),
            ("wr/config", Some(false)),
            ("clusterwatchrule/config", Some(true)),
            ("cwr/config", Some(true)),
        ] {
            let name = "config".to_owned();
            assert_eq!(
                rule_name(text),
                Ok(RuleArg { cluster_wide, name }),
                "{text}"
            );
        }
    }
}
