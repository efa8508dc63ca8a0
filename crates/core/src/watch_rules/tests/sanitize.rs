use super::*;
use crate::manifest::Gvk;

fn clean(object: &Value) -> Value {
    sanitize(object, Gvk::of(object))
}

/// Requires that an object keeps all that is in it.
#[track_caller]
fn assert_kept(object: &Value) {
    assert_eq!(clean(object), *object);
}

/// S94, S100.
#[test]
fn metadata_of_the_server_goes() {
    let pod = json!({
        "apiVersion": "v1", "kind": "Pod",
        "metadata": {
            "name": "test-pod", "namespace": "default", "labels": {"app": "test"},
            "uid": "12345-67890", "resourceVersion": "999", "generation": 5,
            "creationTimestamp": "2026-01-01T00:00:00Z", "deletionTimestamp": "2026-01-02T00:00:00Z",
            "deletionGracePeriodSeconds": 30, "selfLink": "/api/v1/pods/test-pod",
            "managedFields": [{"manager": "kubectl"}], "finalizers": ["example.com/guard"],
            "ownerReferences": [{"kind": "ReplicaSet", "name": "r"}],
        },
        "spec": {"containers": []},
        "status": {"phase": "Running"},
    });
    let before = pod.clone();
    assert_eq!(
        clean(&pod),
        json!({
            "apiVersion": "v1", "kind": "Pod",
            "metadata": {"name": "test-pod", "namespace": "default", "labels": {"app": "test"}},
            "spec": {"containers": []},
        })
    );
    assert_eq!(pod, before);
    let generated = json!({
        "apiVersion": "v1", "kind": "ConfigMap",
        "metadata": {"generateName": "a-", "name": "a-x7", "futureField": 1},
    });
    assert_kept(&generated);
}

/// S95.
#[test]
fn annotations_and_labels_of_tools_go() {
    let deployment = json!({
        "apiVersion": "apps/v1", "kind": "Deployment",
        "metadata": {
            "name": "web",
            "annotations": {
                "kubectl.kubernetes.io/last-applied-configuration": "{}",
                "control-plane.alpha.kubernetes.io/leader": "{}",
                "deployment.kubernetes.io/revision": "3",
                "autoscaling.alpha.kubernetes.io/conditions": "[]",
                "autoscaling.alpha.kubernetes.io/current-metrics": "[]",
                "kustomize.toolkit.fluxcd.io/checksum": "x",
                "applyset.kubernetes.io/tooling": "x",
                "argocd.argoproj.io/tracking-id": "x",
                "argocd.argoproj.io/installation-id": "x",
                "kcp.io/cluster": "x",
                "argocd.argoproj.io/sync-wave": "1",
                "kcp.io/path": "root",
                "app.kubernetes.io/name": "web",
                "example.com/custom": "yes",
                "deployment.kubernetes.io.example.com/x": "y",
                "plain": "",
            },
            "labels": {
                "kustomize.toolkit.fluxcd.io/name": "x",
                "kro.run/owned": "true",
                "applyset.kubernetes.io/part-of": "x",
                "app.kubernetes.io/name": "web",
            },
        },
    });
    let metadata = &clean(&deployment)["metadata"];
    assert_eq!(
        metadata["annotations"],
        json!({
            "argocd.argoproj.io/sync-wave": "1",
            "kcp.io/path": "root",
            "app.kubernetes.io/name": "web",
            "example.com/custom": "yes",
            "deployment.kubernetes.io.example.com/x": "y",
            "plain": "",
        })
    );
    assert_eq!(metadata["labels"], json!({"app.kubernetes.io/name": "web"}));
}

/// S96. Only there: an empty volume of a pod is a volume.
#[test]
fn maps_without_entries_are_absent() {
    for annotations in [
        json!({"kubectl.kubernetes.io/restartedAt": "x"}),
        json!({}),
        json!(null),
    ] {
        let object = json!({
            "apiVersion": "v1", "kind": "ConfigMap",
            "metadata": {"name": "a", "annotations": annotations, "labels": {}},
            "data": {},
        });
        let expected = json!({
            "apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "a"}, "data": {},
        });
        assert_eq!(clean(&object), expected);
    }
    assert_kept(&json!({
        "apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "a"},
        "spec": {"template": {"spec": {"volumes": [{"name": "v", "emptyDir": {}}]}}},
    }));
}

fn service(spec: Value) -> Value {
    json!({"apiVersion": "v1", "kind": "Service", "metadata": {"name": "s"}, "spec": spec})
}

/// S97.
#[test]
fn addresses_of_a_service_go() {
    let ports = json!([{"port": 80, "targetPort": 8080, "nodePort": 30001}]);
    let assigned = service(json!({
        "clusterIP": "10.96.0.1", "clusterIPs": ["10.96.0.1"], "healthCheckNodePort": 30000,
        "ipFamilies": ["IPv4"], "ipFamilyPolicy": "SingleStack", "internalTrafficPolicy": "Cluster",
        "selector": {"app": "web"}, "ports": ports,
    }));
    let wanted = service(json!({"selector": {"app": "web"}, "ports": ports}));
    assert_eq!(clean(&assigned), wanted);
    assert_kept(&wanted);
}

