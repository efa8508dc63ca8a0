//! Rules as they are worked with: checked, and in one form for all ways to write the same.

use std::collections::BTreeSet;
use std::fmt;
use std::sync::Arc;

use muster_api::rules::{ClusterWatchRule, WatchOperation, WatchRule, WatchRuleItem, WatchScope};
use thiserror::Error;

use super::selector::{Facet, ItemSelector, Operation, Operations, Reach, ResourcePattern};
use crate::labels;

/// Which of the two kinds a rule is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum RuleKind {
    /// ClusterWatchRule.
    ClusterWatchRule,
    /// WatchRule.
    WatchRule,
}

impl fmt::Display for RuleKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::ClusterWatchRule => "ClusterWatchRule",
            Self::WatchRule => "WatchRule",
        })
    }
}

/// Name of a rule of either kind. Cheap to clone.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct RuleName {
    /// Namespace of a WatchRule; `None` for a ClusterWatchRule.
    pub namespace: Option<Arc<str>>,
    /// Its name.
    pub name: Arc<str>,
}

impl RuleName {
    /// The kind that has such names.
    pub const fn kind(&self) -> RuleKind {
        match self.namespace {
            Some(_) => RuleKind::WatchRule,
            None => RuleKind::ClusterWatchRule,
        }
    }
}

/// For people: `ns/name` or `name`.
impl fmt::Display for RuleName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(namespace) = &self.namespace {
            write!(f, "{namespace}/")?;
        }
        f.write_str(&self.name)
    }
}

/// Most items of a rule, and most names in a list of one and requirements of its label selector. The
/// schema has the first two, too; objects that were stored under another one are bounded here.
pub(super) const MAX_ENTRIES: usize = 100;

/// A rule that cannot be worked with. API servers refuse most of these by the schema; objects that
/// were stored under another schema are not checked again.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[error("{} {rule}: {field}: {reason}", rule.kind())]
pub struct RuleError {
    /// The rule.
    pub rule: RuleName,
    /// Path of the field at fault.
    pub field: String,
    /// What is wrong with it.
    pub reason: String,
}

impl RuleError {
    /// Field and reason, for the rule's own status, where its name says nothing new.
    pub fn fault(&self) -> String {
        format!("{}: {}", self.field, self.reason)
    }
}

/// A rule, ready to be planned and matched.
#[derive(Debug, Clone)]
pub struct CompiledRule {
    /// Its name.
    pub name: RuleName,
    /// Its uid; empty if it has none yet.
    pub uid: Arc<str>,
    /// Generation of the spec that it was compiled from.
    pub generation: i64,
    /// Name of the sink.
    pub destination: Arc<str>,
    /// What it selects; an event goes to the sink if one of them takes it.
    pub items: Vec<ItemSelector>,
}

/// Rules are equal if they have one name and mean the same to what is watched and where it goes,
/// however they are written. Uid and generation are not asked: a rule that was written again, or
/// deleted and created again, with the same meaning is the same.
impl PartialEq for CompiledRule {
    fn eq(&self, other: &Self) -> bool {
        let Self {
            name,
            uid: _,
            generation: _,
            destination,
            items,
        } = self;
        *name == other.name && *destination == other.destination && *items == other.items
    }
}

impl Eq for CompiledRule {}

/// Checks a WatchRule and brings it into its form.
///
/// # Errors
///
/// The first field that is wrong.
pub fn compile_watch_rule(rule: &WatchRule) -> Result<CompiledRule, RuleError> {
    let namespace: Arc<str> = rule
        .metadata
        .namespace
        .as_deref()
        .unwrap_or_default()
        .into();
    let name = RuleName {
        namespace: Some(Arc::clone(&namespace)),
        name: rule.metadata.name.as_deref().unwrap_or_default().into(),
    };
    let compiler = Compiler(&name);
    if namespace.is_empty() {
        return Err(compiler.fault("metadata.namespace", "must not be empty"));
    }
    let spec = &rule.spec;
    let reach = Reach::Namespace(namespace);
    let items = spec.rules.iter().map(|item| Ok((reach.clone(), item)));
    compiler.rule(&rule.metadata, &spec.destination, items)
}

/// Checks a ClusterWatchRule and brings it into its form.
///
/// # Errors
///
/// The first field that is wrong.
pub fn compile_cluster_watch_rule(rule: &ClusterWatchRule) -> Result<CompiledRule, RuleError> {
    let name = RuleName {
        namespace: None,
        name: rule.metadata.name.as_deref().unwrap_or_default().into(),
    };
    let spec = &rule.spec;
    let items = spec.rules.iter().map(|scoped| match &scoped.scope {
        WatchScope::Cluster => Ok((Reach::Cluster, &scoped.item)),
        WatchScope::Namespaced => Ok((Reach::AllNamespaces, &scoped.item)),
        WatchScope::Unrecognized(other) => Err(format!(
            "unknown scope \"{other}\"; known are Cluster and Namespaced"
        )),
    });
    Compiler(&name).rule(&rule.metadata, &spec.destination, items)
}

