//! The types that the server serves at a moment: built-in ones and those of CRDs.

use std::collections::HashMap;
use std::sync::{Arc, LazyLock, OnceLock, PoisonError, RwLock};

use crate::builtin::{BUILTINS, Builtin};
use crate::schema::Schema;
use crate::table::Column;
use crate::validation::NameRule;

/// The `scale` subresource's paths, without the leading dot.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Scale {
    pub(crate) spec_replicas: String,
    pub(crate) status_replicas: String,
    pub(crate) label_selector: Option<String>,
}

/// Where a version's schema comes from.
#[derive(Debug)]
pub(crate) enum SchemaSource {
    /// There is none: anything goes.
    Anything,
    /// A CRD.
    Custom(Schema),
    /// A built-in type; compiled when it is first needed.
    Builtin(&'static Builtin, OnceLock<Option<Schema>>),
}

impl SchemaSource {
    /// The schema that objects are brought into shape by. CRDs have rules of their own.
    pub(crate) fn get(&self) -> Option<&Schema> {
        match self {
            Self::Builtin(builtin, _) if is_crd(builtin) => None,
            _ => self.merging(),
        }
    }

    /// The schema that says how objects merge.
    pub(crate) fn merging(&self) -> Option<&Schema> {
        match self {
            Self::Anything => None,
            Self::Custom(schema) => Some(schema),
            Self::Builtin(builtin, cell) => cell
                .get_or_init(|| crate::builtin_schema::compiled(builtin))
                .as_ref(),
        }
    }
}

fn is_crd(builtin: &Builtin) -> bool {
    builtin.kind == "CustomResourceDefinition"
}

/// The built-in types, shared by all servers of a process.
static BUILTIN_DEFS: LazyLock<Vec<Arc<ResourceDef>>> = LazyLock::new(|| {
    BUILTINS
        .iter()
        .map(|b| Arc::new(ResourceDef::from_builtin(b)))
        .collect()
});

/// One version of a type.
#[derive(Debug)]
pub(crate) struct VersionDef {
    pub(crate) name: String,
    pub(crate) served: bool,
    pub(crate) status: bool,
    pub(crate) scale: Option<Scale>,
    pub(crate) schema: SchemaSource,
    /// Printer columns beside the name; built-in types have theirs in code.
    pub(crate) columns: Vec<Column>,
    pub(crate) deprecation_warning: Option<String>,
}

/// A type of objects.
#[derive(Debug)]
pub(crate) struct ResourceDef {
    /// `deployments.apps`, `pods`.
    pub(crate) key: Arc<str>,
    pub(crate) group: String,
    pub(crate) plural: String,
    pub(crate) singular: String,
    pub(crate) kind: String,
    pub(crate) list_kind: String,
    pub(crate) short_names: Vec<String>,
    pub(crate) categories: Vec<String>,
    pub(crate) namespaced: bool,
    pub(crate) versions: Vec<VersionDef>,
    pub(crate) storage_version: String,
    pub(crate) selectable: Vec<Arc<str>>,
    pub(crate) name_rule: NameRule,
    /// Absent for custom types.
    pub(crate) builtin: Option<&'static Builtin>,
    /// The CRD is being deleted: objects can go but not come.
    pub(crate) terminating: bool,
}

/// `apps/v1`, or `v1` for the core group.
pub(crate) fn api_version(group: &str, version: &str) -> String {
    if group.is_empty() {
        version.to_owned()
    } else {
        format!("{group}/{version}")
    }
}

/// `deployments.apps`, or `pods` for the core group.
pub(crate) fn resource_key(group: &str, plural: &str) -> Arc<str> {
    if group.is_empty() {
        Arc::from(plural)
    } else {
        Arc::from(format!("{plural}.{group}"))
    }
}

impl ResourceDef {
    fn from_builtin(builtin: &'static Builtin) -> Self {
        let scale = builtin.scale.then(|| Scale {
            spec_replicas: "spec.replicas".to_owned(),
            status_replicas: "status.replicas".to_owned(),
            label_selector: None,
        });
        let owned = |list: &[&str]| list.iter().map(|s| (*s).to_owned()).collect();
        Self {
            key: resource_key(builtin.group, builtin.plural),
            group: builtin.group.to_owned(),
            plural: builtin.plural.to_owned(),
            singular: builtin.singular.to_owned(),
            kind: builtin.kind.to_owned(),
            list_kind: format!("{}List", builtin.kind),
            short_names: owned(builtin.short_names),
            categories: owned(builtin.categories),
            namespaced: builtin.namespaced,
            versions: vec![VersionDef {
                name: builtin.version.to_owned(),
                served: true,
                status: builtin.status,
                scale,
                schema: SchemaSource::Builtin(builtin, OnceLock::new()),
                columns: Vec::new(),
                deprecation_warning: None,
            }],
            storage_version: builtin.version.to_owned(),
            selectable: builtin.fields.iter().map(|f| Arc::from(*f)).collect(),
            name_rule: builtin.name_rule,
            builtin: Some(builtin),
            terminating: false,
        }
    }

    pub(crate) fn version(&self, name: &str) -> Option<&VersionDef> {
        self.versions.iter().find(|v| v.name == name && v.served)
    }

    /// The group and version under which objects are stored.
    pub(crate) fn storage_api_version(&self) -> String {
        api_version(&self.group, &self.storage_version)
    }

