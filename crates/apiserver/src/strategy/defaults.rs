//! Defaults of built-in types, as `k8s.io/kubernetes/pkg/apis/*/v1/defaults.go` sets them.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Map, Value, json};

use super::job;
use crate::object;
use crate::registry::ResourceDef;

/// Sets a field unless it is there.
fn default(fields: &mut Map<String, Value>, name: &str, value: Value) {
    fields.entry(name).or_insert(value);
}

fn at<'a>(object: &'a mut Value, pointer: &str) -> Option<&'a mut Map<String, Value>> {
    object.pointer_mut(pointer).and_then(Value::as_object_mut)
}

fn items<'a>(
    fields: &'a mut Map<String, Value>,
    name: &str,
) -> impl Iterator<Item = &'a mut Map<String, Value>> {
    fields
        .get_mut(name)
        .and_then(Value::as_array_mut)
        .into_iter()
        .flatten()
        .filter_map(Value::as_object_mut)
}

/// A field that is an object, made if need be.
fn fields<'a>(parent: &'a mut Map<String, Value>, name: &str) -> &'a mut Map<String, Value> {
    object::as_object_mut(parent.entry(name).or_insert_with(|| json!({})))
}

/// Sets the defaults of a built-in object.
pub(super) fn set(def: &ResourceDef, object: &mut Value) {
    match def.kind.as_str() {
        "Deployment" => deployment(object),
        "StatefulSet" => stateful_set(object),
        "DaemonSet" => daemon_set(object),
        "ReplicaSet" | "ReplicationController" => replicas(object),
        "Job" => {
            let root = object::as_object_mut(object);
            job_spec(fields(root, "spec"));
        }
        "CronJob" => cron_job(object),
        "Pod" => {
            if let Some(spec) = at(object, "/spec") {
                pod_spec(spec);
                default(spec, "enableServiceLinks", json!(true));
            }
        }
        "Namespace" => namespace(object),
        "Secret" => secret(object),
        "Service" => service(object),
        "PersistentVolumeClaim" => {
            if let Some(spec) = at(object, "/spec") {
                default(spec, "volumeMode", json!("Filesystem"));
            }
        }
        "PersistentVolume" => {
            if let Some(spec) = at(object, "/spec") {
                default(spec, "volumeMode", json!("Filesystem"));
                default(spec, "persistentVolumeReclaimPolicy", json!("Retain"));
            }
        }
        "StorageClass" => {
            let root = object::as_object_mut(object);
            default(root, "reclaimPolicy", json!("Delete"));
            default(root, "volumeBindingMode", json!("Immediate"));
        }
        "PriorityClass" => {
            default(
                object::as_object_mut(object),
                "preemptionPolicy",
                json!("PreemptLowerPriority"),
            );
        }
        "RoleBinding" | "ClusterRoleBinding" => role_binding(object),
        "NetworkPolicy" => network_policy(object),
        "Node" => {
            object::as_object_mut(object)
                .entry("spec")
                .or_insert_with(|| json!({}));
        }
        _ => {}
    }
}

fn deployment(object: &mut Value) {
    let Some(spec) = at(object, "/spec") else {
        return;
    };
    default(spec, "replicas", json!(1));
    default(spec, "revisionHistoryLimit", json!(10));
    default(spec, "progressDeadlineSeconds", json!(600));
    let strategy = object::as_object_mut(spec.entry("strategy").or_insert_with(|| json!({})));
    default(strategy, "type", json!("RollingUpdate"));
    if strategy["type"] == "RollingUpdate" {
        let rolling =
            object::as_object_mut(strategy.entry("rollingUpdate").or_insert_with(|| json!({})));
        default(rolling, "maxUnavailable", json!("25%"));
        default(rolling, "maxSurge", json!("25%"));
    }
    template(spec);
}

