//! The example events of the design text: each is read, and what muster makes of it again is the
//! example.

#![allow(clippy::unwrap_used, clippy::panic, reason = "tests fail by panicking")]

use std::path::Path;

use bytes::Bytes;
use muster_cloudevents::work::{self, Form, SOURCE_LABEL};
use muster_cloudevents::{Dialect, Event, Message, Stamp, SubResource};
use serde_json::Value;

fn examples() -> Vec<(String, Value)> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/design");
    let mut examples: Vec<_> = std::fs::read_dir(folder)
        .unwrap()
        .map(|entry| {
            let entry = entry.unwrap();
            let text = std::fs::read_to_string(entry.path()).unwrap();
            let name = entry.file_name().into_string().unwrap();
            (name, serde_json::from_str(&text).unwrap())
        })
        .collect();
    examples.sort_by(|(a, _), (b, _): &(String, Value)| a.cmp(b));
    assert_eq!(examples.len(), 8);
    examples
}

/// As a message. The examples name the cluster in the topic only.
fn event(example: &Value) -> Event {
    let text = |value: &Value| match value {
        Value::String(text) => text.clone(),
        other => other.to_string(),
    };
    let attributes = example["attributes"].as_object().unwrap();
    let extensions = example["extensions"].as_object().unwrap();
    let properties = attributes
        .iter()
        .chain(extensions)
        .filter(|(name, _)| *name != "datacontenttype")
        .map(|(name, value)| (format!("ce-{name}"), text(value)))
        .chain([("ce-clustername".to_owned(), "cluster1".to_owned())])
        .collect();
    let data = &example["data"];
    let message = Message {
        content_type: Some(text(&attributes["datacontenttype"])),
        properties,
        payload: if data.is_null() {
            Bytes::new()
        } else {
            Bytes::from(data.to_string())
        },
    };
    Event::try_from(message).unwrap()
}

#[test]
fn every_example_is_read_and_is_what_muster_sends() {
    for (name, example) in examples() {
        let original = event(&example);
        let event_type = original.event_type().unwrap();
        let form = match event_type.data_type.resource.as_str() {
            "manifest" => Form::Manifest,
            "manifestbundle" => Form::Bundle,
            other => panic!("{other}"),
        };
        let stamp = Stamp {
            id: original.id.clone(),
            time: original.time.as_deref().unwrap().parse().unwrap(),
        };
        let action = event_type.action.clone();
        let (again, topic, expected_topic) = if event_type.sub_resource == SubResource::Spec {
            let mut decoded = work::decode_spec(&original).unwrap();
            if let Some(time) = original.time_of("deletiontimestamp").unwrap() {
                decoded.metadata.deletion_timestamp =
                    Some(k8s_openapi::apimachinery::pkg::apis::meta::v1::Time(time));
            }
            let again = work::encode_spec(form, stamp, &original.source, action, &decoded).unwrap();
            let topic =
                Dialect::Enhancement.topic_of_source("sd3ded4v-mwrs-hub-controller", &again);
            (
                again,
                topic,
                "/sources/sd3ded4v-mwrs-hub-controller/clusters/cluster1/spec",
            )
        } else {
            let mut decoded = work::decode_status(&original).unwrap();
            let labels = decoded.metadata.labels.get_or_insert_default();
            labels.insert(
                SOURCE_LABEL.to_owned(),
                "sd3ded4v-mwrs-hub-controller".to_owned(),
            );
            let mut again =
                work::encode_status(form, stamp, &original.source, action, "", &decoded).unwrap();
            let topic = Dialect::Enhancement.topic_of_agent("cluster1", &again);
            // Which source a status is for: the topic tells, and the extension does no harm.
            again.extensions.remove("originalsource");
            (
                again,
                topic,
                "/sources/sd3ded4v-mwrs-hub-controller/clusters/cluster1/status",
            )
        };
        assert_eq!(topic.unwrap(), expected_topic, "{name}");
        let data = |event: &Event| -> Value {
            if event.data.is_empty() {
                Value::Null
            } else {
                serde_json::from_slice(&event.data).unwrap()
            }
        };
        assert_eq!(data(&again), data(&original), "{name}");
        let without_data = |mut event: Event| {
            event.data = Bytes::new();
            event
        };
        assert_eq!(without_data(again), without_data(original), "{name}");
    }
}

/// The schema shows an object where the example shows a list.
#[test]
fn both_shapes_of_the_status_of_a_bundle_are_read() {
    let examples = examples();
    let (_, example) = examples
        .iter()
        .find(|(name, _)| name == "manifestbundle-status-update-request.json")
        .unwrap();
    let list = work::decode_status(&event(example)).unwrap().status;
    let mut object = example.clone();
    let manifests = object["data"]["resourceStatus"].take();
    object["data"]["resourceStatus"] = serde_json::json!({"manifestConditions": manifests});
    let object = work::decode_status(&event(&object)).unwrap().status;
    assert_eq!(list, object);
    assert_eq!(list.unwrap().resource_status.manifests.len(), 1);
}
