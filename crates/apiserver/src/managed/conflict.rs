//! Fields that an apply would take from others.

use serde_json::{Value, json};

use super::element::{Element, path_text};
use super::entries::Manager;
use super::set::FieldSet;

/// One field that somebody else owns with another value.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Conflict {
    pub(super) manager: Manager,
    pub(super) path: Vec<Element>,
}

/// All conflicts with the managers' own fields, in their order.
pub(super) fn of<'a>(sets: impl Iterator<Item = (&'a Manager, &'a FieldSet)>) -> Vec<Conflict> {
    sets.flat_map(|(manager, fields)| {
        fields.paths().into_iter().map(|path| Conflict {
            manager: manager.clone(),
            path,
        })
    })
    .collect()
}

/// What the answer says about the conflicts.
pub(super) fn message(conflicts: &[Conflict]) -> String {
    if let [only] = conflicts {
        return format!(
            "Apply failed with 1 conflict: conflict with {}: {}",
            only.manager.describe(),
            path_text(&only.path)
        );
    }
    let mut lines = Vec::new();
    let mut last = None;
    for conflict in conflicts {
        if last != Some(&conflict.manager) {
            lines.push(format!("conflicts with {}:", conflict.manager.describe()));
            last = Some(&conflict.manager);
        }
        lines.push(format!("- {}", path_text(&conflict.path)));
    }
    format!(
        "Apply failed with {} conflicts: {}",
        conflicts.len(),
        lines.join("\n")
    )
}

/// The conflicts as the causes of the answer.
pub(super) fn causes(conflicts: &[Conflict]) -> Vec<Value> {
    conflicts
        .iter()
        .map(|conflict| {
            json!({
                "reason": "FieldManagerConflict",
                "message": format!("conflict with {}", conflict.manager.describe()),
                "field": path_text(&conflict.path),
            })
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::super::entries::Operation;
    use super::*;

    fn manager(name: &str, operation: Operation, subresource: &str) -> Manager {
        Manager::new(name, operation, "apps/v1", subresource)
    }

    #[test]
    fn messages_group_fields_by_manager() {
        let replicas = FieldSet::of_fields(&[&["spec", "replicas"]]);
        let two = FieldSet::of_fields(&[&["spec", "replicas"], &["status", "phase"]]);
        let kubectl = manager("kubectl", Operation::Update, "");
        let status = manager("agent", Operation::Update, "status");
        let applier = manager("m", Operation::Apply, "");
        let cases = [
            (
                vec![(&kubectl, &replicas)],
                "Apply failed with 1 conflict: conflict with \"kubectl\" using apps/v1: .spec.replicas",
            ),
            (
                vec![(&applier, &replicas)],
                "Apply failed with 1 conflict: conflict with \"m\": .spec.replicas",
            ),
            (
                vec![(&status, &two), (&applier, &replicas)],
                "Apply failed with 3 conflicts: conflicts with \"agent\" with subresource \"status\" using apps/v1:\n- .spec.replicas\n- .status.phase\nconflicts with \"m\":\n- .spec.replicas",
            ),
        ];
        for (sets, want) in cases {
            let conflicts = of(sets.into_iter());
            assert_eq!(message(&conflicts), want);
        }
        assert_eq!(
            causes(&of([(&status, &replicas)].into_iter())),
            [json!({
                "reason": "FieldManagerConflict",
                "message": "conflict with \"agent\" with subresource \"status\" using apps/v1",
                "field": ".spec.replicas",
            })]
        );
    }
}
