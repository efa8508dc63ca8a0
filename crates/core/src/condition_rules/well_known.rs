//! Rules for types that the agent knows.

use muster_api::constants::WORK_COMPLETE;

use crate::manifest::Gvk;

/// A rule as a user could write it.
#[derive(Debug)]
pub(super) struct WellKnown {
    group: &'static str,
    version: &'static str,
    kind: &'static str,
    condition: &'static str,
    pub(super) expression: &'static str,
    pub(super) message: &'static str,
}

/// The rule for a condition of a type, in exactly that version.
pub(super) fn rule_of(gvk: Gvk<'_>, condition: &str) -> Option<&'static WellKnown> {
    RULES.iter().find(|rule| {
        (rule.group, rule.version, rule.kind, rule.condition)
            == (gvk.group, gvk.version, gvk.kind, condition)
    })
}

const RULES: [WellKnown; 2] = [
    // Differs from upstream: a Job that has no status yet is not finished, rather than an error.
    WellKnown {
        group: "batch",
        version: "v1",
        kind: "Job",
        condition: WORK_COMPLETE,
        expression: "has(object.status) && hasConditions(object.status) \
            && object.status.conditions\
            .filter(c, c.type == 'Complete' || c.type == 'Failed')\
            .exists(c, c.status == 'True')",
        message: "result ? 'Job is finished' : 'Job is not finished'",
    },
    WellKnown {
        group: "",
        version: "v1",
        kind: "Pod",
        condition: WORK_COMPLETE,
        expression: "object.status.phase in ['Succeeded', 'Failed']",
        message: "'Pod is in phase ' + object.status.phase",
    },
];
