//! Whole conversations of sdk-go, with muster in the place of either side: what it answers is what
//! sdk-go answered.

#![allow(clippy::unwrap_used, clippy::panic, reason = "tests fail by panicking")]

use std::collections::BTreeMap;

use muster_api::work::{ManifestWork, ManifestWorkStatus};
use muster_cloudevents::protocol::Codec;
use muster_cloudevents::resync::{
    SpecAnswer, StatusHash, StatusHashes, answer_specs, answer_statuses,
};
use muster_cloudevents::sequence::Sequence;
use muster_cloudevents::work::{self, Form, WorkCodec};
use muster_cloudevents::{
    Action, Agent, Dropped, Event, Message, Outgoing, Source, ToAgent, ToSource, extension,
};

mod support;

use support::{capture, dialect};

const CODEC: WorkCodec = WorkCodec(Form::Bundles);

fn source() -> Source<WorkCodec> {
    Source::new("hub-one", dialect(), CODEC).unwrap()
}

fn agent() -> Agent<WorkCodec> {
    Agent::new("edge-a-work-agent", "edge-a", dialect(), CODEC).unwrap()
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

/// What a source with these works answers.
fn source_answers(request: &str, own: &[ManifestWork], complete: bool) -> Vec<Outgoing> {
    let (source, request) = (source(), capture(request.to_owned()));
    let heard = source.receive(&request.topic, request.message).unwrap();
    let ToSource::Asked { cluster, reported } = heard else {
        panic!("{heard:?}");
    };
    assert_eq!(cluster, "edge-a");
    let answers = answer_specs(own, &reported, complete).into_iter();
    let sent = answers.map(|answer| match answer {
        SpecAnswer::Send(work) => source.send(Action::ResyncResponse, work).unwrap(),
        SpecAnswer::Forget(orphan) => source.forget(&cluster, orphan).unwrap(),
    });
    sent.collect()
}

/// What an agent with these works answers.
fn agent_answers(request: &str, own: &[ManifestWork]) -> Vec<Outgoing> {
    let (agent, request) = (agent(), capture(request.to_owned()));
    let heard = agent.receive(&request.topic, request.message).unwrap();
    let ToAgent::Asked { known, .. } = heard else {
        panic!("{heard:?}");
    };
    let answers = answer_statuses(own, &known, |work| CODEC.status_hash(work)).into_iter();
    let sent = answers.map(|work| {
        let action = Action::ResyncResponse;
        agent.send(action, &agent.next_sequence_id(), work).unwrap()
    });
    sent.collect()
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
        same(&source_answers(request, &own, complete), &expected);
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
        same(&agent_answers(request, &own), &expected);
    }
}

