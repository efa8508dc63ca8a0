//! Which clusters a placement selects, for hubs without OCM's own scheduler.

use std::collections::{BTreeMap, BTreeSet};

use kube::core::{Selector, SelectorExt};
use muster_api::cluster::{ManagedClusterClaim, Taint, TaintEffect};
use muster_api::placement::{
    ClusterPredicate, PlacementDecisionStatus, PlacementSpec, Toleration, TolerationOperator,
};

use crate::labels::{self, SelectorError};

/// Label that says which cluster set a cluster belongs to.
pub const CLUSTER_SET_LABEL: &str = "cluster.open-cluster-management.io/clusterset";

/// Most comparisons of predicates, sets and tolerations with clusters in one selection: some tenths of a
/// second, and a hundred requirements for each of ten thousand clusters.
pub const MAX_COMPARISONS: usize = 1_000_000;

/// What the selection needs to know of a cluster.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct ClusterFacts {
    /// Labels of the ManagedCluster.
    pub labels: BTreeMap<String, String>,
    /// `status.clusterClaims`.
    pub claims: Vec<ManagedClusterClaim>,
    /// `spec.taints`.
    pub taints: Vec<Taint>,
    /// `spec.hubAcceptsClient`.
    pub accepted: bool,
    /// The ManagedCluster is being deleted.
    pub deleting: bool,
}

/// A placement that cannot be decided, with the field at fault.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum PlacementError {
    /// A selector is malformed.
    #[error(transparent)]
    Selector(#[from] SelectorError),
    /// More than [`MAX_COMPARISONS`].
    #[error(
        "spec: selecting among {clusters} clusters takes up to {comparisons} comparisons, more than \
         {MAX_COMPARISONS}"
    )]
    TooLarge {
        /// What it takes at most.
        comparisons: usize,
        /// How many clusters there are.
        clusters: usize,
    },
    /// A field that this hub does not evaluate. Ignoring it would select the wrong clusters.
    #[error("{field}: not evaluated by the embedded hub")]
    NotSupported {
        /// Path of the field.
        field: String,
    },
}

/// The clusters that `spec` selects, sorted by name.
///
/// A cluster qualifies when one of the predicates holds (all of them do when there are none), it is
/// accepted and its taints are tolerated. Of more candidates than `numberOfClusters`, those in
/// `previous` go first so that a selection is stable, then those without a `PreferNoSelect` taint,
/// then by name.
///
/// # Errors
///
/// A malformed selector, or a field whose meaning needs OCM's own scheduler.
pub fn select(
    spec: &PlacementSpec,
    clusters: &BTreeMap<String, ClusterFacts>,
    previous: &BTreeSet<String>,
) -> Result<Vec<String>, PlacementError> {
    let unsupported = |field: &str| PlacementError::NotSupported {
        field: field.to_owned(),
    };
    if spec.spread_policy.is_some() {
        return Err(unsupported("spec.spreadPolicy"));
    }
    if spec.decision_strategy.is_some() {
        return Err(unsupported("spec.decisionStrategy"));
    }
    let predicates = spec
        .predicates
        .iter()
        .enumerate()
        .map(|(index, predicate)| Predicate::compile(index, predicate))
        .collect::<Result<Vec<_>, _>>()?;
    let comparisons = comparisons(spec, clusters);
    if comparisons > MAX_COMPARISONS {
        return Err(PlacementError::TooLarge {
            comparisons,
            clusters: clusters.len(),
        });
    }

    let mut chosen: Vec<(bool, bool, &String)> = clusters
        .iter()
        .filter(|(_, cluster)| cluster.accepted && !cluster.deleting)
        .filter(|(_, cluster)| {
            spec.cluster_sets.is_empty()
                || cluster
                    .labels
                    .get(CLUSTER_SET_LABEL)
                    .is_some_and(|set| spec.cluster_sets.contains(set))
        })
        .filter(|(_, cluster)| predicates.is_empty() || predicates.iter().any(|p| p.holds(cluster)))
        .filter_map(|(name, cluster)| {
            let selected = previous.contains(name);
            let mut disliked = false;
            for taint in &cluster.taints {
                if spec
                    .tolerations
                    .iter()
                    .any(|toleration| tolerates(toleration, taint))
                {
                    continue;
                }
                match taint.effect {
                    TaintEffect::NoSelectIfNew if selected => {}
                    TaintEffect::PreferNoSelect => disliked = true,
                    _ => return None,
                }
            }
            Some((!selected, disliked, name))
        })
        .collect();
    chosen.sort();
    let limit = spec
        .number_of_clusters
        .map_or(usize::MAX, |n| usize::try_from(n).unwrap_or(0));
    let mut names: Vec<String> = chosen
        .into_iter()
        .take(limit)
        .map(|(.., name)| name.clone())
        .collect();
    names.sort();
    Ok(names)
}

