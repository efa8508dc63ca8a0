//! Columns of common built-in types, as `k8s.io/kubernetes/pkg/printers/internalversion` has
//! them.

use jiff::Timestamp;
use serde_json::{Value, json};

use super::age;
use crate::registry::ResourceDef;
use crate::verbs::scale::selector_text;

/// Columns beside the name, with their priority, and the cells under them.
pub(super) struct Printer {
    pub(super) columns: &'static [(&'static str, i64)],
    pub(super) cells: fn(&Value, Timestamp) -> Vec<Value>,
}

/// The printer of a built-in type that has one.
#[allow(clippy::too_many_lines, reason = "a table")]
pub(super) fn printer(def: &ResourceDef) -> Option<&'static Printer> {
    def.builtin?;
    Some(match def.key.as_ref() {
        "namespaces" => &Printer {
            columns: &[("Status", 0), ("Age", 0)],
            cells: namespace,
        },
        "configmaps" => &Printer {
            columns: &[("Data", 0), ("Age", 0)],
            cells: config_map,
        },
        "secrets" => &Printer {
            columns: &[("Type", 0), ("Data", 0), ("Age", 0)],
            cells: secret,
        },
        "serviceaccounts" => &Printer {
            columns: &[("Secrets", 0), ("Age", 0)],
            cells: service_account,
        },
        "services" => &Printer {
            columns: &[
                ("Type", 0),
                ("Cluster-IP", 0),
                ("External-IP", 0),
                ("Port(s)", 0),
                ("Age", 0),
                ("Selector", 1),
            ],
            cells: service,
        },
        "pods" => &Printer {
            columns: &[
                ("Ready", 0),
                ("Status", 0),
                ("Restarts", 0),
                ("Age", 0),
                ("IP", 1),
                ("Node", 1),
                ("Nominated Node", 1),
                ("Readiness Gates", 1),
            ],
            cells: pod,
        },
        "nodes" => &Printer {
            columns: &[("Status", 0), ("Roles", 0), ("Age", 0), ("Version", 0)],
            cells: node,
        },
        "events" => &Printer {
            columns: &[
                ("Last Seen", 0),
                ("Type", 0),
                ("Reason", 0),
                ("Object", 0),
                ("Message", 0),
            ],
            cells: event,
        },
        "deployments.apps" => &Printer {
            columns: &[
                ("Ready", 0),
                ("Up-to-date", 0),
                ("Available", 0),
                ("Age", 0),
                ("Containers", 1),
                ("Images", 1),
                ("Selector", 1),
            ],
            cells: deployment,
        },
        "statefulsets.apps" => &Printer {
            columns: &[("Ready", 0), ("Age", 0), ("Containers", 1), ("Images", 1)],
            cells: stateful_set,
        },
        "daemonsets.apps" => &Printer {
            columns: &[
                ("Desired", 0),
                ("Current", 0),
                ("Ready", 0),
                ("Up-to-date", 0),
                ("Available", 0),
                ("Node Selector", 0),
                ("Age", 0),
                ("Containers", 1),
                ("Images", 1),
                ("Selector", 1),
            ],
            cells: daemon_set,
        },
        "replicasets.apps" => &Printer {
            columns: &[
                ("Desired", 0),
                ("Current", 0),
                ("Ready", 0),
                ("Age", 0),
                ("Containers", 1),
                ("Images", 1),
                ("Selector", 1),
            ],
            cells: replica_set,
        },
        "controllerrevisions.apps" => &Printer {
            columns: &[("Controller", 0), ("Revision", 0), ("Age", 0)],
            cells: controller_revision,
        },
        "jobs.batch" => &Printer {
            columns: &[
                ("Status", 0),
                ("Completions", 0),
                ("Duration", 0),
                ("Age", 0),
                ("Containers", 1),
                ("Images", 1),
                ("Selector", 1),
            ],
            cells: job,
        },
        "cronjobs.batch" => &Printer {
            columns: &[
                ("Schedule", 0),
                ("Timezone", 0),
                ("Suspend", 0),
                ("Active", 0),
                ("Last Schedule", 0),
                ("Age", 0),
            ],
            cells: cron_job,
        },
        "leases.coordination.k8s.io" => &Printer {
            columns: &[("Holder", 0), ("Age", 0)],
            cells: lease,
        },
        crate::builtin::CRDS => &Printer {
            columns: &[("Created At", 0)],
            cells: crd,
        },
        _ => return None,
    })
}

