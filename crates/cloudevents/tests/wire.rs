//! Events as OCM's sdk-go put them on a socket, against ours.

#![allow(clippy::unwrap_used, clippy::panic, reason = "tests fail by panicking")]

use bytes::Bytes;
use muster_api::work::ManifestWork;
use muster_cloudevents::resync::{ResourceVersions, StatusHashes};
use muster_cloudevents::work::{self, Form};
use muster_cloudevents::{Action, Event, Message, Stamp, SubResource, sequence};
use serde_json::Value;
use std::collections::BTreeMap;

mod support;

use support::{Capture, capture, captures, dialect, file};

fn event(capture: &Capture) -> Event {
    Event::try_from(capture.message.clone()).unwrap()
}

fn stamp_of(event: &Event) -> Stamp {
    Stamp {
        id: event.id.clone(),
        time: event.time.as_deref().unwrap().parse().unwrap(),
    }
}

/// The properties as a set: Go writes them in any order.
fn set(message: &Message) -> BTreeMap<&str, &str> {
    let properties = message.properties.iter();
    properties
        .map(|(name, value)| (name.as_str(), value.as_str()))
        .collect()
}

/// M05 to M08: a message is decoded and encoded to the same one.
#[test]
fn every_message_is_an_event_and_back() {
    for capture in captures() {
        let event = event(&capture);
        let message = Message::from(&event);
        let name = &capture.name;
        assert_eq!(message.content_type, capture.message.content_type, "{name}");
        assert_eq!(message.payload, capture.message.payload, "{name}");
        assert_eq!(set(&message), set(&capture.message), "{name}");
        // The five that Go writes in order come in that order here, too.
        let head = |message: &Message| message.properties[..5].to_vec();
        assert_eq!(head(&message), head(&capture.message), "{name}");
    }
}

#[test]
fn every_event_has_its_topic() {
    let dialect = dialect();
    for capture in captures() {
        let event = event(&capture);
        let topic = match capture.sender.as_str() {
            "source" => dialect.topic_of_source("hub-one", &event),
            "agent" => dialect.topic_of_agent("edge-a", &event),
            other => panic!("{other}"),
        };
        assert_eq!(topic.unwrap(), capture.topic, "{}", capture.name);
    }
}

/// What the other side makes of an event, sent again, is the event.
#[test]
fn works_and_statuses_are_encoded_as_sdk_go_does() {
    let mut counts = [0; 2];
    for capture in captures() {
        let original = event(&capture);
        let event_type = original.event_type().unwrap();
        if event_type.is_resync_request() {
            continue;
        }
        let name = &capture.name;
        let again = if event_type.sub_resource == SubResource::Spec {
            counts[0] += 1;
            let decoded = work::decode_spec(&original).unwrap();
            assert_eq!(
                decoded.metadata.namespace.as_deref(),
                Some("edge-a"),
                "{name}"
            );
            if name == "specresync-response-orphan-delete.json" {
                let (uid, version) = (original.get("resourceid").unwrap(), 7);
                let stamp = Stamp {
                    time: original.get("deletiontimestamp").unwrap().parse().unwrap(),
                    ..stamp_of(&original)
                };
                let mut orphan =
                    work::encode_orphan(Form::Bundles, stamp, "hub-one", "edge-a", uid, version);
                orphan.time.clone_from(&original.time);
                orphan
            } else {
                encode_spec_again(&original, decoded)
            }
        } else {
            counts[1] += 1;
            let decoded = work::decode_status(&original).unwrap();
            encode_status_again(&original, decoded)
        };
        assert_eq!(
            std::str::from_utf8(&again.data).unwrap(),
            std::str::from_utf8(&original.data).unwrap(),
            "{name}"
        );
        assert_eq!(again, original, "{name}");
    }
    assert_eq!(counts, [9, 7], "specs and statuses");
}

/// As the source had it, whose own bookkeeping an agent takes off.
fn encode_spec_again(original: &Event, mut work: ManifestWork) -> Event {
    let meta: k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta =
        serde_json::from_str(original.get("metadata").unwrap()).unwrap();
    if let Some(time) = original.time_of("deletiontimestamp").unwrap() {
        work.metadata = meta;
        work.metadata.deletion_timestamp =
            Some(k8s_openapi::apimachinery::pkg::apis::meta::v1::Time(time));
    } else {
        work.metadata = meta;
    }
    let action = original.event_type().unwrap().action;
    work::encode_spec(Form::Bundles, stamp_of(original), "hub-one", action, &work).unwrap()
}

fn encode_status_again(original: &Event, mut work: ManifestWork) -> Event {
    work.metadata = serde_json::from_str(original.get("metadata").unwrap()).unwrap();
    let action = original.event_type().unwrap().action;
    work::encode_status(
        Form::Bundles,
        stamp_of(original),
        &original.source,
        action,
        original.get("sequenceid").unwrap(),
        &work,
    )
    .unwrap()
}

