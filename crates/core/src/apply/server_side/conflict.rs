//! Whom a server-side apply is in conflict with.

/// Whether all conflicts of an apply by `manager` are with what the same manager wrote by updates.
/// `causes` are the reasons and messages in the details of the server's answer.
///
/// An object that was written by the strategy `Update` belongs to (manager, Update), which for
/// the server is another owner than (manager, Apply). A work that changes its strategy takes its
/// own fields over.
pub fn is_with_own_updates<'a>(
    manager: &str,
    causes: impl IntoIterator<Item = (&'a str, &'a str)>,
) -> bool {
    // The server names the version only of those that update: `conflict with "m" using v1 at …`.
    let own = format!("conflict with {manager:?} using ");
    let mut causes = causes.into_iter().peekable();
    causes.peek().is_some()
        && causes
            .all(|(reason, message)| reason == "FieldManagerConflict" && message.starts_with(&own))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_updates_of_the_same_manager_are_its_own() {
        let own = "conflict with \"work-agent\" using apps/v1 at 2026-01-01T00:00:00Z";
        for (messages, expected) in [
            (vec![own], true),
            (vec![own, "conflict with \"work-agent\" using v1"], true),
            (vec![own, "conflict with \"kubectl\" using v1"], false),
            (vec!["conflict with \"work-agent\""], false),
            (vec!["conflict with \"work-agent-2\" using v1"], false),
            (
                vec!["conflict with \"work-agent\" with subresource \"scale\" using v1"],
                false,
            ),
            (vec![], false),
        ] {
            let causes = messages
                .iter()
                .map(|message| ("FieldManagerConflict", *message));
            assert_eq!(
                is_with_own_updates("work-agent", causes),
                expected,
                "{messages:?}"
            );
        }
        assert!(!is_with_own_updates(
            "work-agent",
            [("FieldValueInvalid", own)]
        ));
    }
}