/// S98, and what else an author chooses.
#[test]
fn choices_for_a_service_stay() {
    let headless = service(json!({
        "clusterIP": "None", "clusterIPs": ["None"], "ipFamilies": ["IPv4"],
        "ipFamilyPolicy": "SingleStack",
    }));
    assert_eq!(clean(&headless), service(json!({"clusterIP": "None"})));
    for policy in ["PreferDualStack", "RequireDualStack"] {
        let families = json!({
            "ipFamilyPolicy": policy, "ipFamilies": ["IPv6", "IPv4"],
            "internalTrafficPolicy": "Local", "type": "LoadBalancer",
        });
        assert_kept(&service(families));
    }
}

/// S99.
#[test]
fn node_and_volume_go() {
    let pod = json!({
        "apiVersion": "v1", "kind": "Pod", "metadata": {"name": "p"},
        "spec": {"nodeName": "worker-node-1", "containers": [{"name": "c"}]},
    });
    assert_eq!(clean(&pod)["spec"], json!({"containers": [{"name": "c"}]}));
    let claim = |spec: Value| {
        json!({
            "apiVersion": "v1", "kind": "PersistentVolumeClaim",
            "metadata": {"name": "c", "annotations": {
                "pv.kubernetes.io/bind-completed": "yes",
                "pv.kubernetes.io/bound-by-controller": "yes",
                "volume.beta.kubernetes.io/storage-provisioner": "p",
                "volume.kubernetes.io/selected-node": "n",
                "volume.kubernetes.io/storage-provisioner": "p",
            }},
            "spec": spec,
        })
    };
    let wanted =
        json!({"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}});
    let mut bound = wanted.clone();
    bound["volumeName"] = json!("pvc-abc123");
    bound["volumeMode"] = json!("Filesystem");
    let seen = clean(&claim(bound));
    assert_eq!(seen["spec"], wanted);
    assert_eq!(seen["metadata"], json!({"name": "c"}));
    let block = clean(&claim(json!({"volumeMode": "Block"})));
    assert_eq!(block["spec"], json!({"volumeMode": "Block"}));

    let volume = json!({
        "apiVersion": "v1", "kind": "PersistentVolume", "metadata": {"name": "v"},
        "spec": {"claimRef": {"name": "c", "namespace": "ns", "uid": "u", "resourceVersion": "7"}},
    });
    let reference = json!({"name": "c", "namespace": "ns"});
    assert_eq!(clean(&volume)["spec"]["claimRef"], reference);
}

#[test]
fn a_namespace_is_its_name() {
    let namespace = json!({
        "apiVersion": "v1", "kind": "Namespace",
        "metadata": {"name": "a", "labels": {"kubernetes.io/metadata.name": "a"}},
        "spec": {"finalizers": ["kubernetes"]},
        "status": {"phase": "Active"},
    });
    let wanted = json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "a"}});
    assert_eq!(clean(&namespace), wanted);
    // What was empty before anything was taken out of it stays.
    let odd = json!({
        "apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "a"}, "spec": {},
    });
    assert_kept(&odd);
}

/// S101: kinds that have their content elsewhere than in `spec`.
#[test]
fn content_outside_of_spec_stays() {
    for object in [
        json!({
            "apiVersion": "storage.k8s.io/v1", "kind": "StorageClass", "metadata": {"name": "fast"},
            "provisioner": "p", "parameters": {"type": "ssd"}, "reclaimPolicy": "Retain",
            "allowVolumeExpansion": true, "volumeBindingMode": "WaitForFirstConsumer",
            "mountOptions": ["debug"], "allowedTopologies": [{"matchLabelExpressions": []}],
        }),
        json!({
            "apiVersion": "scheduling.k8s.io/v1", "kind": "PriorityClass", "metadata": {"name": "high"},
            "value": 1000, "globalDefault": false, "description": "d", "preemptionPolicy": "Never",
        }),
        json!({
            "apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "c"},
            "data": {"status": "is a key"}, "binaryData": {"b": "AA=="}, "immutable": true,
        }),
        json!({
            "apiVersion": "v1", "kind": "Secret", "metadata": {"name": "s"},
            "data": {"k": "djE="}, "type": "Opaque", "immutable": true,
        }),
        json!({
            "apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": "a"},
            "secrets": [{"name": "s"}], "imagePullSecrets": [{"name": "p"}],
            "automountServiceAccountToken": false,
        }),
        json!({
            "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRole", "metadata": {"name": "r"},
            "rules": [], "aggregationRule": {"clusterRoleSelectors": [{"matchLabels": {"a": "b"}}]},
        }),
        json!({
            "apiVersion": "node.k8s.io/v1", "kind": "RuntimeClass", "metadata": {"name": "gvisor"},
            "handler": "runsc", "overhead": {"podFixed": {"cpu": "1"}}, "scheduling": {"nodeSelector": {}},
        }),
        json!({
            "apiVersion": "example.io/v1", "kind": "Widget", "metadata": {"name": "w"},
            "spec": {"nodeName": "n", "volumeName": "v"}, "extra": {"deep": [1, 2.5, null]}, "size": 3,
        }),
        json!({
            "apiVersion": "serving.knative.dev/v1", "kind": "Service", "metadata": {"name": "w"},
            "spec": {"clusterIP": "10.0.0.1", "ipFamilies": ["IPv4"], "internalTrafficPolicy": "Cluster"},
        }),
        json!({
            "apiVersion": "example.io/v1", "kind": "Pod", "metadata": {"name": "w"},
            "spec": {"nodeName": "n"},
        }),
    ] {
        assert_kept(&object);
        let mut with_status = object.clone();
        with_status["status"] = json!({"phase": "Ready"});
        assert_eq!(clean(&with_status), object);
    }
}