    /// Custom types count generations always, built-in ones where Kubernetes does.
    pub(crate) fn counts_generation(&self) -> bool {
        self.builtin.is_none_or(|b| b.generation)
    }
}

/// The types at one moment.
#[derive(Debug, Default)]
pub(crate) struct Types {
    /// In discovery's order.
    pub(crate) all: Vec<Arc<ResourceDef>>,
    by_path: HashMap<(String, String), Arc<ResourceDef>>,
    by_key: HashMap<Arc<str>, Arc<ResourceDef>>,
}

impl Types {
    fn new(all: Vec<Arc<ResourceDef>>) -> Self {
        let by_path = all
            .iter()
            .map(|d| ((d.group.clone(), d.plural.clone()), d.clone()))
            .collect();
        let by_key = all.iter().map(|d| (d.key.clone(), d.clone())).collect();
        Self {
            all,
            by_path,
            by_key,
        }
    }

    pub(crate) fn find(&self, group: &str, plural: &str) -> Option<&Arc<ResourceDef>> {
        self.by_path.get(&(group.to_owned(), plural.to_owned()))
    }

    pub(crate) fn by_key(&self, key: &str) -> Option<&Arc<ResourceDef>> {
        self.by_key.get(key)
    }

    /// Groups other than core with their served versions, in order of first appearance.
    pub(crate) fn groups(&self) -> Vec<(String, Vec<String>)> {
        let mut groups: Vec<(String, Vec<String>)> = Vec::new();
        for def in self.all.iter().filter(|d| !d.group.is_empty()) {
            let at = groups
                .iter()
                .position(|(g, _)| *g == def.group)
                .unwrap_or_else(|| {
                    groups.push((def.group.clone(), Vec::new()));
                    groups.len() - 1
                });
            for version in def.versions.iter().filter(|v| v.served) {
                if !groups[at].1.contains(&version.name) {
                    groups[at].1.push(version.name.clone());
                }
            }
        }
        for (_, versions) in &mut groups {
            versions.sort_by(|a, b| compare_versions(b, a));
        }
        groups.retain(|(_, versions)| !versions.is_empty());
        groups
    }
}

/// Kubernetes' version priority: v2 > v1 > v1beta2 > v1beta1 > v1alpha1 > others by name.
pub(crate) fn compare_versions(a: &str, b: &str) -> std::cmp::Ordering {
    fn rank(version: &str) -> Option<(u8, u64, u64)> {
        let digits = version.strip_prefix('v')?;
        let end = digits
            .find(|c: char| !c.is_ascii_digit())
            .unwrap_or(digits.len());
        let major = digits[..end].parse().ok()?;
        let rest = &digits[end..];
        if rest.is_empty() {
            return Some((2, major, 0));
        }
        if let Some(minor) = rest.strip_prefix("beta") {
            return Some((1, major, minor.parse().ok()?));
        }
        rest.strip_prefix("alpha")
            .and_then(|minor| Some((0, major, minor.parse().ok()?)))
    }
    match (rank(a), rank(b)) {
        (Some(a), Some(b)) => a.cmp(&b),
        (Some(_), None) => std::cmp::Ordering::Greater,
        (None, Some(_)) => std::cmp::Ordering::Less,
        (None, None) => b.cmp(a),
    }
}

/// The current types; readers take a snapshot, CRD changes replace it.
#[derive(Debug)]
pub(crate) struct Registry {
    types: RwLock<Arc<Types>>,
}

impl Registry {
    pub(crate) fn new() -> Self {
        Self {
            types: RwLock::new(Arc::new(Types::new(BUILTIN_DEFS.clone()))),
        }
    }

    pub(crate) fn types(&self) -> Arc<Types> {
        self.types
            .read()
            .unwrap_or_else(PoisonError::into_inner)
            .clone()
    }

    /// Adds or replaces a custom type.
    pub(crate) fn set(&self, def: ResourceDef) {
        self.change(|all| {
            let def = Arc::new(def);
            match all.iter_mut().find(|d| d.key == def.key) {
                Some(place) => *place = def,
                None => all.push(def),
            }
        });
    }

    /// Removes a custom type.
    pub(crate) fn remove(&self, key: &str) {
        self.change(|all| all.retain(|d| *d.key != *key || d.builtin.is_some()));
    }

    fn change(&self, change: impl FnOnce(&mut Vec<Arc<ResourceDef>>)) {
        let mut types = self.types.write().unwrap_or_else(PoisonError::into_inner);
        let mut all = types.all.clone();
        change(&mut all);
        *types = Arc::new(Types::new(all));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_sort_by_stability_then_number() {
        let mut versions = ["foo", "v1alpha1", "v1beta1", "v10", "v2", "v1beta10", "bar"];
        versions.sort_by(|a, b| compare_versions(b, a));
        assert_eq!(
            versions,
            ["v10", "v2", "v1beta10", "v1beta1", "v1alpha1", "bar", "foo"]
        );
    }

    #[test]
    fn built_in_types_are_found_by_path_and_key() {
        let types = Registry::new().types();
        assert_eq!(
            types.find("apps", "deployments").unwrap().kind,
            "Deployment"
        );
        assert_eq!(types.by_key("pods").unwrap().kind, "Pod");
        assert!(types.find("apps", "pods").is_none());
        assert!(
            types
                .groups()
                .contains(&("batch".to_owned(), vec!["v1".to_owned()]))
        );
    }
}
