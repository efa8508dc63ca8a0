//! The hash of a manifest's spec that upstream leaves in an annotation of Services and CSIDrivers.
//!
//! It is over the JSON that Go writes for the typed spec: fields in the order of the Go struct,
//! unknown ones dropped, empty ones left out, `<`, `>` and `&` escaped. With the same hash, an
//! object that upstream's agent has applied needs no write when this one takes over, and vice
//! versa.

use std::fmt::Write as _;

use serde_json::Value;
use sha2::{Digest, Sha256};

use super::{Object, entries, metadata_text};
use crate::go_format::write_json;

/// Where the hash is (`openshift/library-go`: `resourceapply.SetSpecHashAnnotation`).
const ANNOTATION: &str = "operator.openshift.io/spec-hash";

/// The types whose spec is hashed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Spec {
    Service,
    CsiDriver,
}

/// A field of a Go struct, and how its value is written.
type Field = (&'static str, Kind);

#[derive(Debug, Clone, Copy)]
enum Kind {
    /// Left out when it is the zero value of its type.
    OmitEmpty,
    /// Left out when it is not there.
    Pointer,
    /// A number, 0 if it is not there.
    Number,
    /// A text, empty if it is not there.
    Text,
    /// A struct behind a pointer.
    Struct(&'static [Field]),
    /// A list of structs, left out when it is empty.
    Structs(&'static [Field]),
}

use Kind::{Number, OmitEmpty, Pointer, Struct, Structs, Text};

/// `k8s.io/api/core/v1.ServiceSpec`.
const SERVICE: [Field; 20] = [
    ("ports", Structs(&PORT)),
    ("selector", OmitEmpty),
    ("clusterIP", OmitEmpty),
    ("clusterIPs", OmitEmpty),
    ("type", OmitEmpty),
    ("externalIPs", OmitEmpty),
    ("sessionAffinity", OmitEmpty),
    ("loadBalancerIP", OmitEmpty),
    ("loadBalancerSourceRanges", OmitEmpty),
    ("externalName", OmitEmpty),
    ("externalTrafficPolicy", OmitEmpty),
    ("healthCheckNodePort", OmitEmpty),
    ("publishNotReadyAddresses", OmitEmpty),
    (
        "sessionAffinityConfig",
        Struct(&[("clientIP", Struct(&[("timeoutSeconds", Pointer)]))]),
    ),
    ("ipFamilies", OmitEmpty),
    ("ipFamilyPolicy", Pointer),
    ("allocateLoadBalancerNodePorts", Pointer),
    ("loadBalancerClass", Pointer),
    ("internalTrafficPolicy", Pointer),
    ("trafficDistribution", Pointer),
];

/// `k8s.io/api/core/v1.ServicePort`.
const PORT: [Field; 6] = [
    ("name", OmitEmpty),
    ("protocol", OmitEmpty),
    ("appProtocol", Pointer),
    ("port", Number),
    ("targetPort", Number),
    ("nodePort", OmitEmpty),
];

/// `k8s.io/api/storage/v1.CSIDriverSpec`.
const CSI_DRIVER: [Field; 9] = [
    ("attachRequired", Pointer),
    ("podInfoOnMount", Pointer),
    ("volumeLifecycleModes", OmitEmpty),
    ("storageCapacity", Pointer),
    ("fsGroupPolicy", Pointer),
    (
        "tokenRequests",
        Structs(&[("audience", Text), ("expirationSeconds", Pointer)]),
    ),
    ("requiresRepublish", Pointer),
    ("seLinuxMount", Pointer),
    ("nodeAllocatableUpdatePeriodSeconds", Pointer),
];

/// Writes the hash of the manifest's spec into its annotations. What is no spec is left to the
/// server to refuse.
pub(super) fn annotate(manifest: &mut Object, spec: Spec) {
    let fields: &[Field] = match spec {
        Spec::Service => &SERVICE,
        Spec::CsiDriver => &CSI_DRIVER,
    };
    let empty = Object::new();
    let spec = match manifest.get("spec") {
        None | Some(Value::Null) => &empty,
        Some(Value::Object(spec)) => spec,
        Some(_) => return,
    };
    let mut text = String::new();
    write_struct(&mut text, spec, fields);
    let hash = hex(&Sha256::digest(text));
    if let Some(annotations) =
        entries(manifest, "metadata").and_then(|metadata| entries(metadata, "annotations"))
    {
        annotations.insert(ANNOTATION.into(), hash.into());
    }
}

/// Whether the live object carries the hash of what is wanted; `None` if it carries none.
pub(super) fn is_recorded(live: &Object, wanted: &Object) -> Option<bool> {
    let hash = |object| metadata_text(object, "annotations", ANNOTATION);
    hash(live).map(|recorded| hash(wanted) == Some(recorded))
}

fn hex(bytes: &[u8]) -> String {
    let mut text = String::new();
    for byte in bytes {
        let _ = write!(text, "{byte:02x}"); // Writing to a String cannot fail.
    }
    text
}

/// Writes an object as Go writes the struct of these fields.
fn write_struct(out: &mut String, object: &Object, fields: &[Field]) {
    let open = out.len();
    for (name, kind) in fields {
        let value = object.get(*name).filter(|value| !value.is_null());
        let mut field = String::new();
        match (kind, value) {
            (Number, None) => field.push('0'),
            (Text, None) => field.push_str("\"\""),
            (OmitEmpty | Structs(_), Some(value)) if is_zero(value) => {}
            (Struct(fields), Some(Value::Object(value))) => write_struct(&mut field, value, fields),
            (Structs(fields), Some(Value::Array(items))) => {
                write_structs(&mut field, items, fields);
            }
            (_, Some(value)) => write_json(&mut field, value),
            (_, None) => {}
        }
        if !field.is_empty() {
            out.push(if out.len() == open { '{' } else { ',' });
            let _ = write!(out, "\"{name}\":{field}");
        }
    }
    out.push_str(if out.len() == open { "{}" } else { "}" });
}

fn write_structs(out: &mut String, items: &[Value], fields: &[Field]) {
    let empty = Object::new();
    for (position, item) in items.iter().enumerate() {
        out.push(if position == 0 { '[' } else { ',' });
        write_struct(out, item.as_object().unwrap_or(&empty), fields);
    }
    out.push(']');
}

fn is_zero(value: &Value) -> bool {
    match value {
        Value::Null => true,
        Value::Bool(flag) => !flag,
        Value::Number(number) => number.as_f64() == Some(0.0),
        Value::String(text) => text.is_empty(),
        Value::Array(items) => items.is_empty(),
        Value::Object(entries) => entries.is_empty(),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn text(spec: &Value, fields: &'static [Field]) -> String {
        let mut text = String::new();
        write_struct(&mut text, spec.as_object().unwrap(), fields);
        text
    }

    #[test]
    fn empty_fields_are_left_out_and_pointers_are_not() {
        let spec = json!({
            "type": "", "healthCheckNodePort": 0, "publishNotReadyAddresses": false,
            "ports": [{"appProtocol": "", "port": 1, "nodePort": 0}], "externalIPs": [],
            "allocateLoadBalancerNodePorts": false, "ipFamilyPolicy": null, "selector": {},
            "sessionAffinityConfig": {"clientIP": {"timeoutSeconds": 0, "x": 1}},
        });
        assert_eq!(
            text(&spec, &SERVICE),
            concat!(
                r#"{"ports":[{"appProtocol":"","port":1,"targetPort":0}],"#,
                r#""sessionAffinityConfig":{"clientIP":{"timeoutSeconds":0}},"#,
                r#""allocateLoadBalancerNodePorts":false}"#
            )
        );
        let driver = json!({"tokenRequests": [{"expirationSeconds": 1}, {"audience": "a\u{2028}"}], "attachRequired": false});
        assert_eq!(
            text(&driver, &CSI_DRIVER),
            r#"{"attachRequired":false,"tokenRequests":[{"audience":"","expirationSeconds":1},{"audience":"a\u2028"}]}"#
        );
    }

    #[test]
    fn what_is_no_spec_has_no_hash() {
        let manifest = json!({"spec": "text", "metadata": {"name": "a"}});
        let mut annotated = manifest.as_object().unwrap().clone();
        annotate(&mut annotated, Spec::Service);
        assert_eq!(Value::Object(annotated), manifest);
    }
}