/// Items of a list do not say what they are.
#[test]
fn type_and_version_are_those_of_the_watch() {
    let object = json!({"metadata": {"name": "a"}, "spec": {"clusterIP": "10.0.0.1"}});
    let seen = sanitize(&object, Gvk::new("v1", "Service"));
    let wanted = json!({
        "apiVersion": "v1", "kind": "Service", "metadata": {"name": "a"},
    });
    assert_eq!(seen, wanted);
    let seen = sanitize(&json!({}), Gvk::new("apps/v1", "Deployment"));
    assert_eq!(seen, json!({"apiVersion": "apps/v1", "kind": "Deployment"}));
    for odd in [json!(null), json!([1]), json!("text")] {
        assert_eq!(sanitize(&odd, Gvk::new("v1", "ConfigMap")), odd);
    }
    assert_kept(&json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": "odd"}));
    let odd = json!({"apiVersion": "v1", "kind": "Service", "metadata": {"labels": 5}, "spec": 5});
    assert_kept(&odd);
}

#[test]
fn empty_times_in_templates_go() {
    let deployment = json!({
        "apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "a"},
        "spec": {"template": {"metadata": {"creationTimestamp": null, "labels": {}}}},
    });
    let template = &clean(&deployment)["spec"]["template"]["metadata"];
    assert_eq!(*template, json!({"labels": {}}));
}

#[test]
fn the_hash_is_that_of_the_content() {
    let one: Value =
        serde_json::from_str(r#"{"kind": "A", "spec": {"x": 1, "y": [1, 2]}}"#).unwrap();
    let same: Value =
        serde_json::from_str(r#"{"spec": {"y": [1, 2], "x": 1}, "kind": "A"}"#).unwrap();
    assert_eq!(content_hash(&one), content_hash(&same));
    for other in [
        json!({"kind": "A", "spec": {"x": 1, "y": [2, 1]}}),
        json!({"kind": "A", "spec": {"x": "1", "y": [1, 2]}}),
        json!({"kind": "A", "spec": {"y": [1, 2]}}),
    ] {
        assert_ne!(content_hash(&one), content_hash(&other));
    }
    // An update of the status alone leaves it as it was (S86).
    let pod = |phase: &str| {
        let pod = json!({
            "apiVersion": "v1", "kind": "Pod",
            "metadata": {"name": "p", "resourceVersion": phase},
            "spec": {"containers": []}, "status": {"phase": phase},
        });
        content_hash(&clean(&pod))
    };
    assert_eq!(pod("Pending"), pod("Running"));
}

#[test]
fn people_read_what_it_is_first() {
    let object = json!({
        "data": {"b": "1", "a": "2"}, "kind": "ConfigMap", "binaryData": {},
        "metadata": {
            "annotations": {}, "zone": 1, "labels": {}, "namespace": "ns", "name": "a",
            "generateName": "a-", "abc": 1,
        },
        "apiVersion": "v1",
    });
    let text = serde_json::to_string(&Ordered(&object)).unwrap();
    assert_eq!(
        text,
        concat!(
            r#"{"apiVersion":"v1","kind":"ConfigMap","#,
            r#""metadata":{"name":"a","generateName":"a-","namespace":"ns","labels":{},"#,
            r#""annotations":{},"abc":1,"zone":1},"#,
            r#""binaryData":{},"data":{"a":"2","b":"1"}}"#
        )
    );
    let read: Value = serde_json::from_str(&text).unwrap();
    assert_eq!(read, object);
    for odd in [json!([1]), json!({"metadata": 5})] {
        let text = serde_json::to_string(&Ordered(&odd)).unwrap();
        assert_eq!(serde_json::from_str::<Value>(&text).unwrap(), odd);
    }
}