#[test]
fn both_sides_ask_as_sdk_go_does() {
    for name in [
        "specresync-request-empty.json",
        "specresync-request-current.json",
        "specresync-request.json",
        "specresync-request-unversioned.json",
        "specresync-request-lost.json",
    ] {
        let ToSource::Asked { reported, .. } = source()
            .receive("clusters/edge-a/agentbroadcast", message(name))
            .unwrap()
        else {
            panic!("{name} is a request");
        };
        same(&agent().ask(&reported).unwrap(), &[name]);
    }
    same(
        &source().ask("", StatusHashes::default()).unwrap(),
        &["statusresync-request-broadcast-empty.json"],
    );
    let mut without_status = work_of_source("specresync-response-newer.json");
    without_status.status = Some(ManifestWorkStatus::default());
    let hash = StatusHash {
        id: without_status.metadata.uid.clone().unwrap(),
        hash: CODEC.status_hash(&without_status),
    };
    let hashes = vec![hash];
    same(
        &source().ask("", StatusHashes { hashes }).unwrap(),
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
    let topic = "sources/hub-one/clusters/edge-a/sourceevents";
    let dropped = |message: Message| match agent().receive(topic, message) {
        Err(dropped) => dropped,
        Ok(heard) => panic!("{heard:?}"),
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
    let back = "sources/hub-one/clusters/edge-a/agentevents";
    let other = change("status-update.json", "ce-originalsource", Some("hub-two"));
    let dropped = source().receive(back, other).unwrap_err();
    assert!(matches!(dropped, Dropped::Elsewhere(whose) if whose == "hub-two"));
}

/// Whoever may write to one topic only may not speak for others.
#[test]
fn who_an_event_is_of_is_who_may_write_to_its_topic() {
    let status = message("status-update.json");
    let topic = "sources/hub-one/clusters/edge-b/agentevents";
    let dropped = source().receive(topic, status).unwrap_err();
    let reason = "the event claims to be of \"edge-a\" and came by the topic of \"edge-b\"";
    assert_eq!(dropped.to_string(), reason);
    let asks = message("specresync-request.json");
    let topic = "clusters/edge-b/agentbroadcast";
    let dropped = source().receive(topic, asks).unwrap_err();
    assert_eq!(dropped.reason(), "imposter");
    for (name, topic) in [
        (
            "spec-create.json",
            "sources/hub-two/clusters/edge-a/sourceevents",
        ),
        (
            "statusresync-request-broadcast.json",
            "sources/hub-two/sourcebroadcast",
        ),
    ] {
        let dropped = agent().receive(topic, message(name)).unwrap_err();
        assert_eq!(dropped.reason(), "imposter");
    }
}

/// A work goes to its agent and its status comes back, over nothing but messages.
#[test]
fn a_work_and_its_status_make_the_round() {
    let (source, agent) = (source(), agent());
    let work = work_of_source("spec-create.json");
    let sent = source.send(Action::CreateRequest, &work).unwrap();
    let Ok(ToAgent::Spec(mut arrived)) = agent.receive(&sent.topic, sent.message) else {
        panic!("no work");
    };
    arrived.status = work_of_agent("status-update.json").status;
    let id = agent.next_sequence_id();
    let sent = agent.send(Action::UpdateRequest, &id, &arrived).unwrap();
    let heard = source.receive(&sent.topic, sent.message).unwrap();
    let ToSource::Status { resource, mark } = heard else {
        panic!("{heard:?}");
    };
    assert_eq!(resource.metadata.uid, work.metadata.uid);
    assert_eq!(resource.status, arrived.status);
    assert_eq!(mark.sequence_id, Some(id));
    assert_eq!(mark.hash, Some(CODEC.status_hash(&arrived)));
}

/// C118: a restarted agent whose clock was set back is not taken for one that tells old news.
#[test]
fn what_an_agent_has_said_before_is_older_than_what_it_says_next() {
    let ahead = Sequence::new().next(4_000_000_000_000);
    let agent = agent();
    agent.begin_after(&ahead);
    let next = agent.next_sequence_id();
    assert_eq!(
        muster_cloudevents::sequence::is_newer(&ahead, &next),
        Ok(true)
    );
}

/// A work with a trace has it in its events, both ways and in both dialects' forms.
#[test]
fn a_trace_goes_along() {
    let mut work = work_of_source("spec-create.json");
    let trace = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01";
    let annotations = work.metadata.annotations.get_or_insert_default();
    annotations.insert("muster.dev/traceparent".to_owned(), trace.to_owned());
    for form in [Form::Bundles, Form::Bundle] {
        let codec = WorkCodec(form);
        let stamp = muster_cloudevents::Stamp::now;
        let event = codec.encode_spec(stamp(), "hub-one", Action::CreateRequest, &work);
        let event = event.unwrap();
        assert_eq!(event.get(extension::TRACE_PARENT), Some(trace));
        assert_eq!(event.get(extension::TRACE_STATE), None);
        let arrived = codec.decode_spec(&event).unwrap();
        let event = codec.encode_status(stamp(), "a", Action::UpdateRequest, "1", &arrived);
        assert_eq!(event.unwrap().get(extension::TRACE_PARENT), Some(trace));
    }
}
