//! One case for each kind: a manifest, what a server makes of it, and what may happen to it.

use serde_json::{Value, json};

/// How an object is written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Write {
    Replace,
    Recreate,
    Nothing,
}

use Write::{Nothing, Recreate, Replace};

/// A field, by its JSON pointer, and its new value; null removes it.
pub(crate) type Edit = (&'static str, Value);

pub(crate) struct Case {
    pub(crate) name: String,
    pub(crate) manifest: Value,
    /// What the server adds.
    pub(crate) defaults: Value,
    /// Whether the server counts changes of the content.
    pub(crate) has_generation: bool,
    /// Whether an object that is as wanted is known as such without memory of having applied it.
    pub(crate) idle_without_memory: bool,
    /// Changes of the manifest.
    pub(crate) changes: Vec<(Edit, Write)>,
    /// Changes of the live object that are repaired.
    pub(crate) drifts: Vec<(Edit, Write)>,
    /// Changes of the live object that stay.
    pub(crate) tolerated: Vec<Edit>,
}

impl Case {
    fn new(api_version: &str, kind: &str, content: Value) -> Self {
        let mut manifest = json!({
            "apiVersion": api_version, "kind": kind,
            "metadata": {"name": "a", "namespace": "ns1", "labels": {"app": "web"}},
        });
        if let (Value::Object(manifest), Value::Object(content)) = (&mut manifest, content) {
            manifest.extend(content);
        }
        Self {
            name: kind.to_owned(),
            manifest,
            defaults: json!({}),
            has_generation: false,
            idle_without_memory: true,
            changes: Vec::new(),
            drifts: Vec::new(),
            tolerated: Vec::new(),
        }
    }

    fn defaults(mut self, defaults: Value) -> Self {
        self.defaults = defaults;
        self
    }

    fn generation(mut self) -> Self {
        self.has_generation = true;
        self
    }

    fn writes_without_memory(mut self) -> Self {
        self.idle_without_memory = false;
        self
    }

    fn change(mut self, pointer: &'static str, value: Value, write: Write) -> Self {
        self.changes.push(((pointer, value), write));
        self
    }

    fn drift(mut self, pointer: &'static str, value: Value, write: Write) -> Self {
        self.drifts.push(((pointer, value), write));
        self
    }

    fn tolerates(mut self, pointer: &'static str, value: Value) -> Self {
        self.tolerated.push((pointer, value));
        self
    }
}

/// All kinds with rules of their own, and some without.
pub(crate) fn all() -> Vec<Case> {
    let mut cases = core();
    cases.extend(rbac());
    cases.extend(policies());
    cases.extend(webhooks());
    cases.extend(storage());
    cases.extend(custom_resources());
    cases.extend(workloads());
    cases
}

fn core() -> Vec<Case> {
    vec![
        Case::new("v1", "Namespace", json!({"spec": {"finalizers": ["x"]}}))
            .defaults(json!({"status": {"phase": "Active"}}))
            .change("/spec/finalizers", json!(["y"]), Nothing)
            .tolerates("/spec/finalizers", json!(["kubernetes"])),
        Case::new("v1", "ServiceAccount", json!({}))
            .defaults(json!({"secrets": [{"name": "a-token"}]}))
            .change("/imagePullSecrets", json!([{"name": "x"}]), Nothing)
            .tolerates("/imagePullSecrets", json!([{"name": "y"}])),
        Case::new(
            "v1",
            "Pod",
            json!({"spec": {"containers": [{"name": "c", "image": "a:1"}]}}),
        )
        .defaults(json!({"spec": {"dnsPolicy": "ClusterFirst", "nodeName": "n1"}}))
        .change("/spec/containers/0/image", json!("a:2"), Nothing)
        .tolerates("/spec/containers/0/image", json!("a:3")),
        Case::new(
            "v1",
            "ConfigMap",
            json!({"data": {"k": "v"}, "binaryData": {"b": "MQ=="}}),
        )
        .change("/data/k", json!("w"), Replace)
        .change("/data/l", json!("v"), Replace)
        .change("/data", json!(null), Replace)
        .change("/binaryData/b", json!("Mg=="), Replace)
        .change("/immutable", json!(true), Replace)
        .drift("/data/k", json!("x"), Replace)
        .drift("/data/more", json!("x"), Replace)
        .drift("/binaryData", json!(null), Replace)
        .tolerates("/immutable", json!(true)),
        Case::new("v1", "Secret", json!({"data": {"k": "MQ=="}}))
            .defaults(json!({"type": "Opaque"}))
            .change("/data/k", json!("Mg=="), Replace)
            .change("/data", json!(null), Replace)
            .change("/type", json!("example.io/mine"), Recreate)
            .change("/immutable", json!(true), Replace)
            .drift("/data/k", json!("Mg=="), Replace)
            .drift("/data/more", json!("Mg=="), Replace)
            .drift("/type", json!("example.io/other"), Recreate)
            .tolerates("/immutable", json!(true)),
        named(
            "immutable Secret",
            Case::new(
                "v1",
                "Secret",
                json!({"data": {"k": "MQ=="}, "type": "Opaque", "immutable": true}),
            )
            .change("/data/k", json!("Mg=="), Recreate)
            .change("/immutable", json!(false), Recreate)
            .drift("/data/k", json!("Mg=="), Recreate)
            .drift("/immutable", json!(false), Replace),
        ),
        named(
            "Secret with a token",
            Case::new(
                "v1",
                "Secret",
                json!({"type": "kubernetes.io/service-account-token", "data": {"k": "MQ=="}}),
            )
            .defaults(json!({"data": {"token": "dG9rZW4=", "ca.crt": "Y2E="}}))
            .change("/data/k", json!("Mg=="), Replace)
            .drift("/data/k", json!("Mg=="), Replace)
            .tolerates("/data/token", json!("bmV3")),
        ),
        Case::new(
            "v1",
            "Service",
            json!({"spec": {"selector": {"app": "web"}, "ports": [{"port": 80}]}}),
        )
        .defaults(json!({"spec": {
            "clusterIP": "10.0.0.1", "clusterIPs": ["10.0.0.1"], "ipFamilies": ["IPv4"],
            "ipFamilyPolicy": "SingleStack", "sessionAffinity": "None", "type": "ClusterIP",
            "internalTrafficPolicy": "Cluster", "ports": [{"protocol": "TCP", "targetPort": 80}],
        }}))
        .change("/spec/selector/app", json!("api"), Replace)
        .change("/spec/selector", json!(null), Replace)
        .change("/spec/type", json!("NodePort"), Replace)
        .change("/spec/ports/0/targetPort", json!(8080), Replace)
        .change("/spec/sessionAffinity", json!("ClientIP"), Replace)
        .drift("/spec/selector/app", json!("api"), Replace)
        .drift("/spec/selector/more", json!("x"), Replace)
        .drift("/spec/selector", json!(null), Replace)
        .drift("/spec/type", json!("NodePort"), Replace)
        .drift("/spec/ports/0/port", json!(81), Replace)
        .drift(
            "/metadata/annotations/operator.openshift.io~1spec-hash",
            json!("x"),
            Replace,
        )
        .tolerates("/spec/sessionAffinity", json!("ClientIP"))
        .tolerates("/spec/ports/0/targetPort", json!(8080)),
    ]
}

fn named(name: &str, mut case: Case) -> Case {
    name.clone_into(&mut case.name);
    case
}

fn rbac() -> Vec<Case> {
    const V1: &str = "rbac.authorization.k8s.io/v1";
    let rules = json!([{"apiGroups": [""], "resources": ["pods"], "verbs": ["get"]}]);
    let more = json!([
        {"apiGroups": [""], "resources": ["pods"], "verbs": ["get"]},
        {"apiGroups": ["*"], "resources": ["*"], "verbs": ["*"]},
    ]);
    let role = |kind| {
        Case::new(V1, kind, json!({"rules": rules}))
            .change("/rules/0/verbs", json!(["get", "list"]), Replace)
            .change("/rules", json!(null), Replace)
            .drift("/rules/0/verbs", json!(["*"]), Replace)
            .drift("/rules/0/resourceNames", json!(["x"]), Replace)
            .drift("/rules", more.clone(), Replace)
            .drift("/rules", json!(null), Replace)
    };
    let binding = |kind| {
        Case::new(
            V1,
            kind,
            json!({
                "subjects": [
                    {"kind": "User", "name": "jane"}, {"kind": "Group", "name": "g", "apiGroup": ""},
                    {"kind": "ServiceAccount", "name": "s", "namespace": "ns1", "apiGroup": ""},
                ],
                "roleRef": {"kind": "ClusterRole", "name": "view"},
            }),
        )
        .defaults(json!({
            "subjects": [{"apiGroup": "rbac.authorization.k8s.io"}, {"apiGroup": "rbac.authorization.k8s.io"}, {}],
            "roleRef": {"apiGroup": "rbac.authorization.k8s.io"},
        }))
        .change("/subjects/0/name", json!("joe"), Replace)
        .change("/subjects", json!([]), Replace)
        .change("/roleRef/name", json!("edit"), Replace)
        .drift("/subjects/0/name", json!("eve"), Replace)
        .drift("/subjects", json!([]), Replace)
    };
    vec![
        role("Role"),
        role("ClusterRole").change(
            "/aggregationRule",
            json!({"clusterRoleSelectors": [{"matchLabels": {"a": "b"}}]}),
            Replace,
        ),
        named(
            "aggregated ClusterRole",
            Case::new(
                V1,
                "ClusterRole",
                json!({"aggregationRule": {"clusterRoleSelectors": [{"matchLabels": {"a": "b"}}]}}),
            )
            .defaults(json!({"rules": rules}))
            .change(
                "/aggregationRule/clusterRoleSelectors/0/matchLabels/a",
                json!("c"),
                Replace,
            )
            .drift(
                "/aggregationRule/clusterRoleSelectors/0/matchLabels/a",
                json!("c"),
                Replace,
            )
            .drift(
                "/aggregationRule/clusterRoleSelectors/0/matchLabels/more",
                json!("c"),
                Replace,
            )
            .tolerates("/rules", more.clone())
            .tolerates("/rules", json!(null)),
        ),
        binding("RoleBinding"),
        binding("ClusterRoleBinding"),
    ]
}

fn policies() -> Vec<Case> {
    let admission = json!({"spec": {
        "matchConstraints": {"resourceRules": [{"apiGroups": ["apps"], "apiVersions": ["v1"], "operations": ["CREATE"], "resources": ["deployments"]}]},
        "validations": [{"expression": "true"}],
    }});
    let admission_defaults = json!({"spec": {"failurePolicy": "Fail", "matchConstraints": {
        "matchPolicy": "Equivalent", "namespaceSelector": {}, "objectSelector": {},
        "resourceRules": [{"scope": "*"}],
    }}});
    let policy = |version: &str| {
        Case::new(version, "ValidatingAdmissionPolicy", admission.clone())
            .defaults(admission_defaults.clone())
            .generation()
            .change("/spec/validations/0/expression", json!("false"), Replace)
            .change("/spec/failurePolicy", json!("Ignore"), Replace)
            .drift("/spec/validations/0/expression", json!("false"), Replace)
            .drift("/spec/failurePolicy", json!("Ignore"), Replace)
            .drift(
                "/spec/matchConditions",
                json!([{"name": "never", "expression": "false"}]),
                Replace,
            )
            .drift(
                "/spec/matchConstraints/namespaceSelector",
                json!({"matchLabels": {"a": "b"}}),
                Replace,
            )
    };
    vec![
        Case::new("networking.k8s.io/v1", "NetworkPolicy", json!({"spec": {
            "podSelector": {"matchLabels": {}},
            "ingress": [{"from": [{"namespaceSelector": {}}], "ports": [{"port": 80}]}],
        }}))
        .defaults(json!({"spec": {"policyTypes": ["Ingress"], "ingress": [{"ports": [{"protocol": "TCP"}]}]}}))
        .generation()
        .change("/spec/ingress/0/ports/0/port", json!(81), Replace)
        .change("/spec/ingress", json!([]), Replace)
        .change("/spec/ingress/0/from/0", json!({"podSelector": {}}), Replace)
        .drift("/spec/ingress/0/ports/0/port", json!(81), Replace)
        .drift("/spec/ingress/0/from/0/podSelector", json!({"matchLabels": {"a": "b"}}), Replace)
        .drift("/spec/ingress", json!([{}]), Replace)
        .drift("/spec/policyTypes", json!(["Egress"]), Replace)
        .drift("/spec/egress", json!([{}]), Replace)
        .drift("/spec/podSelector", json!({"matchLabels": {"a": "b"}}), Replace),
        named("NetworkPolicy for egress", Case::new("networking.k8s.io/v1", "NetworkPolicy", json!({"spec": {
            "podSelector": {}, "egress": [{"ports": [{"port": 53, "protocol": "UDP"}, {"port": 53}]}],
        }}))
        .defaults(json!({"spec": {"policyTypes": ["Ingress", "Egress"], "egress": [{"ports": [{}, {"protocol": "TCP"}]}]}}))
        .generation()
        .drift("/spec/policyTypes", json!(["Ingress"]), Replace)),
        Case::new("policy/v1", "PodDisruptionBudget", json!({"spec": {"minAvailable": 1, "selector": {"matchLabels": {"app": "web"}}}}))
            .generation()
            .change("/spec/minAvailable", json!("50%"), Replace)
            .change("/spec/selector", json!({}), Replace)
            .drift("/spec/minAvailable", json!(0), Replace)
            .drift("/spec/selector", json!(null), Replace)
            .drift("/spec/unhealthyPodEvictionPolicy", json!("AlwaysAllow"), Replace),
        policy("admissionregistration.k8s.io/v1"),
        policy("admissionregistration.k8s.io/v1beta1"),
        Case::new("admissionregistration.k8s.io/v1", "ValidatingAdmissionPolicyBinding", json!({"spec": {
            "policyName": "p", "validationActions": ["Deny"], "matchResources": {"namespaceSelector": {"matchLabels": {"a": "b"}}},
        }}))
        .defaults(json!({"spec": {"matchResources": {"matchPolicy": "Equivalent", "objectSelector": {}}}}))
        .generation()
        .change("/spec/validationActions", json!(["Warn"]), Replace)
        .drift("/spec/validationActions", json!(["Audit"]), Replace)
        .drift("/spec/paramRef", json!({"name": "x"}), Replace),
    ]
}

fn webhooks() -> Vec<Case> {
    let webhook = |kind, reinvocation| {
        Case::new("admissionregistration.k8s.io/v1", kind, json!({"webhooks": [{
            "name": "a.example.io", "sideEffects": "None", "admissionReviewVersions": ["v1"],
            "clientConfig": {"service": {"name": "s", "namespace": "ns1", "path": "/x"}},
            "rules": [{"apiGroups": [""], "apiVersions": ["v1"], "operations": ["CREATE"], "resources": ["pods"]}],
        }]}))
        .defaults(json!({"webhooks": [{
            "failurePolicy": "Fail", "matchPolicy": "Equivalent", "timeoutSeconds": 10,
            "namespaceSelector": {}, "objectSelector": {}, "reinvocationPolicy": reinvocation,
            "clientConfig": {"service": {"port": 443}, "caBundle": "Q0E="},
            "rules": [{"scope": "*"}],
        }]}))
        .generation()
        .change("/webhooks/0/failurePolicy", json!("Ignore"), Replace)
        .change("/webhooks/0/clientConfig/caBundle", json!("TUlORQ=="), Replace)
        .change("/webhooks/0/clientConfig/service/path", json!("/y"), Replace)
        .change("/webhooks", json!([]), Replace)
        .drift("/webhooks/0/failurePolicy", json!("Ignore"), Replace)
        .drift("/webhooks/0/rules/0/scope", json!("Cluster"), Replace)
        .drift("/webhooks/0/namespaceSelector", json!({"matchLabels": {"a": "b"}}), Replace)
        .drift("/webhooks/0/clientConfig/service/port", json!(8443), Replace)
        .drift("/webhooks", json!([]), Replace)
        .tolerates("/webhooks/0/clientConfig/caBundle", json!("TkVX"))
    };
    vec![
        webhook("ValidatingWebhookConfiguration", Value::Null),
        webhook("MutatingWebhookConfiguration", json!("Never")).drift(
            "/webhooks/0/reinvocationPolicy",
            json!("IfNeeded"),
            Replace,
        ),
    ]
}

fn storage() -> Vec<Case> {
    const DEFAULT: &str = "/metadata/annotations/storageclass.kubernetes.io~1is-default-class";
    let mut class = Case::new(
        "storage.k8s.io/v1",
        "StorageClass",
        json!({"provisioner": "p", "parameters": {"a": "b"}, "allowVolumeExpansion": true}),
    )
    .defaults(json!({"reclaimPolicy": "Delete", "volumeBindingMode": "Immediate"}))
    .change("/allowVolumeExpansion", json!(false), Replace)
    .change("/allowVolumeExpansion", json!(null), Replace)
    .change("/mountOptions", json!(["ro"]), Replace)
    .change("/provisioner", json!("q"), Recreate)
    .change("/parameters/a", json!("c"), Recreate)
    .change("/parameters", json!(null), Recreate)
    .change("/reclaimPolicy", json!("Retain"), Recreate)
    .change(
        "/volumeBindingMode",
        json!("WaitForFirstConsumer"),
        Recreate,
    )
    .drift("/allowVolumeExpansion", json!(false), Replace)
    .drift("/mountOptions", json!(["ro"]), Replace)
    .drift("/parameters/more", json!("x"), Recreate)
    .drift("/reclaimPolicy", json!("Retain"), Recreate)
    .tolerates(DEFAULT, json!("false"));
    class.manifest["metadata"]["annotations"] =
        json!({"storageclass.kubernetes.io/is-default-class": "true"});
    vec![
        class,
        Case::new("storage.k8s.io/v1", "CSIDriver", json!({"spec": {"attachRequired": false}}))
            .defaults(json!({"spec": {
                "podInfoOnMount": false, "storageCapacity": false, "requiresRepublish": false,
                "seLinuxMount": false, "fsGroupPolicy": "ReadWriteOnceWithFSType",
                "volumeLifecycleModes": ["Persistent"], "futureDefault": true,
            }}))
            .change("/spec/attachRequired", json!(true), Recreate)
            .change("/spec/attachRequired", json!(null), Recreate)
            .change("/spec/fsGroupPolicy", json!("File"), Recreate)
            .drift("/spec/attachRequired", json!(true), Recreate)
            .drift("/metadata/annotations/operator.openshift.io~1spec-hash", json!(null), Replace)
            .tolerates("/spec/futureDefault", json!(false)),
        Case::new("v1", "PersistentVolumeClaim", json!({"spec": {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}}}))
            .defaults(json!({"spec": {"volumeName": "pv-1", "storageClassName": "standard", "volumeMode": "Filesystem"}}))
            .change("/spec/resources/requests/storage", json!("2Gi"), Replace)
            .drift("/spec/resources/requests/storage", json!("3Gi"), Replace)
            .tolerates("/spec/resources/requests/storage", json!("1024Mi")),
        Case::new("v1", "PersistentVolume", json!({"spec": {"capacity": {"storage": "1Gi"}, "hostPath": {"path": "/x"}}}))
            .defaults(json!({"spec": {"claimRef": {"name": "c", "namespace": "n"}, "volumeMode": "Filesystem"}}))
            .writes_without_memory()
            .change("/spec/capacity/storage", json!("2Gi"), Replace)
            .drift("/spec/capacity/storage", json!("3Gi"), Replace)
            .tolerates("/spec/claimRef/name", json!("d")),
        Case::new("snapshot.storage.k8s.io/v1", "VolumeSnapshotClass", json!({"driver": "d", "deletionPolicy": "Delete", "parameters": {"a": "b"}}))
            .generation()
            .change("/driver", json!("e"), Replace)
            .change("/deletionPolicy", json!("Retain"), Replace)
            .change("/parameters/a", json!("c"), Replace)
            .change("/parameters", json!(null), Replace)
            .drift("/parameters/a", json!("c"), Replace)
            .drift("/deletionPolicy", json!("Retain"), Replace),
    ]
}

