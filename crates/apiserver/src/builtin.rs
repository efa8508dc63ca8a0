//! The built-in types, one line each.
//!
//! Names, short names, categories and selectable fields are those of Kubernetes 1.36.

use crate::validation::NameRule;

/// What the server has to know about a built-in type.
#[derive(Debug)]
#[allow(
    clippy::struct_excessive_bools,
    reason = "each is an independent fact of a type"
)]
pub(crate) struct Builtin {
    pub(crate) group: &'static str,
    pub(crate) version: &'static str,
    pub(crate) kind: &'static str,
    pub(crate) plural: &'static str,
    pub(crate) singular: &'static str,
    pub(crate) short_names: &'static [&'static str],
    pub(crate) categories: &'static [&'static str],
    pub(crate) namespaced: bool,
    pub(crate) name_rule: NameRule,
    /// Has a `status` subresource.
    pub(crate) status: bool,
    /// Has a `scale` subresource at `spec.replicas`.
    pub(crate) scale: bool,
    /// Counts spec changes in `metadata.generation`.
    pub(crate) generation: bool,
    /// Fields for selectors beside `metadata.name` and `metadata.namespace`.
    pub(crate) fields: &'static [&'static str],
    /// Deletion answers with the object, not with a Status.
    pub(crate) returns_deleted: bool,
    /// Updates without a resource version overwrite.
    pub(crate) unconditional_update: bool,
    /// Answered at once and never stored (access reviews).
    pub(crate) review: bool,
}

impl Builtin {
    const fn new(
        group: &'static str,
        version: &'static str,
        kind: &'static str,
        singular: &'static str,
        plural: &'static str,
    ) -> Self {
        Self {
            group,
            version,
            kind,
            plural,
            singular,
            short_names: &[],
            categories: &[],
            namespaced: true,
            name_rule: NameRule::Subdomain,
            status: false,
            scale: false,
            generation: false,
            fields: &[],
            returns_deleted: false,
            unconditional_update: true,
            review: false,
        }
    }

    const fn cluster(mut self) -> Self {
        self.namespaced = false;
        self
    }

    const fn short(mut self, names: &'static [&'static str]) -> Self {
        self.short_names = names;
        self
    }

    const fn all(mut self) -> Self {
        self.categories = &["all"];
        self
    }

    const fn categories(mut self, categories: &'static [&'static str]) -> Self {
        self.categories = categories;
        self
    }

    const fn names(mut self, rule: NameRule) -> Self {
        self.name_rule = rule;
        self
    }

    const fn status(mut self) -> Self {
        self.status = true;
        self
    }

    const fn scale(mut self) -> Self {
        self.scale = true;
        self
    }

    const fn generation(mut self) -> Self {
        self.generation = true;
        self
    }

    const fn fields(mut self, fields: &'static [&'static str]) -> Self {
        self.fields = fields;
        self
    }

    const fn returns_deleted(mut self) -> Self {
        self.returns_deleted = true;
        self
    }

    const fn conditional_update(mut self) -> Self {
        self.unconditional_update = false;
        self
    }

    const fn review(mut self) -> Self {
        self.review = true;
        self
    }
}

const EVENT_FIELDS: &[&str] = &[
    "involvedObject.kind",
    "involvedObject.namespace",
    "involvedObject.name",
    "involvedObject.uid",
    "involvedObject.apiVersion",
    "involvedObject.resourceVersion",
    "involvedObject.fieldPath",
    "reason",
    "reportingComponent",
    "source",
    "type",
];

const POD_FIELDS: &[&str] = &[
    "spec.nodeName",
    "spec.restartPolicy",
    "spec.schedulerName",
    "spec.serviceAccountName",
    "spec.hostNetwork",
    "status.phase",
    "status.podIP",
    "status.nominatedNodeName",
];