/// A10, A12: what an agent makes of what it gets.
#[test]
fn an_agent_knows_where_a_work_came_from_and_what_is_to_become_of_it() {
    let capture = |name: &str| event(&capture(name.to_owned()));
    let work = work::decode_spec(&capture("spec-create.json")).unwrap();
    let meta = &work.metadata;
    assert_eq!(meta.name.as_deref(), Some("demo-work"));
    assert_eq!(meta.generation, Some(1));
    assert_eq!(meta.resource_version, None);
    let labels = meta.labels.as_ref().unwrap();
    assert_eq!(labels[work::SOURCE_LABEL], "hub-one");
    assert_eq!(labels["team"], "blue");
    let annotations = meta.annotations.as_ref().unwrap();
    assert_eq!(
        annotations[work::DATA_TYPE_ANNOTATION],
        "io.open-cluster-management.works.v1alpha1.manifestbundles"
    );
    let executor = work.spec.executor.unwrap();
    assert_eq!(executor.subject.service_account.unwrap().name, "runner");

    let orphan = work::decode_spec(&capture("specresync-response-orphan-delete.json")).unwrap();
    assert_eq!(orphan.metadata.name, orphan.metadata.uid);
    assert!(orphan.metadata.deletion_timestamp.is_some());
    assert_eq!(
        orphan.metadata.finalizers.unwrap(),
        ["cluster.open-cluster-management.io/manifest-work-cleanup"]
    );
}

#[test]
fn requests_for_resync_are_read_and_written() {
    let mut count = 0;
    for capture in captures() {
        let event = event(&capture);
        let event_type = event.event_type().unwrap();
        if event_type.action != Action::ResyncRequest {
            continue;
        }
        count += 1;
        let again = if event_type.sub_resource == SubResource::Spec {
            let versions: ResourceVersions = serde_json::from_slice(&event.data).unwrap();
            serde_json::to_vec(&versions).unwrap()
        } else {
            let hashes: StatusHashes = serde_json::from_slice(&event.data).unwrap();
            serde_json::to_vec(&hashes).unwrap()
        };
        assert_eq!(again, event.data, "{}", capture.name);
    }
    assert_eq!(count, 9);
}

#[test]
fn hashes_are_those_of_go() {
    let vectors = file("status-hash-vectors.json");
    let vectors = vectors["vectors"].as_array().unwrap().clone();
    assert_eq!(vectors.len(), 12);
    for vector in vectors {
        let text = vector["hashed_text"].as_str().unwrap();
        let value: Value = serde_json::from_str(text).unwrap();
        let name = &vector["name"];
        assert_eq!(
            muster_cloudevents::canonical::canonical_json(&value),
            text,
            "{name}"
        );
        let hash = muster_cloudevents::canonical::canonical_hash(&value);
        assert_eq!(hash, vector["sha256_hex"], "{name}");
    }
}

/// S07 to S09.
#[test]
fn sequence_ids_compare_as_in_go() {
    let vectors = file("sequenceid-vectors.json");
    for vector in vectors["vectors"].as_array().unwrap() {
        let text = |name: &str| vector[name].as_str().unwrap();
        let newer = sequence::is_newer(text("last_stored"), text("incoming"));
        if vector["error"].is_null() {
            assert_eq!(newer.unwrap(), vector["incoming_is_newer"], "{vector}");
        } else {
            assert!(newer.is_err(), "{vector}");
        }
    }
    for decoded in vectors["decoded"].as_array().unwrap() {
        let made = sequence::Sequence::new().next(decoded["unix_ms"].as_i64().unwrap());
        assert_eq!(made, decoded["id"].as_str().unwrap());
    }
}

/// S10.
#[test]
fn uids_are_those_of_go() {
    for vector in file("uid-vectors.json")["vectors"].as_array().unwrap() {
        let text = |name: &str| vector[name].as_str().unwrap();
        let uid = work::uid(text("source"), text("namespace"), text("name"));
        assert_eq!(uid, text("uid"));
    }
}

/// The form that nobody sends and everybody accepts.
#[test]
fn structured_events_are_read() {
    for name in ["spec-create", "spec-delete", "status-update"] {
        let file = file(&format!("structured-{name}.json"));
        let message = Message {
            content_type: Some("application/cloudevents+json".to_owned()),
            properties: Vec::new(),
            payload: Bytes::from(file["event"].to_string()),
        };
        let event = Event::try_from(message).unwrap();
        assert_eq!(event.source, file["event"]["source"].as_str().unwrap());
        let version = event.require_integer("resourceversion").unwrap();
        assert_eq!(version, file["event"]["resourceversion"].as_i64().unwrap());
        match name {
            "status-update" => drop(work::decode_status(&event).unwrap()),
            _ => drop(work::decode_spec(&event).unwrap()),
        }
    }
}
