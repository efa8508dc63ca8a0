//! Whole conversations of sdk-go, with muster in the place of either side: what it answers is what
//! sdk-go answered.

#![allow(clippy::unwrap_used, clippy::panic, reason = "tests fail by panicking")]

use std::collections::BTreeMap;

use muster_api::work::{ManifestWork, ManifestWorkSpec, ManifestWorkStatus};
use muster_cloudevents::work::{self, Form, WorkCodec};
use muster_cloudevents::{
    Agent, Dropped, Event, Message, Outgoing, Received, Source, Stamp, extension,
};

mod support;

use support::{capture, dialect};

fn source() -> Source<WorkCodec> {
    let codec = WorkCodec(Form::Bundles);
    Source::new("hub-one", dialect(), codec, Box::new(Stamp::now)).unwrap()
}

fn agent() -> Agent<WorkCodec> {
    let codec = WorkCodec(Form::Bundles);
    let stamps = Box::new(Stamp::now);
    Agent::new("edge-a-work-agent", "edge-a", dialect(), codec, stamps).unwrap()
}

fn event(name: &str) -> Event {
    Event::try_from(capture(name.to_owned()).message).unwrap()
}

fn message(name: &str) -> Message {
    capture(name.to_owned()).message
}

/// The work that a source had when it sent this.
fn work_of_source(name: &str) -> ManifestWork {
    let event = event(name);
    let mut work = work::decode_spec(&event).unwrap();
    work.metadata = serde_json::from_str(event.get(extension::METADATA).unwrap()).unwrap();
    work
}

/// The work that an agent had when it sent this.
fn work_of_agent(name: &str) -> ManifestWork {
    let event = event(name);
    let mut work = work::decode_status(&event).unwrap();
    work.metadata = serde_json::from_str(event.get(extension::METADATA).unwrap()).unwrap();
    work
}

/// What is of the moment.
const OF_THE_MOMENT: [&str; 4] = ["ce-id", "ce-time", "ce-sequenceid", "ce-deletiontimestamp"];

/// That the answers are those of sdk-go, field by field, save for what is of the moment.
fn same(answers: &[Outgoing], captures: &[&str]) {
    assert_eq!(answers.len(), captures.len(), "{answers:?}");
    for (answer, name) in answers.iter().zip(captures) {
        let expected = capture((*name).to_owned());
        assert_eq!(answer.topic, expected.topic, "{name}");
        assert_eq!(answer.message.content_type, expected.message.content_type);
        assert_eq!(answer.message.payload, expected.message.payload, "{name}");
        let fields = |message: &Message| -> BTreeMap<String, String> {
            let properties = message.properties.iter().cloned();
            properties
                .map(|(name, value)| {
                    let moment = OF_THE_MOMENT.contains(&name.as_str());
                    (name, if moment { String::new() } else { value })
                })
                .collect()
        };
        assert_eq!(fields(&answer.message), fields(&expected.message), "{name}");
    }
}

fn answers(received: Received<ManifestWork>) -> Vec<Outgoing> {
    match received {
        Received::Answers(answers) => answers,
        Received::Resource(work) => panic!("{work:?}"),
    }
}

#[test]
fn a_source_answers_agents_as_sdk_go_does() {
    let current = || work_of_source("specresync-response.json");
    for (request, own, complete, expected) in [
        ("specresync-request-empty.json", vec![], false, vec![]),
        (
            "specresync-request-empty.json",
            vec![current()],
            true,
            vec!["specresync-response.json"],
        ),
        (
            "specresync-request-current.json",
            vec![current()],
            true,
            vec![],
        ),
        (
            "specresync-request.json",
            vec![work_of_source("specresync-response-newer.json")],
            true,
            vec![
                "specresync-response-newer.json",
                "specresync-response-orphan-delete.json",
            ],
        ),
        (
            "specresync-request-unversioned.json",
            vec![work_of_source("specresync-response-unversioned.json")],
            true,
            vec!["specresync-response-unversioned.json"],
        ),
        // Its store may not be filled yet: nothing is deleted.
        ("specresync-request-lost.json", vec![], false, vec![]),
    ] {
        let received = source().receive(message(request), |cluster| {
            assert_eq!(cluster, "edge-a");
            (own, complete)
        });
        same(&answers(received.unwrap()), &expected);
    }
}

#[test]
fn an_agent_answers_sources_as_sdk_go_does() {
    for (request, own, expected) in [
        (
            "statusresync-request-broadcast-empty.json",
            vec![work_of_agent("statusresync-response-broadcast.json")],
            vec!["statusresync-response-broadcast.json"],
        ),
        (
            "statusresync-request-broadcast.json",
            vec![work_of_agent("statusresync-response-broadcast.json")],
            vec!["statusresync-response-broadcast.json"],
        ),
        (
            "statusresync-request-targeted.json",
            vec![work_of_agent("statusresync-response.json")],
            vec!["statusresync-response.json"],
        ),
        (
            "statusresync-request-targeted-no-answer.json",
            vec![work_of_agent("status-update-second.json")],
            vec![],
        ),
    ] {
        let received = agent().receive(message(request), || own);
        same(&answers(received.unwrap()), &expected);
    }
}