fn custom_resources() -> Vec<Case> {
    let custom = |api_version: &str, kind: &str| {
        Case::new(
            api_version,
            kind,
            json!({"spec": {"a": {"b": 1}, "list": ["x"]}}),
        )
        .generation()
        .change("/spec/a/b", json!(2), Replace)
        .change("/spec/list", json!(["y"]), Replace)
        .change("/spec/a", json!(null), Replace)
        .drift("/spec/a/b", json!(3), Replace)
        .drift("/spec/list", json!(["x", "y"]), Replace)
        .drift("/spec/a", json!(null), Replace)
        .tolerates("/spec/more", json!(true))
    };
    vec![
        Case::new("apiextensions.k8s.io/v1", "CustomResourceDefinition", json!({"spec": {
            "group": "example.io", "names": {"kind": "Widget", "plural": "widgets"}, "scope": "Namespaced",
            "preserveUnknownFields": false,
            "versions": [{"name": "v1", "served": true, "storage": true, "deprecated": false,
                "schema": {"openAPIV3Schema": {"type": "object", "properties": {"spec": {"type": "object", "default": {}, "nullable": false}}}},
                "additionalPrinterColumns": [{"name": "x", "type": "string", "jsonPath": ".a", "priority": 0}]}],
        }}))
        .defaults(json!({"spec": {"names": {"singular": "widget", "listKind": "WidgetList"}, "conversion": {"strategy": "None"}}}))
        .generation()
        .change("/spec/versions/0/schema/openAPIV3Schema/properties/spec/default", json!(null), Replace)
        .change("/spec/versions/0/schema/openAPIV3Schema/properties/spec/type", json!("string"), Replace)
        .change("/spec/names/shortNames", json!(["w"]), Replace)
        .drift("/spec/names/shortNames", json!(["x"]), Replace)
        .drift("/spec/names/listKind", json!("Widgets"), Replace)
        .drift("/spec/versions/0/served", json!(false), Replace)
        .drift("/spec/versions/0/schema/openAPIV3Schema/properties/more", json!({}), Replace)
        .drift("/spec/conversion", json!({"strategy": "Webhook", "webhook": {}}), Replace),
        named("CustomResourceDefinition that converts", Case::new("apiextensions.k8s.io/v1", "CustomResourceDefinition", json!({"spec": {
            "names": {"kind": "Widget", "plural": "widgets"},
            "conversion": {"strategy": "Webhook", "webhook": {"conversionReviewVersions": ["v1"], "clientConfig": {"service": {"name": "s", "namespace": "n"}}}},
        }}))
        .defaults(json!({"spec": {
            "names": {"singular": "widget", "listKind": "WidgetList"},
            "conversion": {"webhook": {"clientConfig": {"service": {"port": 443}, "caBundle": "Q0E="}}},
        }}))
        .generation()
        .change("/spec/conversion/webhook/clientConfig/service/name", json!("t"), Replace)
        .drift("/spec/conversion/webhook/clientConfig/service/port", json!(8443), Replace)
        .tolerates("/spec/conversion/webhook/clientConfig/caBundle", json!("TkVX"))),
        custom("monitoring.coreos.com/v1", "ServiceMonitor"),
        custom("monitoring.coreos.com/v1", "PrometheusRule"),
        custom("monitoring.coreos.com/v1", "Prometheus"),
        custom("monitoring.coreos.com/v1", "Alertmanager"),
        custom("example.io/v1", "Widget")
            .defaults(json!({"spec": {"size": 1}}))
            .writes_without_memory(),
    ]
}