struct Compiler<'a>(&'a RuleName);

impl Compiler<'_> {
    fn fault(&self, field: impl Into<String>, reason: impl Into<String>) -> RuleError {
        RuleError {
            rule: self.0.clone(),
            field: field.into(),
            reason: reason.into(),
        }
    }

    /// Compiles a rule from its items, each with its reach, or with what is wrong about its scope.
    fn rule<'i>(
        &self,
        metadata: &kube::core::ObjectMeta,
        destination: &str,
        items: impl Iterator<Item = Result<(Reach, &'i WatchRuleItem), String>>,
    ) -> Result<CompiledRule, RuleError> {
        if self.0.name.is_empty() {
            return Err(self.fault("metadata.name", "must not be empty"));
        }
        let destination = destination.trim();
        if destination.is_empty() {
            return Err(self.fault("spec.destination", "must not be empty"));
        }
        let mut compiled = Vec::new();
        for (index, item) in items.enumerate() {
            if index == MAX_ENTRIES {
                return Err(self.fault("spec.rules", too_many()));
            }
            let field = format!("spec.rules[{index}]");
            let (reach, item) =
                item.map_err(|reason| self.fault(format!("{field}.scope"), reason))?;
            compiled.push(self.item(&field, reach, item)?);
        }
        if compiled.is_empty() {
            return Err(self.fault("spec.rules", "must not be empty"));
        }
        // Items are alternatives: neither their order nor a repetition means anything.
        compiled.sort();
        compiled.dedup();
        Ok(CompiledRule {
            name: self.0.clone(),
            uid: metadata.uid.as_deref().unwrap_or_default().into(),
            generation: metadata.generation.unwrap_or_default(),
            destination: destination.into(),
            items: compiled,
        })
    }

    fn item(
        &self,
        field: &str,
        reach: Reach,
        item: &WatchRuleItem,
    ) -> Result<ItemSelector, RuleError> {
        let versions = self.names(&format!("{field}.apiVersions"), &item.api_versions)?;
        let resources_field = format!("{field}.resources");
        let resources = self.names(&resources_field, &item.resources)?;
        if resources.is_empty() {
            return Err(self.fault(resources_field, "must not be empty"));
        }
        if item.api_groups.len() > MAX_ENTRIES {
            return Err(self.fault(format!("{field}.apiGroups"), too_many()));
        }
        let selector_field = format!("{field}.labelSelector");
        let selector = item.label_selector.as_ref().map_or_else(
            || Ok(BTreeSet::new()),
            |selector| labels::compile(&selector_field, selector),
        );
        let selector = selector.map_err(|error| self.fault(error.field, error.reason))?;
        if selector.len() > MAX_ENTRIES {
            return Err(self.fault(selector_field, too_many()));
        }
        Ok(ItemSelector {
            reach,
            operations: self.operations(&format!("{field}.operations"), &item.operations)?,
            groups: Facet::of(item.api_groups.iter().map(|group| group.trim())),
            versions: Facet::of(versions.into_iter()),
            resources: resources.into_iter().map(ResourcePattern::parse).collect(),
            labels: selector,
        })
    }

    fn operations(
        &self,
        field: &str,
        operations: &[WatchOperation],
    ) -> Result<Operations, RuleError> {
        if operations.is_empty() {
            return Ok(Operations::ALL);
        }
        let mut all = Operations::NONE;
        for (index, operation) in operations.iter().enumerate() {
            match operation {
                WatchOperation::Create => all.insert(Operation::Create),
                WatchOperation::Update => all.insert(Operation::Update),
                WatchOperation::Delete => all.insert(Operation::Delete),
                WatchOperation::All => all = Operations::ALL,
                WatchOperation::Unrecognized(other) => {
                    let known = "known are CREATE, UPDATE, DELETE and *";
                    let reason = format!("unknown operation \"{other}\"; {known}");
                    return Err(self.fault(format!("{field}[{index}]"), reason));
                }
            }
        }
        Ok(all)
    }

    /// The names of a list, none of which may be empty.
    fn names<'n>(&self, field: &str, names: &'n [String]) -> Result<Vec<&'n str>, RuleError> {
        if names.len() > MAX_ENTRIES {
            return Err(self.fault(field, too_many()));
        }
        let name = |(index, name): (usize, &'n String)| match name.trim() {
            "" => Err(self.fault(format!("{field}[{index}]"), "must not be empty")),
            name => Ok(name),
        };
        names.iter().enumerate().map(name).collect()
    }
}

fn too_many() -> String {
    format!("must have at most {MAX_ENTRIES} entries")
}
