//! The topic rules on the wire: the embedded broker, and mosquitto with the files of
//! `deploy/mosquitto`, do what [`Access`] says, topic by topic. The rules of `deploy/emqx` are read
//! as EMQX documents them.

#![allow(
    clippy::unwrap_used,
    clippy::panic,
    reason = "helpers of tests fail by panicking"
)]

mod support;

use std::net::SocketAddr;
use std::sync::Arc;

use muster_broker::{Broker, BrokerSettings, Identities, Limits};
use muster_cloudevents::access::{Access, Principal};
use muster_cloudevents::{Dialect, Topics};
use rumqttc::v5::mqttbytes::v5::{ConnectReturnCode, PubAckReason};
use rustls::ClientConfig;
use support::cheap_hash;
use support::client::{Client, Hello};
use support::mosquitto::Mosquitto;

/// Who asks: the source `hub1`, the agent of `c1`.
const SOURCE: &str = "hub1";
const AGENT: &str = "c1";
const OPERATOR: &str = "operator";
const PASSWORD: &str = "open sesame";

/// The topics of the tests of [`Access`], as far as they are topics, with the names next to theirs.
const TOPICS: &[&str] = &[
    "sources/hub1/clusters/c1/sourceevents",
    "sources/hub1/clusters/c10/sourceevents",
    "sources/hub10/clusters/c1/sourceevents",
    "sources/hub10/clusters/c10/sourceevents",
    "sources/hub1/sourcebroadcast",
    "sources/hub10/sourcebroadcast",
    "sources/hub1/clusters/c1/agentevents",
    "sources/hub10/clusters/c1/agentevents",
    "sources/hub1/clusters/c10/agentevents",
    "sources/hub10/clusters/c10/agentevents",
    "clusters/c1/agentbroadcast",
    "clusters/c10/agentbroadcast",
    "sources/hub1/clusters/c1/agentevents/more",
    "/sources/hub1/clusters/c1/agentevents",
    "sources/hub1/clusters/c1",
    "sources/hub1/clusters/c1/else",
    "clusters/c1/agentbroadcast/more",
    "clusters/c1/else",
    // Names of one side where the other side's go.
    "sources/c1/clusters/c1/sourceevents",
    "sources/hub1/clusters/hub1/agentevents",
    "sources/c1/sourcebroadcast",
    "clusters/hub1/agentbroadcast",
    "/sources/hub1/clusters/c1/spec",
    "/sources/hub10/clusters/c1/spec",
    "/sources/hub1/clusters/c10/spec",
    "/sources/hub1/clusters/statusresync",
    "/sources/hub10/clusters/statusresync",
    "/sources/hub1/clusters/c1/status",
    "/sources/hub10/clusters/c1/status",
    "/sources/hub1/clusters/c10/status",
    "/sources/clusters/c1/specresync",
    "/sources/clusters/c10/specresync",
    "/sources/hub1/clusters/presence",
    "/sources/hub10/clusters/presence",
    "/sources/clusters/c1/presence",
    "/sources/clusters/c10/presence",
    "/sources/hub1/clusters/c1/else",
    "/sources/clusters/c1/else",
    "something/else",
];

/// Their filters, likewise.
const FILTERS: &[&str] = &[
    "sources/hub1/clusters/+/agentevents",
    "sources/hub1/clusters/c10/agentevents",
    "sources/hub10/clusters/+/agentevents",
    "sources/+/clusters/+/agentevents",
    "clusters/+/agentbroadcast",
    "clusters/c10/agentbroadcast",
    "sources/+/clusters/c1/sourceevents",
    "sources/hub1/clusters/c1/sourceevents",
    "sources/hub1/clusters/c10/sourceevents",
    "sources/+/clusters/+/sourceevents",
    "sources/+/sourcebroadcast",
    "sources/hub10/sourcebroadcast",
    "$share/g/sources/+/clusters/c1/sourceevents",
    "$share/g/sources/+/clusters/c10/sourceevents",
    "$share/g/sources/hub1/clusters/+/agentevents",
    "#",
    "+/+/+/+/agentevents",
    "sources/#",
    "sources/hub1/clusters/c1/#",
    "sources/hub1/clusters/c1/agentevents/#",
    "sources/+/sourcebroadcast/#",
    "sources/hub1/clusters/c1/+",
    "/sources/hub1/clusters/+/status",
    "/sources/hub10/clusters/+/status",
    "/sources/clusters/+/specresync",
    "/sources/+/clusters/c1/spec",
    "/sources/+/clusters/c10/spec",
    "/sources/+/clusters/statusresync",
    "/sources/clusters/+/presence",
    "/sources/+/clusters/presence",
    "/sources/+/clusters/+",
    "/sources/#",
    "/sources/+/+/specresync",
];