fn workloads() -> Vec<Case> {
    let template = json!({"template": {"spec": {"containers": [{"name": "c", "image": "a:1"}]}}});
    let workload = |kind| {
        Case::new("apps/v1", kind, json!({"spec": template}))
            .defaults(json!({"spec": {"replicas": 1, "template": {"spec": {"dnsPolicy": "ClusterFirst", "containers": [{"imagePullPolicy": "Always"}]}}}}))
            .generation()
            .writes_without_memory()
            .change("/spec/template/spec/containers/0/image", json!("a:2"), Replace)
            .change("/spec/replicas", json!(3), Replace)
            .drift("/spec/template/spec/containers/0/image", json!("evil:1"), Replace)
            .drift("/spec/template/spec/containers", json!(null), Replace)
            .tolerates("/spec/replicas", json!(5))
    };
    vec![
        workload("Deployment"),
        workload("StatefulSet"),
        workload("DaemonSet"),
        Case::new("batch/v1", "Job", json!({"spec": template}))
            .defaults(json!({"spec": {
                "selector": {"matchLabels": {"batch.kubernetes.io/controller-uid": "u"}},
                "parallelism": 1, "completionMode": "NonIndexed", "suspend": false,
                "template": {
                    "metadata": {"labels": {"batch.kubernetes.io/controller-uid": "u", "controller-uid": "u", "job-name": "a"}},
                    "spec": {"dnsPolicy": "ClusterFirst"},
                },
            }}))
            .generation()
            .change("/spec/template/spec/containers/0/image", json!("a:2"), Replace)
            .change("/spec/suspend", json!(true), Replace)
            .drift("/spec/template/spec/containers/0/image", json!("evil:1"), Replace)
            .tolerates("/spec/suspend", json!(true)),
    ]
}