/// Works of others are nobody's business; upstream's agent answers with all it has.
#[test]
fn an_agent_answers_a_source_about_its_own_works_only() {
    let mut other = work_of_agent("statusresync-response-broadcast.json");
    let labels = other.metadata.labels.as_mut().unwrap();
    labels.insert(work::SOURCE_LABEL.to_owned(), "hub-two".to_owned());
    let request = message("statusresync-request-broadcast-empty.json");
    let received = agent().receive(request, || vec![other]).unwrap();
    assert_eq!(answers(received), []);
}

#[test]
fn both_sides_ask_as_sdk_go_does() {
    let versions = |name: &str| -> Vec<ManifestWork> {
        let asked: muster_cloudevents::resync::ResourceVersions =
            serde_json::from_slice(&event(name).data).unwrap();
        let works = asked.versions.into_iter().map(|asked| {
            let mut work = ManifestWork::new("any", ManifestWorkSpec::default());
            work.metadata.uid = Some(asked.id);
            work.metadata.generation = Some(asked.version);
            work
        });
        works.collect()
    };
    for name in [
        "specresync-request-empty.json",
        "specresync-request-current.json",
        "specresync-request.json",
        "specresync-request-unversioned.json",
        "specresync-request-lost.json",
    ] {
        same(&[agent().ask(&versions(name)).unwrap()], &[name]);
    }
    same(
        &source().ask("", &[]).unwrap(),
        &["statusresync-request-broadcast-empty.json"],
    );
    let mut without_status = work_of_source("specresync-response-newer.json");
    without_status.status = Some(ManifestWorkStatus::default());
    same(
        &source().ask("", &[without_status]).unwrap(),
        &["statusresync-request-broadcast.json"],
    );
}

/// Each of these stops nothing but itself.
#[test]
fn what_is_of_no_use_is_dropped_with_a_reason() {
    let change = |name: &str, property: &str, value: Option<&str>| {
        let mut message = message(name);
        message.properties.retain(|(known, _)| known != property);
        let value = value.map(|value| (property.to_owned(), value.to_owned()));
        message.properties.extend(value);
        message
    };
    let dropped = |message: Message| match agent().receive(message, Vec::new) {
        Err(dropped) => dropped,
        Ok(received) => panic!("{received:?}"),
    };
    let create = "spec-create.json";
    let kind = "io.open-cluster-management.works.v1alpha1.manifestbundles";
    for (message, reason) in [
        (Message::default(), "no_event"),
        (change(create, "ce-type", Some("x")), "type"),
        (
            change(create, "ce-type", Some("a.v1.b.spec.create_request")),
            "type",
        ),
        (
            change(
                create,
                "ce-type",
                Some(&format!("{kind}.status.update_request")),
            ),
            "type",
        ),
        (
            change(create, "ce-clustername", Some("edge-b")),
            "elsewhere",
        ),
        (change(create, "ce-resourceid", None), "payload"),
        (change(create, "ce-resourceversion", Some("x")), "payload"),
        (change(create, "ce-metadata", Some("{")), "payload"),
        (
            Message {
                payload: bytes::Bytes::from_static(b"no json"),
                ..message(create)
            },
            "payload",
        ),
        (
            Message {
                payload: bytes::Bytes::from_static(b"{\"manifests\":[]}"),
                ..message(create)
            },
            "payload",
        ),
        (
            Message {
                payload: bytes::Bytes::from_static(b"7"),
                ..message("statusresync-request-broadcast.json")
            },
            "request",
        ),
    ] {
        assert_eq!(dropped(message).reason(), reason);
    }
    let other = change("status-update.json", "ce-originalsource", Some("hub-two"));
    let dropped = source().receive(other, |_| (Vec::new(), true)).unwrap_err();
    assert!(matches!(dropped, Dropped::Elsewhere(whose) if whose == "hub-two"));
}

/// A work goes to its agent and its status comes back, over nothing but messages.
#[test]
fn a_work_and_its_status_make_the_round() {
    let (mut source, mut agent) = (source(), agent());
    let work = work_of_source("spec-create.json");
    let sent = source
        .send(muster_cloudevents::Action::CreateRequest, &work)
        .unwrap();
    let Received::Resource(mut arrived) = agent.receive(sent.message, Vec::new).unwrap() else {
        panic!("no work");
    };
    arrived.status = work_of_agent("status-update.json").status;
    let sent = agent
        .send(muster_cloudevents::Action::UpdateRequest, &arrived)
        .unwrap();
    let back = source
        .receive(sent.message, |_| (Vec::new(), true))
        .unwrap();
    let Received::Resource(back) = back else {
        panic!("no status");
    };
    assert_eq!(back.metadata.uid, work.metadata.uid);
    assert_eq!(back.status, arrived.status);
}