fn text<'a>(object: &'a Value, pointer: &str) -> &'a str {
    object
        .pointer(pointer)
        .and_then(Value::as_str)
        .unwrap_or_default()
}

fn or<'a>(text: &'a str, otherwise: &'a str) -> Value {
    json!(if text.is_empty() { otherwise } else { text })
}

fn number(object: &Value, pointer: &str) -> i64 {
    object
        .pointer(pointer)
        .and_then(Value::as_i64)
        .unwrap_or_default()
}

fn list<'a>(object: &'a Value, pointer: &str) -> &'a [Value] {
    object
        .pointer(pointer)
        .and_then(Value::as_array)
        .map_or(&[], Vec::as_slice)
}

fn count(object: &Value, field: &str) -> usize {
    object
        .get(field)
        .and_then(Value::as_object)
        .map_or(0, serde_json::Map::len)
}

fn since(object: &Value, pointer: &str, now: Timestamp) -> Value {
    let time = text(object, pointer).parse::<Timestamp>();
    json!(time.map_or_else(|_| "<unknown>".to_owned(), |t| age(t, now)))
}

fn created(object: &Value, now: Timestamp) -> Value {
    since(object, "/metadata/creationTimestamp", now)
}

fn join(values: &[Value], field: &str) -> Value {
    let texts: Vec<&str> = values
        .iter()
        .map(|v| v[field].as_str().unwrap_or_default())
        .collect();
    json!(texts.join(","))
}

/// Containers, images and selector, the wide columns of workloads.
fn wide(object: &Value) -> [Value; 3] {
    let containers = list(object, "/spec/template/spec/containers");
    let selector = object
        .pointer("/spec/selector")
        .map(selector_text)
        .unwrap_or_default();
    [
        join(containers, "name"),
        join(containers, "image"),
        or(&selector, "<none>"),
    ]
}

fn namespace(o: &Value, now: Timestamp) -> Vec<Value> {
    vec![json!(text(o, "/status/phase")), created(o, now)]
}

fn config_map(o: &Value, now: Timestamp) -> Vec<Value> {
    vec![
        json!(count(o, "data") + count(o, "binaryData")),
        created(o, now),
    ]
}

fn secret(o: &Value, now: Timestamp) -> Vec<Value> {
    vec![
        json!(text(o, "/type")),
        json!(count(o, "data")),
        created(o, now),
    ]
}

fn service_account(o: &Value, now: Timestamp) -> Vec<Value> {
    vec![json!(list(o, "/secrets").len()), created(o, now)]
}

fn service(o: &Value, now: Timestamp) -> Vec<Value> {
    let kind = text(o, "/spec/type");
    let ingress: Vec<&str> = list(o, "/status/loadBalancer/ingress")
        .iter()
        .map(|i| {
            i["ip"]
                .as_str()
                .or(i["hostname"].as_str())
                .unwrap_or_default()
        })
        .collect();
    let external = match kind {
        "ExternalName" => text(o, "/spec/externalName").to_owned(),
        "LoadBalancer" if ingress.is_empty() => "<pending>".to_owned(),
        _ if ingress.is_empty() => "<none>".to_owned(),
        _ => ingress.join(","),
    };
    let ports: Vec<String> = list(o, "/spec/ports")
        .iter()
        .map(|p| {
            let protocol = p["protocol"].as_str().unwrap_or("TCP");
            match p["nodePort"].as_i64() {
                Some(node) => format!("{}:{node}/{protocol}", p["port"]),
                None => format!("{}/{protocol}", p["port"]),
            }
        })
        .collect();
    let selector = o
        .pointer("/spec/selector")
        .map(selector_text)
        .unwrap_or_default();
    vec![
        json!(kind),
        or(text(o, "/spec/clusterIP"), "<none>"),
        json!(external),
        or(&ports.join(","), "<none>"),
        created(o, now),
        or(&selector, "<none>"),
    ]
}