fn stateful_set(object: &mut Value) {
    let Some(spec) = at(object, "/spec") else {
        return;
    };
    default(spec, "replicas", json!(1));
    default(spec, "revisionHistoryLimit", json!(10));
    default(spec, "podManagementPolicy", json!("OrderedReady"));
    default(
        spec,
        "persistentVolumeClaimRetentionPolicy",
        json!({"whenDeleted": "Retain", "whenScaled": "Retain"}),
    );
    let strategy = object::as_object_mut(spec.entry("updateStrategy").or_insert_with(|| json!({})));
    default(strategy, "type", json!("RollingUpdate"));
    if strategy["type"] == "RollingUpdate" {
        let rolling =
            object::as_object_mut(strategy.entry("rollingUpdate").or_insert_with(|| json!({})));
        default(rolling, "partition", json!(0));
    }
    template(spec);
}

fn daemon_set(object: &mut Value) {
    let Some(spec) = at(object, "/spec") else {
        return;
    };
    default(spec, "revisionHistoryLimit", json!(10));
    let strategy = object::as_object_mut(spec.entry("updateStrategy").or_insert_with(|| json!({})));
    default(strategy, "type", json!("RollingUpdate"));
    if strategy["type"] == "RollingUpdate" {
        let rolling =
            object::as_object_mut(strategy.entry("rollingUpdate").or_insert_with(|| json!({})));
        default(rolling, "maxUnavailable", json!(1));
        default(rolling, "maxSurge", json!(0));
    }
    template(spec);
}

fn replicas(object: &mut Value) {
    let Some(spec) = at(object, "/spec") else {
        return;
    };
    default(spec, "replicas", json!(1));
    template(spec);
}

fn job_spec(spec: &mut Map<String, Value>) {
    if !spec.contains_key("parallelism") && !spec.contains_key("completions") {
        default(spec, "completions", json!(1));
    }
    default(spec, "parallelism", json!(1));
    let by_index = spec.contains_key("backoffLimitPerIndex");
    let failures = if by_index { i32::MAX } else { 6 };
    default(spec, "backoffLimit", json!(failures));
    default(spec, "completionMode", json!("NonIndexed"));
    default(spec, "suspend", json!(false));
    default(spec, "manualSelector", json!(false));
    let by_policy = spec.contains_key("podFailurePolicy");
    let replaced = if by_policy {
        "Failed"
    } else {
        "TerminatingOrFailed"
    };
    default(spec, "podReplacementPolicy", json!(replaced));
    if let Some(policy) = spec
        .get_mut("podFailurePolicy")
        .and_then(Value::as_object_mut)
    {
        for condition in items(policy, "rules").flat_map(|rule| items(rule, "onPodConditions")) {
            default(condition, "status", json!("True"));
        }
    }
    pod_spec(fields(fields(spec, "template"), "spec"));
}

fn cron_job(object: &mut Value) {
    let Some(spec) = at(object, "/spec") else {
        return;
    };
    default(spec, "concurrencyPolicy", json!("Allow"));
    default(spec, "suspend", json!(false));
    default(spec, "successfulJobsHistoryLimit", json!(3));
    default(spec, "failedJobsHistoryLimit", json!(1));
    if let Some(job) = spec
        .get_mut("jobTemplate")
        .and_then(|t| t.get_mut("spec"))
        .and_then(Value::as_object_mut)
        && let Some(pod) = job
            .get_mut("template")
            .and_then(|t| t.get_mut("spec"))
            .and_then(Value::as_object_mut)
    {
        pod_spec(pod);
    }
}

fn template(spec: &mut Map<String, Value>) {
    if let Some(pod) = spec
        .get_mut("template")
        .and_then(|t| t.get_mut("spec"))
        .and_then(Value::as_object_mut)
    {
        pod_spec(pod);
    }
}

fn pod_spec(spec: &mut Map<String, Value>) {
    default(spec, "restartPolicy", json!("Always"));
    default(spec, "dnsPolicy", json!("ClusterFirst"));
    default(spec, "schedulerName", json!("default-scheduler"));
    default(spec, "terminationGracePeriodSeconds", json!(30));
    default(spec, "securityContext", json!({}));
    if let Some(account) = spec.get("serviceAccountName").cloned() {
        default(spec, "serviceAccount", account);
    } else if let Some(account) = spec.get("serviceAccount").cloned() {
        default(spec, "serviceAccountName", account);
    }
    for list in ["containers", "initContainers"] {
        for container in items(spec, list) {
            set_container(container);
        }
    }
    for volume in items(spec, "volumes") {
        for source in ["configMap", "secret", "projected", "downwardAPI"] {
            if let Some(source) = volume.get_mut(source).and_then(Value::as_object_mut) {
                default(source, "defaultMode", json!(0o644));
            }
        }
        if let Some(path) = volume.get_mut("hostPath").and_then(Value::as_object_mut) {
            default(path, "type", json!(""));
        }
    }
}