fn sdk_go() -> Access {
    Access {
        dialect: Dialect::SdkGo(Topics {
            source_events: "sources/+/clusters/+/sourceevents".to_owned(),
            agent_events: "sources/+/clusters/+/agentevents".to_owned(),
            source_broadcast: Some("sources/+/sourcebroadcast".to_owned()),
            agent_broadcast: Some("clusters/+/agentbroadcast".to_owned()),
        }),
    }
}

fn enhancement() -> Access {
    Access {
        dialect: Dialect::Enhancement,
    }
}

fn principal(name: &str) -> Principal {
    match name {
        SOURCE => Principal::Source(name.to_owned()),
        AGENT => Principal::Agent(name.to_owned()),
        _ => Principal::Everything,
    }
}

/// A broker, and the rules that it should have.
struct Place {
    rules: Vec<Access>,
    agents: SocketAddr,
    sources: SocketAddr,
    tls: Option<Arc<ClientConfig>>,
    /// Whether a will is refused that may not be published, and a subscription that could match too
    /// much; else, each message is.
    refuses: bool,
}

impl Place {
    async fn open(&self, name: &str) -> Client {
        let address = if name == AGENT {
            self.agents
        } else {
            self.sources
        };
        match &self.tls {
            None => Client::open(address).await,
            Some(config) => Client::open_tls(address, Arc::clone(config)).await.unwrap(),
        }
    }

    async fn connect(&self, name: &str) -> Client {
        let mut client = self.open(name).await;
        let welcome = client.hello(Hello::user(name, PASSWORD)).await;
        assert_eq!(welcome.code, ConnectReturnCode::Success);
        client
    }

    fn may_publish(&self, name: &str, topic: &str) -> bool {
        let principal = principal(name);
        self.rules
            .iter()
            .any(|rules| rules.may_publish(&principal, topic))
    }

    fn may_subscribe(&self, name: &str, filter: &str) -> bool {
        let principal = principal(name);
        self.rules
            .iter()
            .any(|rules| rules.may_subscribe(&principal, filter))
    }

    async fn check(&self) {
        for name in [SOURCE, AGENT] {
            self.check_publish(name).await;
            self.check_will(name).await;
            self.check_subscribe(name).await;
        }
        for name in [SOURCE, AGENT] {
            let wrong = Hello::user(name, "something else");
            let refused = self.open(name).await.hello(wrong).await;
            assert_ne!(refused.code, ConnectReturnCode::Success, "{name}");
            let refused = self.open(name).await.hello(Hello::anonymous(name)).await;
            assert_ne!(refused.code, ConnectReturnCode::Success, "{name}");
        }
    }

    async fn check_publish(&self, name: &str) {
        let mut client = self.connect(name).await;
        for topic in TOPICS {
            let answer = client.publish(topic, "x").await;
            let refused = answer == PubAckReason::NotAuthorized;
            assert_eq!(
                !refused,
                self.may_publish(name, topic),
                "{name}, {topic}: {answer:?}"
            );
        }
    }