fn pod(o: &Value, now: Timestamp) -> Vec<Value> {
    let statuses = list(o, "/status/containerStatuses");
    let ready = statuses
        .iter()
        .filter(|s| s["ready"] == json!(true))
        .count();
    let restarts: i64 = statuses
        .iter()
        .filter_map(|s| s["restartCount"].as_i64())
        .sum();
    let waiting = statuses
        .iter()
        .find_map(|s| s.pointer("/state/waiting/reason")?.as_str());
    let status = if o.pointer("/metadata/deletionTimestamp").is_some() {
        "Terminating"
    } else {
        let reason = text(o, "/status/reason");
        waiting.unwrap_or(if reason.is_empty() {
            text(o, "/status/phase")
        } else {
            reason
        })
    };
    vec![
        json!(format!("{ready}/{}", list(o, "/spec/containers").len())),
        json!(status),
        json!(restarts.to_string()),
        created(o, now),
        or(text(o, "/status/podIP"), "<none>"),
        or(text(o, "/spec/nodeName"), "<none>"),
        or(text(o, "/status/nominatedNodeName"), "<none>"),
        json!("<none>"),
    ]
}

fn node(o: &Value, now: Timestamp) -> Vec<Value> {
    let ready = list(o, "/status/conditions")
        .iter()
        .find(|c| c["type"] == "Ready");
    let status = match ready.map(|c| c["status"] == "True") {
        Some(true) => "Ready",
        Some(false) => "NotReady",
        None => "Unknown",
    };
    let roles: Vec<&str> = o
        .pointer("/metadata/labels")
        .and_then(Value::as_object)
        .into_iter()
        .flatten()
        .filter_map(|(key, _)| key.strip_prefix("node-role.kubernetes.io/"))
        .collect();
    vec![
        json!(status),
        or(&roles.join(","), "<none>"),
        created(o, now),
        json!(text(o, "/status/nodeInfo/kubeletVersion")),
    ]
}

fn event(o: &Value, now: Timestamp) -> Vec<Value> {
    let seen = ["/series/lastObservedTime", "/lastTimestamp", "/eventTime"]
        .into_iter()
        .find(|p| !text(o, p).is_empty())
        .unwrap_or("/metadata/creationTimestamp");
    let object = format!(
        "{}/{}",
        text(o, "/involvedObject/kind").to_lowercase(),
        text(o, "/involvedObject/name")
    );
    vec![
        since(o, seen, now),
        json!(text(o, "/type")),
        json!(text(o, "/reason")),
        json!(object),
        json!(text(o, "/message").trim()),
    ]
}

fn deployment(o: &Value, now: Timestamp) -> Vec<Value> {
    let ready = format!(
        "{}/{}",
        number(o, "/status/readyReplicas"),
        number(o, "/spec/replicas")
    );
    let mut cells = vec![
        json!(ready),
        json!(number(o, "/status/updatedReplicas")),
        json!(number(o, "/status/availableReplicas")),
        created(o, now),
    ];
    cells.extend(wide(o));
    cells
}

fn stateful_set(o: &Value, now: Timestamp) -> Vec<Value> {
    let ready = format!(
        "{}/{}",
        number(o, "/status/readyReplicas"),
        number(o, "/spec/replicas")
    );
    let [names, images, _] = wide(o);
    vec![json!(ready), created(o, now), names, images]
}

fn daemon_set(o: &Value, now: Timestamp) -> Vec<Value> {
    let selector = o
        .pointer("/spec/template/spec/nodeSelector")
        .map(selector_text)
        .unwrap_or_default();
    let mut cells = vec![
        json!(number(o, "/status/desiredNumberScheduled")),
        json!(number(o, "/status/currentNumberScheduled")),
        json!(number(o, "/status/numberReady")),
        json!(number(o, "/status/updatedNumberScheduled")),
        json!(number(o, "/status/numberAvailable")),
        or(&selector, "<none>"),
        created(o, now),
    ];
    cells.extend(wide(o));
    cells
}

fn replica_set(o: &Value, now: Timestamp) -> Vec<Value> {
    let mut cells = vec![
        json!(number(o, "/spec/replicas")),
        json!(number(o, "/status/replicas")),
        json!(number(o, "/status/readyReplicas")),
        created(o, now),
    ];
    cells.extend(wide(o));
    cells
}

