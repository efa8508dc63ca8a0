//! Service: addresses and ports that the cluster assigned stay.

use std::collections::HashMap;

use serde_json::{Map, Value};

use super::spec_hash::{self, Spec};
use super::{Object, Rule, has_what_is_asked_for, keep, rest_is_equal};
use crate::apply::ApplyError;

/// Differs from upstream: upstream writes the spec when the hash of the manifest's spec (which it
/// keeps in an annotation, as we do), the selector or the type differ, so that a port which is
/// changed or removed on the cluster is never repaired. Here it is repaired like everything that
/// the manifest asks for. What others add beside that stays, as upstream.
#[derive(Debug)]
pub(super) struct Service;

impl Rule for Service {
    fn prepare(&self, manifest: &mut Object) -> Result<(), ApplyError> {
        spec_hash::annotate(manifest, Spec::Service);
        Ok(())
    }

    fn keep(&self, wanted: &mut Object, live: &Object) {
        if let Some(Value::Object(spec)) = wanted.get_mut("spec")
            && let Some(Value::Object(live)) = live.get("spec")
        {
            keep_assigned(spec, live);
        }
    }

    fn is_applied(&self, live: &Object, wanted: &Object, known: Option<bool>) -> bool {
        let recorded = spec_hash::is_recorded(live, wanted);
        recorded.or(known).unwrap_or(false)
    }

    fn is_current(&self, live: &Object, wanted: &Object, applied: bool) -> bool {
        let same = |field: fn(&Object) -> Option<&Value>| field(live) == field(wanted);
        if applied {
            same(selector)
                && service_type(live) == service_type(wanted)
                && has_what_is_asked_for(live, wanted, &[])
        } else {
            rest_is_equal(live, wanted, &[])
        }
    }
}

/// What selects the pods; `None` if nothing does.
fn selector(service: &Object) -> Option<&Value> {
    let selector = service.get("spec")?.get("selector")?;
    let is_empty = selector.is_null() || selector.as_object().is_some_and(Map::is_empty);
    (!is_empty).then_some(selector)
}

fn service_type(service: &Object) -> &str {
    let spec = service.get("spec").and_then(Value::as_object);
    spec.map_or(CLUSTER_IP, spec_type)
}

/// The type that a Service without one has.
const CLUSTER_IP: &str = "ClusterIP";

fn spec_type(spec: &Object) -> &str {
    match spec.get("type").and_then(Value::as_str) {
        None | Some("") => CLUSTER_IP,
        Some(kind) => kind,
    }
}

/// Copies what the cluster has assigned to a Service and the manifest leaves open; an update
/// without it would be refused or would assign anew.
fn keep_assigned(spec: &mut Object, live: &Object) {
    let (wanted, was) = (spec_type(spec).to_owned(), spec_type(live));
    if wanted == "ExternalName" || was == "ExternalName" {
        return;
    }
    // The list begins with the single address: one without the other would contradict it.
    if !spec.contains_key("clusterIP") && !spec.contains_key("clusterIPs") {
        keep(spec, live, "clusterIP");
        keep(spec, live, "clusterIPs");
    }
    keep(spec, live, "ipFamilies");
    keep(spec, live, "ipFamilyPolicy");
    if wanted == "ClusterIP" {
        return;
    }
    if wanted == "LoadBalancer"
        && spec
            .get("externalTrafficPolicy")
            .is_some_and(|p| p == "Local")
    {
        keep(spec, live, "healthCheckNodePort");
    }
    let Some(Value::Array(live_ports)) = live.get("ports") else {
        return;
    };
    let mut known = HashMap::with_capacity(live_ports.len());
    for live in live_ports.iter().filter_map(Value::as_object) {
        known.entry(port_identity(live)).or_insert(live);
    }
    let ports = spec.get_mut("ports").and_then(Value::as_array_mut);
    for port in ports.into_iter().flatten().filter_map(Value::as_object_mut) {
        if let Some(assigned) = known.get(&port_identity(port)) {
            keep(port, assigned, "nodePort");
        }
    }
}

/// What makes two ports of a Service the same one.
fn port_identity(port: &Object) -> (Option<i64>, &str) {
    (
        port.get("port").and_then(Value::as_i64),
        port.get("protocol")
            .and_then(Value::as_str)
            .unwrap_or("TCP"),
    )
}