/// Cuts a selection into the lists of PlacementDecisions, of at most 100 clusters each; an empty
/// selection has one empty list, as OCM's scheduler writes it.
pub fn decision_chunks(selected: &[String]) -> Vec<&[String]> {
    if selected.is_empty() {
        return vec![selected];
    }
    selected
        .chunks(PlacementDecisionStatus::MAX_DECISIONS)
        .collect()
}

/// How often something of a spec is compared with something of a cluster, at most.
fn comparisons(spec: &PlacementSpec, clusters: &BTreeMap<String, ClusterFacts>) -> usize {
    let requirements = |predicate: &ClusterPredicate| {
        let selector = predicate.required_cluster_selector.as_ref();
        let labels = selector.and_then(|selector| selector.label_selector.as_ref());
        let labels = labels.map_or(0, |labels| {
            labels.match_labels.as_ref().map_or(0, BTreeMap::len)
                + labels.match_expressions.as_ref().map_or(0, Vec::len)
        });
        let claims = selector.and_then(|selector| selector.claim_selector.as_ref());
        1 + labels + claims.map_or(0, |claims| claims.match_expressions.len())
    };
    let requirements: usize = spec.predicates.iter().map(requirements).sum();
    let of_each = spec.cluster_sets.len() + requirements;
    let tolerations = spec.tolerations.len();
    // The claims of a cluster are gone through for each predicate.
    let with_claims = spec.predicates.len();
    clusters
        .values()
        .map(|cluster| {
            let taints = tolerations.saturating_mul(cluster.taints.len());
            let claims = with_claims.saturating_mul(cluster.claims.len());
            of_each + taints + claims
        })
        .fold(0, usize::saturating_add)
}

fn tolerates(toleration: &Toleration, taint: &Taint) -> bool {
    let key_fits = toleration.key.is_empty() || toleration.key == taint.key;
    let effect_fits = toleration
        .effect
        .as_ref()
        .is_none_or(|effect| *effect == taint.effect);
    let value_fits = match toleration.operator {
        TolerationOperator::Exists => true,
        _ => toleration.value == taint.value,
    };
    key_fits && effect_fits && value_fits
}

/// The parts of a predicate, all of which must hold.
struct Predicate {
    labels: Selector,
    claims: Selector,
}

impl Predicate {
    fn compile(index: usize, predicate: &ClusterPredicate) -> Result<Self, PlacementError> {
        let base = format!("spec.predicates[{index}].requiredClusterSelector");
        let mut compiled = Self {
            labels: Selector::default(),
            claims: Selector::default(),
        };
        let Some(selector) = &predicate.required_cluster_selector else {
            return Ok(compiled);
        };
        if selector
            .cel_selector
            .as_ref()
            .is_some_and(|cel| !cel.cel_expressions.is_empty())
        {
            return Err(PlacementError::NotSupported {
                field: format!("{base}.celSelector"),
            });
        }
        if let Some(labels) = &selector.label_selector {
            let field = format!("{base}.labelSelector");
            compiled.labels = labels::compile(&field, labels)?.into_iter().collect();
        }
        if let Some(claims) = &selector.claim_selector {
            let field = format!("{base}.claimSelector.matchExpressions");
            let claims = labels::compile_expressions(&field, &claims.match_expressions)?;
            compiled.claims = claims.into_iter().collect();
        }
        Ok(compiled)
    }