/// Name of the type of `CustomResourceDefinition`s, which the server itself acts on.
pub(crate) const CRDS: &str = "customresourcedefinitions.apiextensions.k8s.io";
/// Name of the type of namespaces, which the server itself acts on.
pub(crate) const NAMESPACES: &str = "namespaces";

/// Every built-in type, in the order in which discovery lists it.
pub(crate) static BUILTINS: &[Builtin] = &[
    Builtin::new("", "v1", "ConfigMap", "configmap", "configmaps").short(&["cm"]),
    Builtin::new("", "v1", "Endpoints", "endpoints", "endpoints").short(&["ep"]),
    Builtin::new("", "v1", "Event", "event", "events")
        .short(&["ev"])
        .fields(EVENT_FIELDS),
    Builtin::new("", "v1", "LimitRange", "limitrange", "limitranges").short(&["limits"]),
    Builtin::new("", "v1", "Namespace", "namespace", "namespaces")
        .short(&["ns"])
        .cluster()
        .names(NameRule::Label)
        .status()
        .fields(&["status.phase"])
        .returns_deleted(),
    Builtin::new("", "v1", "Node", "node", "nodes")
        .short(&["no"])
        .cluster()
        .status()
        .fields(&["spec.unschedulable"]),
    Builtin::new(
        "",
        "v1",
        "PersistentVolumeClaim",
        "persistentvolumeclaim",
        "persistentvolumeclaims",
    )
    .short(&["pvc"])
    .status()
    .returns_deleted(),
    Builtin::new(
        "",
        "v1",
        "PersistentVolume",
        "persistentvolume",
        "persistentvolumes",
    )
    .short(&["pv"])
    .cluster()
    .status()
    .returns_deleted(),
    Builtin::new("", "v1", "Pod", "pod", "pods")
        .short(&["po"])
        .all()
        .status()
        .generation()
        .fields(POD_FIELDS)
        .returns_deleted(),
    Builtin::new(
        "",
        "v1",
        "ReplicationController",
        "replicationcontroller",
        "replicationcontrollers",
    )
    .short(&["rc"])
    .all()
    .status()
    .scale()
    .generation()
    .fields(&["status.replicas"]),
    Builtin::new("", "v1", "ResourceQuota", "resourcequota", "resourcequotas")
        .short(&["quota"])
        .status()
        .returns_deleted(),
    Builtin::new("", "v1", "Secret", "secret", "secrets").fields(&["type"]),
    Builtin::new(
        "",
        "v1",
        "ServiceAccount",
        "serviceaccount",
        "serviceaccounts",
    )
    .short(&["sa"])
    .returns_deleted(),
    Builtin::new("", "v1", "Service", "service", "services")
        .short(&["svc"])
        .all()
        .names(NameRule::ServiceLabel)
        .status()
        .fields(&["spec.clusterIP", "spec.type"])
        .returns_deleted(),
    Builtin::new(
        "apps",
        "v1",
        "ControllerRevision",
        "controllerrevision",
        "controllerrevisions",
    ),
    Builtin::new("apps", "v1", "DaemonSet", "daemonset", "daemonsets")
        .short(&["ds"])
        .all()
        .status()
        .generation(),
    Builtin::new("apps", "v1", "Deployment", "deployment", "deployments")
        .short(&["deploy"])
        .all()
        .status()
        .scale()
        .generation(),
    Builtin::new("apps", "v1", "ReplicaSet", "replicaset", "replicasets")
        .short(&["rs"])
        .all()
        .status()
        .scale()
        .generation()
        .fields(&["status.replicas"]),
    Builtin::new("apps", "v1", "StatefulSet", "statefulset", "statefulsets")
        .short(&["sts"])
        .all()
        .status()
        .scale()
        .generation(),
    Builtin::new("batch", "v1", "CronJob", "cronjob", "cronjobs")
        .short(&["cj"])
        .all()
        .status()
        .generation(),
    Builtin::new("batch", "v1", "Job", "job", "jobs")
        .all()
        .status()
        .generation()
        .fields(&["status.successful"]),
    Builtin::new(
        "authentication.k8s.io",
        "v1",
        "SelfSubjectReview",
        "selfsubjectreview",
        "selfsubjectreviews",
    )
    .cluster()
    .review(),
    Builtin::new(
        "authorization.k8s.io",
        "v1",
        "LocalSubjectAccessReview",
        "localsubjectaccessreview",
        "localsubjectaccessreviews",
    )
    .review(),
    Builtin::new(
        "authorization.k8s.io",
        "v1",
        "SelfSubjectAccessReview",
        "selfsubjectaccessreview",
        "selfsubjectaccessreviews",
    )
    .cluster()
    .review(),
    Builtin::new(
        "authorization.k8s.io",
        "v1",
        "SelfSubjectRulesReview",
        "selfsubjectrulesreview",
        "selfsubjectrulesreviews",
    )
    .cluster()
    .review(),
    Builtin::new(
        "authorization.k8s.io",
        "v1",
        "SubjectAccessReview",
        "subjectaccessreview",
        "subjectaccessreviews",
    )
    .cluster()
    .review(),
    Builtin::new("networking.k8s.io", "v1", "Ingress", "ingress", "ingresses")
        .short(&["ing"])
        .status()
        .generation(),
    Builtin::new(
        "networking.k8s.io",
        "v1",
        "IngressClass",
        "ingressclass",
        "ingressclasses",
    )
    .cluster()
    .generation(),
    Builtin::new(
        "networking.k8s.io",
        "v1",
        "NetworkPolicy",
        "networkpolicy",
        "networkpolicies",
    )
    .short(&["netpol"])
    .generation(),
    Builtin::new(
        "policy",
        "v1",
        "PodDisruptionBudget",
        "poddisruptionbudget",
        "poddisruptionbudgets",
    )
    .short(&["pdb"])
    .status()
    .generation()
    .conditional_update(),
    Builtin::new(
        "rbac.authorization.k8s.io",
        "v1",
        "ClusterRoleBinding",
        "clusterrolebinding",
        "clusterrolebindings",
    )
    .cluster()
    .names(NameRule::PathSegment),
    Builtin::new(
        "rbac.authorization.k8s.io",
        "v1",
        "ClusterRole",
        "clusterrole",
        "clusterroles",
    )
    .cluster()
    .names(NameRule::PathSegment),
    Builtin::new(
        "rbac.authorization.k8s.io",
        "v1",
        "RoleBinding",
        "rolebinding",
        "rolebindings",
    )
    .names(NameRule::PathSegment),
    Builtin::new("rbac.authorization.k8s.io", "v1", "Role", "role", "roles")
        .names(NameRule::PathSegment),
    Builtin::new(
        "storage.k8s.io",
        "v1",
        "StorageClass",
        "storageclass",
        "storageclasses",
    )
    .short(&["sc"])
    .cluster(),
    Builtin::new(
        "scheduling.k8s.io",
        "v1",
        "PriorityClass",
        "priorityclass",
        "priorityclasses",
    )
    .short(&["pc"])
    .cluster()
    .generation(),
    Builtin::new("coordination.k8s.io", "v1", "Lease", "lease", "leases").conditional_update(),
    Builtin::new("events.k8s.io", "v1", "Event", "event", "events").short(&["ev"]),
    Builtin::new(
        "apiextensions.k8s.io",
        "v1",
        "CustomResourceDefinition",
        "customresourcedefinition",
        "customresourcedefinitions",
    )
    .short(&["crd", "crds"])
    .categories(&["api-extensions"])
    .cluster()
    .status()
    .generation()
    .conditional_update(),
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_type_is_listed_twice() {
        let mut seen = std::collections::HashSet::new();
        for builtin in BUILTINS {
            assert!(
                seen.insert((builtin.group, builtin.plural)),
                "{}",
                builtin.plural
            );
        }
    }
}