fn controller_revision(o: &Value, now: Timestamp) -> Vec<Value> {
    let controller = list(o, "/metadata/ownerReferences")
        .iter()
        .find(|owner| owner["controller"] == json!(true));
    let controller = controller.map_or_else(
        || "<none>".to_owned(),
        |owner| {
            let kind = text(owner, "/kind").to_lowercase();
            let name = text(owner, "/name");
            match text(owner, "/apiVersion").split_once('/') {
                Some((group, _)) => format!("{kind}.{group}/{name}"),
                None => format!("{kind}/{name}"),
            }
        },
    );
    vec![
        json!(controller),
        json!(number(o, "/revision")),
        created(o, now),
    ]
}

fn job(o: &Value, now: Timestamp) -> Vec<Value> {
    let condition = |kind: &str| {
        list(o, "/status/conditions")
            .iter()
            .any(|c| c["type"] == kind && c["status"] == "True")
    };
    let status = if condition("Complete") {
        "Complete"
    } else if condition("Failed") {
        "Failed"
    } else if o.pointer("/metadata/deletionTimestamp").is_some() {
        "Terminating"
    } else if condition("Suspended") {
        "Suspended"
    } else {
        "Running"
    };
    let wanted = o.pointer("/spec/completions").and_then(Value::as_i64);
    let completions = format!("{}/{}", number(o, "/status/succeeded"), wanted.unwrap_or(1));
    let start = text(o, "/status/startTime").parse::<Timestamp>();
    let end = text(o, "/status/completionTime").parse::<Timestamp>();
    let duration = match (start, end) {
        (Ok(start), Ok(end)) => age(start, end),
        (Ok(start), Err(_)) => age(start, now),
        _ => String::new(),
    };
    let mut cells = vec![
        json!(status),
        json!(completions),
        json!(duration),
        created(o, now),
    ];
    cells.extend(wide(o));
    cells
}

fn cron_job(o: &Value, now: Timestamp) -> Vec<Value> {
    let last = match text(o, "/status/lastScheduleTime") {
        "" => json!("<none>"),
        _ => since(o, "/status/lastScheduleTime", now),
    };
    let suspend = o.pointer("/spec/suspend") == Some(&json!(true));
    vec![
        json!(text(o, "/spec/schedule")),
        or(text(o, "/spec/timeZone"), "<none>"),
        json!(if suspend { "True" } else { "False" }),
        json!(list(o, "/status/active").len()),
        last,
        created(o, now),
    ]
}

fn lease(o: &Value, now: Timestamp) -> Vec<Value> {
    vec![json!(text(o, "/spec/holderIdentity")), created(o, now)]
}

fn crd(o: &Value, _: Timestamp) -> Vec<Value> {
    vec![json!(text(o, "/metadata/creationTimestamp"))]
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::registry::Registry;

    #[test]
    fn every_printer_fills_all_of_its_columns() {
        for def in &Registry::new().types().all {
            if let Some(printer) = printer(def) {
                let cells = (printer.cells)(&json!({}), Timestamp::UNIX_EPOCH);
                assert_eq!(cells.len(), printer.columns.len(), "{}", def.key);
            }
        }
    }

    #[test]
    fn a_deployment_shows_ready_of_wanted() {
        let object = json!({
            "metadata": {"creationTimestamp": "1970-01-01T00:00:00Z"},
            "spec": {"replicas": 3, "selector": {"matchLabels": {"a": "b"}}, "template": {
                "spec": {"containers": [{"name": "c", "image": "i"}, {"name": "d", "image": "j"}]},
            }},
            "status": {"readyReplicas": 2, "updatedReplicas": 3, "availableReplicas": 1},
        });
        let now = Timestamp::UNIX_EPOCH + jiff::SignedDuration::from_secs(60);
        assert_eq!(
            deployment(&object, now),
            [
                json!("2/3"),
                json!(3),
                json!(1),
                json!("60s"),
                json!("c,d"),
                json!("i,j"),
                json!("a=b")
            ]
        );
    }
}
