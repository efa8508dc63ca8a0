//! Label selectors as Kubernetes reads them.

use std::collections::BTreeSet;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::{LabelSelector, LabelSelectorRequirement};
use kube::core::Expression;
use thiserror::Error;

/// A selector that Kubernetes would refuse, too.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[error("{field}: {reason}")]
pub struct SelectorError {
    /// Path of the requirement.
    pub field: String,
    /// What is wrong with it.
    pub reason: String,
}

/// The requirements of a label selector at this field, all of which have to hold. Selectors that
/// are written differently and hold the same requirements have equal ones.
pub(crate) fn compile(
    field: &str,
    labels: &LabelSelector,
) -> Result<BTreeSet<Expression>, SelectorError> {
    let expressions = labels.match_expressions.as_deref().unwrap_or_default();
    let mut all = compile_expressions(&format!("{field}.matchExpressions"), expressions)?;
    for (key, value) in labels.match_labels.iter().flatten() {
        all.insert(Expression::In(key.clone(), [value.clone()].into()));
    }
    Ok(all)
}

/// The requirements of a list of them at this field.
pub(crate) fn compile_expressions(
    field: &str,
    requirements: &[LabelSelectorRequirement],
) -> Result<BTreeSet<Expression>, SelectorError> {
    let compile = |(index, requirement): (usize, &LabelSelectorRequirement)| {
        let fault = |reason: String| SelectorError {
            field: format!("{field}[{index}]"),
            reason,
        };
        let LabelSelectorRequirement {
            key,
            operator,
            values,
        } = requirement.clone();
        let values: BTreeSet<String> = values.into_iter().flatten().collect();
        match operator.as_str() {
            "In" | "NotIn" if values.is_empty() => {
                Err(fault(format!("operator {operator} needs values")))
            }
            "Exists" | "DoesNotExist" if !values.is_empty() => {
                Err(fault(format!("operator {operator} takes no values")))
            }
            "In" => Ok(Expression::In(key, values)),
            "NotIn" => Ok(Expression::NotIn(key, values)),
            "Exists" => Ok(Expression::Exists(key)),
            "DoesNotExist" => Ok(Expression::DoesNotExist(key)),
            other => Err(fault(format!("unknown operator \"{other}\""))),
        }
    };
    requirements.iter().enumerate().map(compile).collect()
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn compiled(selector: Value) -> Result<BTreeSet<Expression>, String> {
        let selector = serde_json::from_value(selector).map_err(|error| error.to_string())?;
        compile("s", &selector).map_err(|error| error.to_string())
    }

    #[test]
    fn selectors_that_mean_the_same_are_equal() {
        let labels = json!({"matchLabels": {"a": "1", "b": "2"}});
        let expressions = json!({"matchExpressions": [
            {"key": "b", "operator": "In", "values": ["2", "2"]},
            {"key": "a", "operator": "In", "values": ["1"]},
            {"key": "a", "operator": "In", "values": ["1"]},
        ]});
        assert_eq!(compiled(labels.clone()), compiled(expressions));
        assert_ne!(
            compiled(labels),
            compiled(json!({"matchLabels": {"a": "1"}}))
        );
        assert_eq!(compiled(json!({})), Ok(BTreeSet::new()));
    }

    #[test]
    fn faults_name_the_requirement() {
        let fault = |operator: &str, values: Value| {
            let first = json!({"key": "a", "operator": "Exists"});
            let second = json!({"key": "a", "operator": operator, "values": values});
            compiled(json!({"matchExpressions": [first, second]})).unwrap_err()
        };
        let field = "s.matchExpressions[1]";
        for operator in ["In", "NotIn"] {
            for none in [json!([]), json!(null)] {
                let expected = format!("{field}: operator {operator} needs values");
                assert_eq!(fault(operator, none), expected);
            }
        }
        for operator in ["Exists", "DoesNotExist"] {
            let expected = format!("{field}: operator {operator} takes no values");
            assert_eq!(fault(operator, json!(["x"])), expected);
        }
        let unknown = fault("in", json!(["x"]));
        assert_eq!(unknown, format!("{field}: unknown operator \"in\""));
    }
}
