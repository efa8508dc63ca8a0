//! Captures of sdk-go.

#![allow(dead_code, unreachable_pub, reason = "each test program uses its part")]

use std::path::Path;

use bytes::Bytes;
use muster_cloudevents::{Dialect, Message, Topics};
use serde_json::Value;

pub fn file(name: &str) -> Value {
    let path = Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("tests/wire")
        .join(name);
    let text = std::fs::read_to_string(path).unwrap();
    serde_json::from_str(&text).unwrap()
}

/// A captured message.
pub struct Capture {
    pub name: String,
    pub sender: String,
    pub topic: String,
    pub message: Message,
}

pub fn captures() -> Vec<Capture> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/wire");
    let mut names: Vec<_> = std::fs::read_dir(folder)
        .unwrap()
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .collect();
    names.sort();
    let captures: Vec<_> = names
        .into_iter()
        .filter(|name| name != "README.md")
        .filter(|name| file(name)["mqtt"]["packet"] == "PUBLISH")
        .map(capture)
        .collect();
    assert_eq!(captures.len(), 25, "the captures of events on a socket");
    captures
}

pub fn capture(name: String) -> Capture {
    let file = file(&name);
    let mqtt = &file["mqtt"];
    let text = |value: &Value| value.as_str().unwrap().to_owned();
    let properties = mqtt["user_properties_in_order"].as_array().unwrap();
    Capture {
        sender: text(&file["sender"]),
        topic: text(&mqtt["topic"]),
        message: Message {
            content_type: mqtt["content_type"].as_str().map(ToOwned::to_owned),
            properties: properties
                .iter()
                .map(|pair| (text(&pair[0]), text(&pair[1])))
                .collect(),
            payload: Bytes::from(text(&file["payload_raw"])),
        },
        name,
    }
}

pub fn dialect() -> Dialect {
    Dialect::SdkGo(Topics {
        source_events: "sources/hub-one/clusters/+/sourceevents".to_owned(),
        agent_events: "sources/hub-one/clusters/+/agentevents".to_owned(),
        source_broadcast: Some("sources/+/sourcebroadcast".to_owned()),
        agent_broadcast: Some("clusters/+/agentbroadcast".to_owned()),
    })
}