fn set_container(container: &mut Map<String, Value>) {
    default(
        container,
        "terminationMessagePath",
        json!("/dev/termination-log"),
    );
    default(container, "terminationMessagePolicy", json!("File"));
    default(container, "resources", json!({}));
    let image = container
        .get("image")
        .and_then(Value::as_str)
        .unwrap_or_default();
    let tag = image.rsplit('/').next().unwrap_or_default();
    let latest = !image.contains('@') && (tag.ends_with(":latest") || !tag.contains(':'));
    default(
        container,
        "imagePullPolicy",
        json!(if latest { "Always" } else { "IfNotPresent" }),
    );
    for port in items(container, "ports") {
        default(port, "protocol", json!("TCP"));
    }
    for env in items(container, "env") {
        let field = env
            .get_mut("valueFrom")
            .and_then(|v| v.get_mut("fieldRef"))
            .and_then(Value::as_object_mut);
        if let Some(field) = field {
            default(field, "apiVersion", json!("v1"));
        }
    }
    for probe in ["livenessProbe", "readinessProbe", "startupProbe"] {
        let Some(probe) = container.get_mut(probe).and_then(Value::as_object_mut) else {
            continue;
        };
        default(probe, "timeoutSeconds", json!(1));
        default(probe, "periodSeconds", json!(10));
        default(probe, "successThreshold", json!(1));
        default(probe, "failureThreshold", json!(3));
        if let Some(get) = probe.get_mut("httpGet").and_then(Value::as_object_mut) {
            default(get, "path", json!("/"));
            default(get, "scheme", json!("HTTP"));
        }
    }
}

fn namespace(object: &mut Value) {
    let name = object::meta_str(object, "name").to_owned();
    let metadata = object::metadata_mut(object);
    let labels = object::as_object_mut(metadata.entry("labels").or_insert_with(|| json!({})));
    if !name.is_empty() {
        labels.insert("kubernetes.io/metadata.name".to_owned(), json!(name));
    }
}

fn secret(object: &mut Value) {
    let root = object::as_object_mut(object);
    default(root, "type", json!("Opaque"));
    if let Some(Value::Object(plain)) = root.remove("stringData") {
        let data = object::as_object_mut(root.entry("data").or_insert_with(|| json!({})));
        for (key, value) in plain {
            data.insert(
                key,
                json!(STANDARD.encode(value.as_str().unwrap_or_default())),
            );
        }
    }
}

fn service(object: &mut Value) {
    let Some(spec) = at(object, "/spec") else {
        return;
    };
    default(spec, "type", json!("ClusterIP"));
    default(spec, "sessionAffinity", json!("None"));
    let kind = spec["type"].as_str().unwrap_or_default().to_owned();
    if kind != "ExternalName" {
        default(spec, "internalTrafficPolicy", json!("Cluster"));
    }
    if matches!(kind.as_str(), "NodePort" | "LoadBalancer") {
        default(spec, "externalTrafficPolicy", json!("Cluster"));
    }
    if kind == "LoadBalancer" {
        default(spec, "allocateLoadBalancerNodePorts", json!(true));
    }
    for port in items(spec, "ports") {
        default(port, "protocol", json!("TCP"));
        if let Some(number) = port.get("port").cloned() {
            default(port, "targetPort", number);
        }
    }
}

/// Sets what the server itself decides on, which therefore belongs to no field manager.
pub(super) fn set_late(def: &ResourceDef, object: &mut Value) {
    if def.kind == "Job" {
        job::default_labels(object);
    }
    if def.kind == "Service"
        && let Some(spec) = at(object, "/spec")
        && spec.get("type").is_none_or(|kind| kind != "ExternalName")
    {
        default(spec, "ipFamilies", json!(["IPv4"]));
        default(spec, "ipFamilyPolicy", json!("SingleStack"));
    }
}