    fn holds(&self, cluster: &ClusterFacts) -> bool {
        if !self.labels.matches(&cluster.labels) {
            return false;
        }
        if self.claims.selects_all() {
            return true;
        }
        let claims = cluster
            .claims
            .iter()
            .map(|c| (c.name.clone(), c.value.clone()))
            .collect();
        self.claims.matches(&claims)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, json};

    fn clusters() -> BTreeMap<String, ClusterFacts> {
        let cluster = |env: &str, region: &str| ClusterFacts {
            labels: [("env".to_owned(), env.to_owned())].into(),
            claims: vec![ManagedClusterClaim {
                name: "region".into(),
                value: region.into(),
            }],
            accepted: true,
            ..ClusterFacts::default()
        };
        [
            ("c1", "prod", "eu"),
            ("c2", "prod", "us"),
            ("c3", "dev", "eu"),
        ]
        .map(|(name, env, region)| (name.to_owned(), cluster(env, region)))
        .into()
    }

    fn parse(spec: Value) -> PlacementSpec {
        serde_json::from_value(spec).unwrap()
    }

    #[test]
    fn a_spec_may_take_so_many_comparisons_and_no_more() {
        let clusters = clusters();
        let sets = |count: usize| {
            let mut sets = vec![String::new(); count];
            sets.extend(["s".to_owned()]);
            let spec = PlacementSpec {
                cluster_sets: sets,
                ..PlacementSpec::default()
            };
            select(&spec, &clusters, &BTreeSet::new())
        };
        assert_eq!(sets(MAX_COMPARISONS / 3 - 1), Ok(vec![]));
        assert_eq!(
            sets(MAX_COMPARISONS / 3).unwrap_err().to_string(),
            "spec: selecting among 3 clusters takes up to 1000002 comparisons, more than 1000000"
        );
    }

    fn select_from(
        clusters: &BTreeMap<String, ClusterFacts>,
        spec: Value,
        previous: &[&str],
    ) -> Result<Vec<String>, String> {
        let spec = parse(spec);
        let previous = previous.iter().map(|name| (*name).to_owned()).collect();
        select(&spec, clusters, &previous).map_err(|error| error.to_string())
    }

    fn by(selector: &Value) -> Value {
        json!({ "predicates": [{ "requiredClusterSelector": selector }] })
    }

    #[test]
    fn labels_and_claims_select() {
        let all = clusters();
        let chosen = |spec| select_from(&all, spec, &[]).unwrap();
        assert_eq!(chosen(json!({})), ["c1", "c2", "c3"]);
        assert_eq!(
            chosen(by(
                &json!({"labelSelector": {"matchLabels": {"env": "prod"}}})
            )),
            ["c1", "c2"]
        );
        let expression = |operator: &str, values: Value| {
            by(&json!({"labelSelector": {"matchExpressions": [
                {"key": "env", "operator": operator, "values": values}]}}))
        };
        assert_eq!(chosen(expression("NotIn", json!(["prod"]))), ["c3"]);
        assert_eq!(chosen(expression("Exists", json!([]))), ["c1", "c2", "c3"]);
        assert!(chosen(expression("DoesNotExist", json!([]))).is_empty());
        let eu =
            json!({"matchExpressions": [{"key": "region", "operator": "In", "values": ["eu"]}]});
        assert_eq!(chosen(by(&json!({"claimSelector": eu}))), ["c1", "c3"]);
        let both = json!({"labelSelector": {"matchLabels": {"env": "prod"}}, "claimSelector": eu});
        assert_eq!(chosen(by(&both)), ["c1"]);
    }

