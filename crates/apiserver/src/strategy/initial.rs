//! What the server itself puts into new objects of built-in types: first statuses, addresses,
//! selectors.

use serde_json::{Value, json};

use super::job;
use crate::registry::ResourceDef;

/// Completes a new built-in object.
pub(super) fn set(def: &ResourceDef, object: &mut Value) {
    match def.kind.as_str() {
        "Namespace" => {
            object["spec"]["finalizers"] = json!(["kubernetes"]);
            object["status"] = json!({"phase": "Active"});
        }
        "Pod" => object["status"] = json!({"phase": "Pending"}),
        "PersistentVolumeClaim" | "PersistentVolume" => {
            object["status"] = json!({"phase": "Pending"});
        }
        "Service" => {
            object["status"] = json!({"loadBalancer": {}});
            give_cluster_ip(object);
        }
        "Deployment" | "ReplicaSet" | "StatefulSet" | "DaemonSet" | "Job" | "CronJob" => {
            if def.kind == "Job" {
                job::complete(object);
            }
            object["status"] = json!({});
        }
        _ => {}
    }
}

/// An address from 10.96.0.0/12. Differs from the real server: it is random, not reserved.
fn give_cluster_ip(object: &mut Value) {
    let Some(spec) = object.get_mut("spec").and_then(Value::as_object_mut) else {
        return;
    };
    if spec.get("type").is_some_and(|t| t == "ExternalName") {
        return;
    }
    let address = spec.entry("clusterIP").or_insert_with(|| {
        let (a, b, c): (u8, u8, u8) = rand::random();
        json!(format!("10.{}.{b}.{}", 96 + a % 16, c.max(1)))
    });
    let addresses = json!([address.clone()]);
    spec.entry("clusterIPs").or_insert(addresses);
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::registry::Registry;

    #[test]
    fn new_objects_are_completed() {
        let types = Registry::new().types();
        let complete = |group: &str, plural: &str, mut object: Value| {
            set(types.find(group, plural).unwrap(), &mut object);
            object
        };
        let namespace = complete("", "namespaces", json!({}));
        assert_eq!(namespace["spec"]["finalizers"], json!(["kubernetes"]));
        assert_eq!(namespace["status"]["phase"], "Active");
        let service = complete("", "services", json!({"spec": {"type": "ClusterIP"}}));
        assert!(
            service["spec"]["clusterIP"]
                .as_str()
                .unwrap()
                .starts_with("10.")
        );
        assert_eq!(
            service["spec"]["clusterIPs"][0],
            service["spec"]["clusterIP"]
        );
        let headless = complete("", "services", json!({"spec": {"clusterIP": "None"}}));
        assert_eq!(headless["spec"]["clusterIPs"], json!(["None"]));
        let job = complete("batch", "jobs", json!({"spec": {"template": {}}}));
        assert_eq!(job["status"], json!({}));
        assert!(job["spec"]["selector"].is_object());
    }
}