fn role_binding(object: &mut Value) {
    let root = object::as_object_mut(object);
    if let Some(role) = root.get_mut("roleRef").and_then(Value::as_object_mut) {
        default(role, "apiGroup", json!("rbac.authorization.k8s.io"));
    }
    for subject in items(root, "subjects") {
        if subject
            .get("kind")
            .is_some_and(|k| k == "User" || k == "Group")
        {
            default(subject, "apiGroup", json!("rbac.authorization.k8s.io"));
        }
    }
}

fn network_policy(object: &mut Value) {
    let Some(spec) = at(object, "/spec") else {
        return;
    };
    default(spec, "podSelector", json!({}));
    if !spec.contains_key("policyTypes") {
        let mut types = vec!["Ingress"];
        if spec.contains_key("egress") {
            types.push("Egress");
        }
        spec.insert("policyTypes".to_owned(), json!(types));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::registry::Registry;

    fn defaulted(group: &str, plural: &str, mut object: Value) -> Value {
        let types = Registry::new().types();
        set(types.find(group, plural).unwrap(), &mut object);
        object
    }

    #[test]
    fn a_deployment_gets_its_strategy_and_pod_defaults() {
        let got = defaulted(
            "apps",
            "deployments",
            json!({"spec": {"template": {"spec": {"containers": [
                {"name": "a", "image": "x", "ports": [{"containerPort": 1}]},
                {"name": "b", "image": "r:5000/x:1", "imagePullPolicy": "Never"},
            ]}}}}),
        );
        assert_eq!(got["spec"]["replicas"], 1);
        assert_eq!(got["spec"]["strategy"]["rollingUpdate"]["maxSurge"], "25%");
        let containers = &got["spec"]["template"]["spec"]["containers"];
        assert_eq!(containers[0]["imagePullPolicy"], "Always");
        assert_eq!(containers[0]["ports"][0]["protocol"], "TCP");
        assert_eq!(containers[1]["imagePullPolicy"], "Never");
    }

    #[test]
    fn a_job_gets_its_defaults_even_without_a_spec() {
        let got = defaulted("batch", "jobs", json!({}));
        let mut spec = got["spec"].clone();
        let pod = spec["template"].take();
        assert_eq!(pod["spec"]["dnsPolicy"], "ClusterFirst");
        assert_eq!(
            spec,
            json!({"parallelism": 1, "completions": 1, "backoffLimit": 6, "suspend": false,
                "completionMode": "NonIndexed", "manualSelector": false, "template": null,
                "podReplacementPolicy": "TerminatingOrFailed"})
        );
    }

    #[test]
    fn defaults_of_a_job_depend_on_what_it_asks_for() {
        let spec = |spec: Value| defaulted("batch", "jobs", json!({ "spec": spec }))["spec"].take();
        assert_eq!(spec(json!({"parallelism": 3})).get("completions"), None);
        assert_eq!(spec(json!({"completions": 3}))["parallelism"], 1);
        let by_index = spec(json!({"backoffLimitPerIndex": 1}));
        assert_eq!(by_index["backoffLimit"], i32::MAX);
        let by_policy = spec(json!({"podFailurePolicy": {"rules": [
            {"action": "Ignore", "onPodConditions": [{"type": "DisruptionTarget"}]}]}}));
        assert_eq!(by_policy["podReplacementPolicy"], "Failed");
        let rule = &by_policy["podFailurePolicy"]["rules"][0];
        assert_eq!(rule["onPodConditions"][0]["status"], "True");
    }

    #[test]
    fn secrets_take_plain_data_and_namespaces_their_label() {
        let got = defaulted(
            "",
            "secrets",
            json!({"stringData": {"a": "b"}, "data": {"c": "ZA=="}}),
        );
        assert_eq!(
            got,
            json!({"type": "Opaque", "data": {"a": "Yg==", "c": "ZA=="}})
        );
        let got = defaulted("", "namespaces", json!({"metadata": {"name": "x"}}));
        assert_eq!(
            got["metadata"]["labels"]["kubernetes.io/metadata.name"],
            "x"
        );
    }
}
