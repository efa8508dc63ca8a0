//! A source and an agent for a resource of their own.
//!
//! The source wants a cluster to be greeted; the agent greets, and answers how often it has. Here
//! both are on a bus in memory: `Mqtt::new(MqttOptions::…)` in its place joins them by a broker.
//!
//! `cargo run -p muster-cloudevents --example greetings`

use std::sync::Arc;

use muster_cloudevents::bus::{Bus, Loopback};
use muster_cloudevents::client::{AgentClient, ClientOptions, SourceClient};
use muster_cloudevents::document::{Document, DocumentCodec};
use muster_cloudevents::memory::MemoryStore;
use muster_cloudevents::{Agent, DataType, Dialect, Source};
use serde::{Deserialize, Serialize};

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
struct Greeting {
    text: String,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
struct Greeted {
    answer: String,
}

type Store = MemoryStore<Greeting, Greeted>;

fn codec() -> DocumentCodec<Greeting, Greeted> {
    DocumentCodec::new(DataType::new("org.example", "v1", "greetings"))
}

/// Greets, and stops greeting, as the source wants; for ever.
async fn agent(bus: &dyn Bus, cluster: &str) -> Result<(), Box<dyn std::error::Error>> {
    let store = Arc::new(Store::new(codec()));
    let agent = Agent::new("greeter", cluster, Dialect::Enhancement, codec())?;
    let client = AgentClient::new(agent, Arc::clone(&store), ClientOptions::default());
    let mut changes = store.changes();
    let _subscription = client.subscribe(bus);
    loop {
        for greeting in store.list() {
            let uid = &greeting.uid;
            if greeting.deleting.is_some() && !greeting.gone {
                println!("{cluster}: no greeting any more");
                store.set_gone(uid);
                client.changed(uid);
            } else if let Some(Greeting { text }) = &greeting.spec {
                let answer = format!("{text} yourself");
                let status = Some(Greeted { answer });
                if greeting.status != status {
                    println!("{cluster}: {text}");
                    store.change(uid, |greeting| greeting.status = status);
                    client.changed(uid);
                }
            }
        }
        changes.changed().await?;
    }
}

/// Has a cluster greeted, says something else, and then no more.
async fn source(bus: &dyn Bus, cluster: &str) -> Result<(), Box<dyn std::error::Error>> {
    let store = Arc::new(Store::new(codec()));
    let source = Source::new("hub", Dialect::Enhancement, codec())?;
    let client = SourceClient::new(source, Arc::clone(&store), ClientOptions::default());
    let mut changes = store.changes();
    let _subscription = client.subscribe(bus);
    for text in ["hello", "good morning"] {
        let greeting = Greeting {
            text: text.to_owned(),
        };
        if !store.set_spec("first", greeting.clone()) {
            store.put(Document::new("first", cluster, greeting));
        }
        client.changed("first");
        let answer = format!("{text} yourself");
        let answered = |store: &Store| {
            let status = store.document("first")?.status.clone()?;
            (status.answer == answer).then_some(())
        };
        while answered(&store).is_none() {
            changes.changed().await?;
        }
        println!("hub: {cluster} says {answer:?}");
    }
    store.delete("first");
    client.changed("first");
    while store.document("first").is_some() {
        changes.changed().await?;
    }
    println!("hub: {cluster} has forgotten it");
    Ok(())
}

#[tokio::main]
pub(crate) async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let bus = Loopback::new();
    tokio::select! {
        ended = agent(&bus, "edge-a") => ended,
        done = source(&bus, "edge-a") => done,
    }
}