    /// A will is refused, or never published.
    async fn check_will(&self, name: &str) {
        let mut operator = self.connect(OPERATOR).await.reads("#").await;
        for topic in TOPICS {
            let hello = Hello::user(name, PASSWORD).will(topic, "will");
            let mut client = self.open(name).await;
            let answer = client.hello(hello).await.code;
            let allowed = self.may_publish(name, topic);
            if allowed || !self.refuses {
                assert_eq!(answer, ConnectReturnCode::Success, "{name}, {topic}");
                client.die().await;
            } else {
                assert_eq!(answer, ConnectReturnCode::NotAuthorized, "{name}, {topic}");
            }
            operator.publish("end", "end").await;
            if allowed {
                assert_eq!(operator.text().await, "will", "{name}, {topic}");
            }
            assert_eq!(operator.text().await, "end", "{name}, {topic}");
        }
    }

    /// Subscribes to each filter, has messages sent to all topics, and looks which arrive.
    async fn check_subscribe(&self, name: &str) {
        let mut operator = self.connect(OPERATOR).await;
        // What the client may read, and gets as the last message.
        let end = match (&self.rules[0].dialect, name) {
            (Dialect::SdkGo(_), SOURCE) => "clusters/c77/agentbroadcast",
            (Dialect::SdkGo(_), _) => "sources/hub77/sourcebroadcast",
            (Dialect::Enhancement, SOURCE) => "/sources/clusters/c77/specresync",
            (Dialect::Enhancement, _) => "/sources/hub77/clusters/statusresync",
        };
        for filter in FILTERS {
            let mut client = self.connect(name).await.reads(end).await;
            let answer = client.subscribe(filter).await;
            let granted = format!("{answer:?}").starts_with("Success");
            let allowed = self.may_subscribe(name, filter);
            assert_eq!(
                granted,
                allowed || !self.refuses,
                "{name}, {filter}: {answer:?}"
            );
            for topic in TOPICS.iter().chain([&end]) {
                operator.publish(topic, topic).await;
            }
            let mut arrived = Vec::new();
            loop {
                let text = client.text().await;
                if text == end {
                    break;
                }
                arrived.push(text);
            }
            let plain = filter.trim_start_matches("$share/g/");
            let mut expected = TOPICS.to_vec();
            expected.retain(|topic| {
                let matches = mqtt5::topic_matches_filter(topic, plain);
                granted && matches && self.may_subscribe(name, topic)
            });
            assert_eq!(arrived, expected, "{name}, {filter}");
        }
    }
}

#[tokio::test]
async fn the_embedded_broker_has_the_rules_of_a_dialect() {
    for rules in [sdk_go(), enhancement()] {
        let hash = cheap_hash(PASSWORD);
        let mut identities = Identities::default();
        for name in [SOURCE, AGENT, OPERATOR] {
            identities = identities.user(name, &hash, principal(name)).unwrap();
        }
        let broker = Broker::start(BrokerSettings {
            listen: SocketAddr::from(([127, 0, 0, 1], 0)),
            tls: None,
            identities,
            access: rules.clone(),
            limits: Limits::default(),
        });
        let broker = broker.await.unwrap();
        let place = Place {
            rules: vec![rules],
            agents: broker.address(),
            sources: broker.address(),
            tls: None,
            refuses: true,
        };
        place.check().await;
    }
}

#[tokio::test]
async fn mosquitto_has_the_rules_of_both_dialects() {
    let users = [SOURCE, OPERATOR];
    let Some(mosquitto) = Mosquitto::start(&[AGENT], &users, PASSWORD).await else {
        eprintln!("skipped: no mosquitto here; tests/parts/provide gets it or tells how to");
        return;
    };
    let place = Place {
        rules: vec![sdk_go(), enhancement()],
        agents: mosquitto.agents,
        sources: mosquitto.sources,
        tls: Some(mosquitto.ca.client(None)),
        refuses: false,
    };
    place.check().await;
    // Users are known where they belong only.
    let config = mosquitto.ca.client(None);
    let mut stranger = Client::open_tls(mosquitto.agents, config).await.unwrap();
    let refused = stranger.hello(Hello::user(SOURCE, PASSWORD)).await;
    assert_ne!(refused.code, ConnectReturnCode::Success);
    // A certificate names the cluster.
    let config = mosquitto.ca.client(Some(&mosquitto.ca.sign(AGENT)));
    let mut agent = Client::open_tls(mosquitto.certified, config).await.unwrap();
    let welcome = agent.hello(Hello::anonymous("certified")).await;
    assert_eq!(welcome.code, ConnectReturnCode::Success);
    for topic in TOPICS {
        let refused = agent.publish(topic, "x").await == PubAckReason::NotAuthorized;
        assert_eq!(!refused, place.may_publish(AGENT, topic), "{topic}");
    }
}