    #[test]
    fn predicates_are_alternatives() {
        let spec = json!({"predicates": [
            {"requiredClusterSelector": {"labelSelector": {"matchLabels": {"env": "dev"}}}},
            {"requiredClusterSelector": {"claimSelector": {"matchExpressions": [
                {"key": "region", "operator": "In", "values": ["us"]}]}}}]});
        assert_eq!(select_from(&clusters(), spec, &[]).unwrap(), ["c2", "c3"]);
    }

    #[test]
    fn a_bounded_selection_is_stable() {
        let all = clusters();
        let two = json!({"numberOfClusters": 2});
        assert_eq!(select_from(&all, two.clone(), &[]).unwrap(), ["c1", "c2"]);
        assert_eq!(
            select_from(&all, two.clone(), &["c3"]).unwrap(),
            ["c1", "c3"]
        );
        assert_eq!(
            select_from(&all, two, &["gone", "c3", "c2"]).unwrap(),
            ["c2", "c3"]
        );
    }

    #[test]
    fn taints_and_sets_and_acceptance_exclude() {
        let mut all = clusters();
        let taint = |effect: &str| -> Vec<Taint> {
            vec![serde_json::from_value(json!({"key": "maintenance", "effect": effect})).unwrap()]
        };
        all.get_mut("c1").unwrap().taints = taint("NoSelect");
        all.get_mut("c2").unwrap().taints = taint("NoSelectIfNew");
        assert_eq!(select_from(&all, json!({}), &[]).unwrap(), ["c3"]);
        assert_eq!(
            select_from(&all, json!({}), &["c1", "c2"]).unwrap(),
            ["c2", "c3"]
        );
        let tolerant = json!({"tolerations": [{"key": "maintenance", "operator": "Exists"}]});
        assert_eq!(
            select_from(&all, tolerant, &[]).unwrap(),
            ["c1", "c2", "c3"]
        );

        let mut all = clusters();
        all.get_mut("c1").unwrap().taints = taint("PreferNoSelect");
        assert_eq!(
            select_from(&all, json!({"numberOfClusters": 2}), &[]).unwrap(),
            ["c2", "c3"]
        );
        all.get_mut("c2").unwrap().accepted = false;
        all.get_mut("c3").unwrap().deleting = true;
        assert_eq!(select_from(&all, json!({}), &[]).unwrap(), ["c1"]);
        all.get_mut("c1")
            .unwrap()
            .labels
            .insert(CLUSTER_SET_LABEL.into(), "blue".into());
        assert_eq!(
            select_from(&all, json!({"clusterSets": ["blue"]}), &[]).unwrap(),
            ["c1"]
        );
        assert!(
            select_from(&all, json!({"clusterSets": ["red"]}), &[])
                .unwrap()
                .is_empty()
        );
    }

    #[test]
    fn faults_name_the_field() {
        let fault = |spec| select_from(&clusters(), spec, &[]).unwrap_err();
        let bad = |operator: &str| {
            by(
                &json!({"labelSelector": {"matchExpressions": [{"key": "env", "operator": operator}]}}),
            )
        };
        let field = "spec.predicates[0].requiredClusterSelector";
        assert_eq!(
            fault(bad("Like")),
            format!("{field}.labelSelector.matchExpressions[0]: unknown operator \"Like\"")
        );
        assert_eq!(
            fault(bad("In")),
            format!("{field}.labelSelector.matchExpressions[0]: operator In needs values")
        );
        assert_eq!(
            fault(by(&json!({"celSelector": {"celExpressions": ["true"]}}))),
            format!("{field}.celSelector: not evaluated by the embedded hub")
        );
    }

    #[test]
    fn decisions_hold_at_most_a_hundred_clusters() {
        let names: Vec<String> = (0..250).map(|n| format!("c{n:03}")).collect();
        let lengths: Vec<usize> = decision_chunks(&names)
            .iter()
            .map(|chunk| chunk.len())
            .collect();
        assert_eq!(lengths, [100, 100, 50]);
        assert_eq!(decision_chunks(&[]).len(), 1);
    }
}