/// A line of EMQX's `acl.conf`: who, what and which topics. All of ours are one line each.
struct Rule {
    allows: bool,
    who: String,
    action: String,
    topics: Vec<String>,
}

const EMQX: &str = include_str!("../../../deploy/emqx/acl.conf");

fn emqx_rules() -> Vec<Rule> {
    let lines = EMQX
        .lines()
        .filter(|line| !line.is_empty() && !line.starts_with("%%"));
    let rule = |line: &str| {
        let rule = line
            .strip_prefix('{')
            .and_then(|rule| rule.strip_suffix("}."));
        let (permission, rest) = rule.unwrap().split_once(", ").unwrap();
        assert!(["allow", "deny"].contains(&permission), "{line}");
        let (rest, topics) = rest.strip_suffix(']').unwrap().split_once(", [").unwrap();
        let (who, action) = rest.rsplit_once(", ").unwrap();
        let topics = topics
            .split(", ")
            .map(|topic| topic.trim_matches('"').to_owned());
        Rule {
            allows: permission == "allow",
            who: who.to_owned(),
            action: action.to_owned(),
            topics: topics.collect(),
        }
    };
    let (last, rules) = lines
        .collect::<Vec<_>>()
        .split_last()
        .map(|(last, rules)| (*last, rules.to_vec()))
        .unwrap();
    assert_eq!(last, "{deny, all}.");
    rules.into_iter().map(rule).collect()
}

/// What EMQX answers: the first rule that fits decides. A filter is compared like a topic.
fn emqx_allows(rules: &[Rule], user: &str, action: &str, topic: &str) -> bool {
    let fits = |rule: &&Rule| {
        let who = match rule.who.as_str() {
            "all" => true,
            r#"{username, {re, "^source\\."}}"# => user.starts_with("source."),
            who => who == format!("{{username, \"{user}\"}}"),
        };
        let topics = rule
            .topics
            .iter()
            .map(|own| own.replace("${username}", user));
        let mut topics = topics.map(|own| {
            own == "#" && !topic.starts_with('$') || {
                let mut levels = topic.split('/');
                let each = own.split('/').all(|own| {
                    levels
                        .next()
                        .is_some_and(|level| own == "+" || own == level)
                });
                each && levels.next().is_none()
            }
        });
        who && ["all", action].contains(&rule.action.as_str()) && topics.any(|fits| fits)
    };
    rules.iter().find(fits).is_some_and(|rule| rule.allows)
}

#[test]
fn the_rules_for_emqx_are_those_of_both_dialects() {
    let rules = emqx_rules();
    let access = [sdk_go(), enhancement()];
    for (user, name) in [
        ("source.hub1", SOURCE),
        (AGENT, AGENT),
        ("source.operator", OPERATOR),
    ] {
        let principal = principal(name);
        for topic in TOPICS {
            let expected = access
                .iter()
                .any(|access| access.may_publish(&principal, topic));
            let found = emqx_allows(&rules, user, "publish", topic);
            assert_eq!(found, expected, "{user}, {topic}");
        }
        // EMQX takes the group off before it looks at the rules.
        for filter in FILTERS
            .iter()
            .map(|filter| filter.trim_start_matches("$share/g/"))
            .chain(TOPICS.iter().copied())
        {
            let expected = access
                .iter()
                .any(|access| access.may_subscribe(&principal, filter));
            let found = emqx_allows(&rules, user, "subscribe", filter);
            assert_eq!(found, expected, "{user}, {filter}");
        }
    }
}
