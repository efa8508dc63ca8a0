//! Where events go: the topics of the two dialects.
//!
//! | | sdk-go, by its config | the enhancement's design text |
//! |---|---|---|
//! | specs to an agent | `sourceEvents` | `/sources/<source>/clusters/<cluster>/spec` |
//! | statuses to a source | `agentEvents` | `/sources/<source>/clusters/<cluster>/status` |
//! | an agent asks all sources | `agentBroadcast`, else `agentEvents` | `/sources/clusters/<cluster>/specresync` |
//! | a source asks all agents | `sourceBroadcast` | `/sources/<source>/clusters/statusresync` |

use serde::Deserialize;

use crate::event::extension::{CLUSTER_NAME, ORIGINAL_SOURCE};
use crate::{Event, ExtensionError, SubResource, TypeError};

/// The topics in a config of sdk-go.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Topics {
    /// From sources to one agent.
    pub source_events: String,
    /// From agents to one source.
    pub agent_events: String,
    /// From a source to all agents.
    pub source_broadcast: Option<String>,
    /// From an agent to all sources.
    pub agent_broadcast: Option<String>,
}

/// Who talks to whom how.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Dialect {
    /// As OCM and Maestro do today.
    SdkGo(Topics),
    /// As the enhancement proposed it.
    Enhancement,
}

/// An event has no topic, or a topic is none.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum TopicError {
    /// None are configured.
    #[error("the topics must be set")]
    NotSet,
    /// These topics do not have the form that they must have; each with its name.
    #[error("{}", .0.join(", "))]
    Malformed(Vec<String>),
    /// A source would hear what is for another.
    #[error("the topic source {topic:?} does not match the client sourceID {source_id:?}")]
    OtherSource {
        /// The source in the topic.
        topic: String,
        /// The source that would subscribe.
        source_id: String,
    },
    /// A source asks all agents, and there is no topic for that.
    #[error("the source broadcast topic not set")]
    NoSourceBroadcast,
    /// The event does not say for whom it is.
    #[error(transparent)]
    Extension(#[from] ExtensionError),
    /// The event does not say what it is.
    #[error(transparent)]
    Type(#[from] TypeError),
    /// A name that no topic can have.
    #[error("{what} {name:?} cannot be part of a topic: only a-z, 0-9 and - can")]
    Name {
        /// What it names.
        what: &'static str,
        /// The name.
        name: String,
    },
}

fn is_word(text: &str) -> bool {
    !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_lowercase())
}

pub(crate) fn is_name(text: &str) -> bool {
    let allowed = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'-';
    !text.is_empty() && text.bytes().all(allowed)
}

/// A topic without the name of its shared subscription.
pub(crate) fn unshared(topic: &str) -> &str {
    let shared = topic.strip_prefix("$share/");
    let rest = shared.and_then(|rest| rest.split_once('/'));
    match rest {
        Some((group, rest)) if is_name(group) => rest,
        _ => topic,
    }
}

/// Whether a topic consists of pairs of a word and a name (or `+`), and ends in this.
fn has_form(topic: &str, pairs: usize, end: &str) -> bool {
    let words: Vec<_> = unshared(topic).split('/').collect();
    let Some((last, pair)) = words.split_last() else {
        return false;
    };
    *last == end
        && pair.len() == 2 * pairs
        && pair
            .chunks(2)
            .all(|pair| is_word(pair[0]) && (pair[1] == "+" || is_name(pair[1])))
}

fn last_plus(topic: &str, name: &str) -> String {
    match topic.rsplit_once("/+/") {
        Some((before, after)) => format!("{before}/{name}/{after}"),
        None => topic.to_owned(),
    }
}

fn first_plus(topic: &str, name: &str) -> String {
    topic.replacen("/+/", &format!("/{name}/"), 1)
}

impl Topics {
    /// Checks the form of each.
    ///
    /// # Errors
    ///
    /// Names all that are wrong.
    pub fn check(&self) -> Result<(), TopicError> {
        if *self == Self::default() {
            return Err(TopicError::NotSet);
        }
        let mut wrong = Vec::new();
        let mut check = |what: &str, topic: &str, pairs: usize, end: &str| {
            if !has_form(topic, pairs, end) {
                let form = "/<word>/<name or +>".repeat(pairs);
                let form = form.trim_start_matches('/');
                wrong.push(format!(
                    "invalid {what} topic {topic:?}, it should match {form}/{end}"
                ));
            }
        };
        check("source events", &self.source_events, 2, "sourceevents");
        check("agent events", &self.agent_events, 2, "agentevents");
        if let Some(topic) = &self.source_broadcast {
            check("source broadcast", topic, 1, "sourcebroadcast");
        }
        if let Some(topic) = &self.agent_broadcast {
            check("agent broadcast", topic, 1, "agentbroadcast");
        }
        if wrong.is_empty() {
            Ok(())
        } else {
            Err(TopicError::Malformed(wrong))
        }
    }

    /// The source that statuses are for; `+` where that is open.
    fn source(&self) -> &str {
        unshared(&self.agent_events)
            .split('/')
            .nth(1)
            .unwrap_or_default()
    }
}

fn checked<'a>(what: &'static str, name: &'a str) -> Result<&'a str, TopicError> {
    if is_name(name) {
        return Ok(name);
    }
    let name = name.to_owned();
    Err(TopicError::Name { what, name })
}

impl Dialect {
    /// What a source listens to.
    ///
    /// # Errors
    ///
    /// The topics are for another source, or its id cannot be in a topic.
    pub fn source_filters(&self, source: &str) -> Result<Vec<String>, TopicError> {
        checked("the source", source)?;
        match self {
            Self::SdkGo(topics) => {
                if topics.source() != source {
                    return Err(TopicError::OtherSource {
                        topic: topics.source().to_owned(),
                        source_id: source.to_owned(),
                    });
                }
                let broadcast = topics.agent_broadcast.iter().cloned();
                Ok(std::iter::once(topics.agent_events.clone())
                    .chain(broadcast)
                    .collect())
            }
            Self::Enhancement => Ok(vec![
                format!("/sources/{source}/clusters/+/status"),
                "/sources/clusters/+/specresync".to_owned(),
            ]),
        }
    }

    /// What the agent of a cluster listens to.
    ///
    /// # Errors
    ///
    /// The cluster's name cannot be in a topic.
    pub fn agent_filters(&self, cluster: &str) -> Result<Vec<String>, TopicError> {
        checked("the cluster", cluster)?;
        Ok(match self {
            Self::SdkGo(topics) => std::iter::once(last_plus(&topics.source_events, cluster))
                .chain(topics.source_broadcast.iter().cloned())
                .collect(),
            Self::Enhancement => vec![
                format!("/sources/+/clusters/{cluster}/spec"),
                "/sources/+/clusters/statusresync".to_owned(),
            ],
        })
    }

    /// The source that agents have, where their topics leave them but one.
    pub fn only_source(&self) -> Option<&str> {
        match self {
            Self::SdkGo(topics) => Some(topics.source()).filter(|source| *source != "+"),
            Self::Enhancement => None,
        }
    }

    /// Where the agent of a cluster says that it is there: it may write to that topic, and sources
    /// listen to it. There is none where its topics leave the source open and have no broadcast.
    pub fn presence_topic(&self, cluster: &str) -> Option<String> {
        let topic = match self {
            Self::SdkGo(topics) => match topics.agent_broadcast.as_deref() {
                Some(topic) => first_plus(unshared(topic), cluster),
                None => last_plus(unshared(&topics.agent_events), cluster),
            },
            // A topic of muster's own: the design text has no other events on its topics.
            Self::Enhancement => format!("/sources/clusters/{cluster}/presence"),
        };
        Some(topic).filter(|topic| !topic.contains('+'))
    }

    /// Where a source says that it is there; there is none without a broadcast of its own.
    pub fn source_presence_topic(&self, source: &str) -> Option<String> {
        match self {
            Self::SdkGo(topics) => {
                let topic = topics.source_broadcast.as_deref()?;
                Some(first_plus(unshared(topic), source))
            }
            Self::Enhancement => Some(format!("/sources/{source}/clusters/presence")),
        }
    }

    /// What a source listens to beside, to hear which agents are there.
    pub fn agent_presence_filter(&self) -> Option<String> {
        let own = matches!(self, Self::Enhancement);
        own.then(|| "/sources/clusters/+/presence".to_owned())
    }

    /// What an agent listens to beside, to hear which sources are there.
    pub fn source_presence_filter(&self) -> Option<String> {
        let own = matches!(self, Self::Enhancement);
        own.then(|| "/sources/+/clusters/presence".to_owned())
    }

    /// The source and the cluster that a topic names, as far as it does.
    pub fn names<'a>(&self, topic: &'a str) -> (Option<&'a str>, Option<&'a str>) {
        let words: Vec<_> = topic.split('/').collect();
        match (self, words.as_slice()) {
            (Self::SdkGo(_), [_, source, _, cluster, "sourceevents" | "agentevents"])
            | (Self::Enhancement, ["", "sources", source, "clusters", cluster, _]) => {
                (Some(source), Some(cluster))
            }
            (Self::SdkGo(_), [_, source, "sourcebroadcast"])
            | (
                Self::Enhancement,
                [
                    "",
                    "sources",
                    source,
                    "clusters",
                    "statusresync" | "presence",
                ],
            ) => (Some(source), None),
            (Self::SdkGo(_), [_, cluster, "agentbroadcast"])
            | (
                Self::Enhancement,
                [
                    "",
                    "sources",
                    "clusters",
                    cluster,
                    "specresync" | "presence",
                ],
            ) => (None, Some(cluster)),
            _ => (None, None),
        }
    }

    /// Where an event of a source goes.
    ///
    /// # Errors
    ///
    /// The event does not say what it is or for whom, or the dialect has no topic for it.
    pub fn topic_of_source(&self, source: &str, event: &Event) -> Result<String, TopicError> {
        let event_type = event.event_type()?;
        let cluster = event.require(CLUSTER_NAME)?;
        let to_all = event_type.is_resync_request() && cluster.is_empty();
        match self {
            Self::SdkGo(topics) if to_all => {
                let topic = topics.source_broadcast.as_deref();
                let topic = topic.ok_or(TopicError::NoSourceBroadcast)?;
                Ok(first_plus(unshared(topic), source))
            }
            Self::SdkGo(topics) => {
                let cluster = checked("the cluster", cluster)?;
                Ok(first_plus(unshared(&topics.source_events), cluster))
            }
            // Agents hear all requests, and look whom they are for.
            Self::Enhancement if event_type.is_resync_request() => {
                Ok(format!("/sources/{source}/clusters/statusresync"))
            }
            Self::Enhancement => {
                let cluster = checked("the cluster", cluster)?;
                Ok(format!("/sources/{source}/clusters/{cluster}/spec"))
            }
        }
    }

    /// Where an event of the agent of a cluster goes.
    ///
    /// # Errors
    ///
    /// The event does not say what it is or for whom.
    pub fn topic_of_agent(&self, cluster: &str, event: &Event) -> Result<String, TopicError> {
        let event_type = event.event_type()?;
        let source = event.require(ORIGINAL_SOURCE)?;
        let asks = event_type.is_resync_request() && event_type.sub_resource == SubResource::Spec;
        match self {
            Self::SdkGo(topics) => {
                let broadcast = topics.agent_broadcast.as_deref();
                if let Some(topic) = broadcast
                    && event_type.is_resync_request()
                    && source.is_empty()
                {
                    return Ok(first_plus(unshared(topic), cluster));
                }
                let topic = last_plus(unshared(&topics.agent_events), cluster);
                // sdk-go cannot publish where its topic leaves the source open.
                if source.is_empty() {
                    Ok(topic)
                } else {
                    Ok(first_plus(&topic, checked("the source", source)?))
                }
            }
            Self::Enhancement if asks => Ok(format!("/sources/clusters/{cluster}/specresync")),
            Self::Enhancement => {
                let source = checked("the source", source)?;
                Ok(format!("/sources/{source}/clusters/{cluster}/status"))
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Action, DataType, EventType, Stamp};

    fn topics(source_events: &str, agent_events: &str, broadcasts: [&str; 2]) -> Topics {
        let optional = |topic: &str| (!topic.is_empty()).then(|| topic.to_owned());
        Topics {
            source_events: source_events.to_owned(),
            agent_events: agent_events.to_owned(),
            source_broadcast: optional(broadcasts[0]),
            agent_broadcast: optional(broadcasts[1]),
        }
    }

    fn hub1() -> Dialect {
        Dialect::SdkGo(topics(
            "sources/hub1/clusters/+/sourceevents",
            "sources/hub1/clusters/+/agentevents",
            ["sources/+/sourcebroadcast", "clusters/+/agentbroadcast"],
        ))
    }

    fn event(sub_resource: SubResource, action: Action) -> Event {
        let data_type = DataType::new("g", "v1", "things");
        Event::new(
            Stamp::now(),
            "me",
            &EventType::new(data_type, sub_resource, action),
        )
    }

    /// T07 to T12.
    #[test]
    fn topics_of_real_deployments_are_taken() {
        let uuid = "sources/2b6c5b7e-4b3e-4b8e-9f0a-0a1b2c3d4e5f/clusters/+/";
        for [source, agent, source_broadcast, agent_broadcast] in [
            [
                "sources/maestro/clusters/+/sourceevents",
                "sources/maestro/clusters/+/agentevents",
                "",
                "",
            ],
            [
                "sources/maestro/consumers/+/sourceevents",
                "sources/maestro/consumers/+/agentevents",
                "",
                "",
            ],
            [
                "hubs/maestro/consumers/+/sourceevents",
                "hubs/maestro/consumers/+/agentevents",
                "",
                "",
            ],
            [
                "$share/group1/sources/maestro/consumers/+/sourceevents",
                "$share/group/sources/maestro/consumers/+/agentevents",
                "$share/source-group/sources/maestro/sourcebroadcast",
                "$share/agent-group1/clusters/+/agentbroadcast",
            ],
            [
                "sources/+/clusters/+/sourceevents",
                "sources/+/clusters/+/agentevents",
                "sources/+/sourcebroadcast",
                "clusters/+/agentbroadcast",
            ],
            [
                "sources/hub1/clusters/cluster-1/sourceevents",
                "sources/hub1/clusters/cluster1/agentevents",
                "",
                "",
            ],
            [
                &format!("{uuid}sourceevents"),
                &format!("{uuid}agentevents"),
                "",
                "",
            ],
        ] {
            let topics = topics(source, agent, [source_broadcast, agent_broadcast]);
            assert_eq!(topics.check(), Ok(()), "{topics:?}");
        }
    }

    /// T13, T14.
    #[test]
    fn wrong_topics_are_named_all_at_once() {
        assert_eq!(Topics::default().check(), Err(TopicError::NotSet));
        let swapped = topics(
            "sources/hub1/clusters/+/agentevents",
            "sources/hub1/clusters/+/sourceevents",
            ["sources/+/specresync", "clusters/+/statusresync"],
        );
        let error = swapped.check().unwrap_err().to_string();
        for what in [
            "source events",
            "agent events",
            "source broadcast",
            "agent broadcast",
        ] {
            assert!(error.contains(&format!("invalid {what} topic")), "{error}");
        }
        for wrong in [
            "/sources/hub1/clusters/+/sourceevents",
            "sources/hub1/clusters/#/sourceevents",
            "sources/Hub1/clusters/+/sourceevents",
            "sources/hub.1/clusters/+/sourceevents",
            "s0urces/hub1/clusters/+/sourceevents",
            "sources/hub1/sourceevents",
            "$share//sources/hub1/clusters/+/sourceevents",
        ] {
            let topics = topics(wrong, "sources/hub1/clusters/+/agentevents", ["", ""]);
            assert!(topics.check().is_err(), "{wrong}");
        }
    }

    /// T15, T23, M03, M04.
    #[test]
    fn both_sides_listen_to_what_is_theirs() {
        let filters = hub1().source_filters("hub1").unwrap();
        assert_eq!(
            filters,
            [
                "sources/hub1/clusters/+/agentevents",
                "clusters/+/agentbroadcast"
            ]
        );
        let error = hub1().source_filters("hub2").unwrap_err().to_string();
        assert_eq!(
            error,
            "the topic source \"hub1\" does not match the client sourceID \"hub2\""
        );
        let shared = Dialect::SdkGo(topics(
            "sources/source1/consumers/+/sourceevents",
            "$share/group/sources/source1/consumers/+/agentevents",
            ["", ""],
        ));
        assert_eq!(
            shared.source_filters("source1").unwrap(),
            ["$share/group/sources/source1/consumers/+/agentevents"]
        );
        assert_eq!(
            hub1().agent_filters("c1").unwrap(),
            [
                "sources/hub1/clusters/c1/sourceevents",
                "sources/+/sourcebroadcast"
            ]
        );
        let error = hub1().agent_filters("c.1").unwrap_err().to_string();
        assert!(
            error.contains("the cluster \"c.1\" cannot be part of a topic"),
            "{error}"
        );
        assert_eq!(
            Dialect::Enhancement.source_filters("s1").unwrap(),
            [
                "/sources/s1/clusters/+/status",
                "/sources/clusters/+/specresync"
            ]
        );
        assert_eq!(
            Dialect::Enhancement.agent_filters("c1").unwrap(),
            [
                "/sources/+/clusters/c1/spec",
                "/sources/+/clusters/statusresync"
            ]
        );
    }

    /// T16 to T19, T24.
    #[test]
    fn events_of_a_source_go_to_one_cluster_or_to_all() {
        let spec = event(SubResource::Spec, Action::CreateRequest);
        let to = |event: &Event, cluster: &str| event.clone().with(CLUSTER_NAME, cluster);
        let topic = |event: &Event| hub1().topic_of_source("hub1", event);
        assert_eq!(
            topic(&to(&spec, "c1")).unwrap(),
            "sources/hub1/clusters/c1/sourceevents"
        );
        let asks = event(SubResource::Status, Action::ResyncRequest);
        assert_eq!(
            topic(&to(&asks, "c1")).unwrap(),
            "sources/hub1/clusters/c1/sourceevents"
        );
        assert_eq!(
            topic(&to(&asks, "")).unwrap(),
            "sources/hub1/sourcebroadcast"
        );
        assert!(matches!(topic(&spec), Err(TopicError::Extension(_))));
        assert!(matches!(
            topic(&to(&spec, "")),
            Err(TopicError::Name { .. })
        ));
        let mut bad = to(&spec, "c1");
        bad.kind = "unsupported".to_owned();
        assert!(matches!(topic(&bad), Err(TopicError::Type(_))));
        let plain = Dialect::SdkGo(topics(
            "sources/hub1/clusters/+/sourceevents",
            "sources/hub1/clusters/+/agentevents",
            ["", ""],
        ));
        assert_eq!(
            plain.topic_of_source("hub1", &to(&asks, "")),
            Err(TopicError::NoSourceBroadcast)
        );
        let enhancement = |event: &Event| Dialect::Enhancement.topic_of_source("s1", event);
        assert_eq!(
            enhancement(&to(&spec, "c1")).unwrap(),
            "/sources/s1/clusters/c1/spec"
        );
        assert_eq!(
            enhancement(&to(&asks, "")).unwrap(),
            "/sources/s1/clusters/statusresync"
        );
    }

    /// T20 to T22, T25.
    #[test]
    fn events_of_an_agent_go_to_one_source_or_to_all() {
        let of = |event: &Event, source: &str| event.clone().with(ORIGINAL_SOURCE, source);
        let asks = event(SubResource::Spec, Action::ResyncRequest);
        let status = event(SubResource::Status, Action::UpdateRequest);
        let topic = |event: &Event| hub1().topic_of_agent("c1", event);
        assert_eq!(topic(&of(&asks, "")).unwrap(), "clusters/c1/agentbroadcast");
        assert_eq!(
            topic(&of(&asks, "hub1")).unwrap(),
            "sources/hub1/clusters/c1/agentevents"
        );
        assert_eq!(
            topic(&of(&status, "hub1")).unwrap(),
            "sources/hub1/clusters/c1/agentevents"
        );
        assert!(matches!(topic(&status), Err(TopicError::Extension(_))));
        let open = Dialect::SdkGo(topics(
            "sources/+/clusters/+/sourceevents",
            "sources/+/clusters/+/agentevents",
            ["", ""],
        ));
        assert_eq!(
            open.topic_of_agent("c1", &of(&status, "hub7")).unwrap(),
            "sources/hub7/clusters/c1/agentevents"
        );
        let plain = Dialect::SdkGo(topics(
            "sources/hub1/clusters/+/sourceevents",
            "sources/hub1/clusters/+/agentevents",
            ["", ""],
        ));
        assert_eq!(
            plain.topic_of_agent("c1", &of(&asks, "")).unwrap(),
            "sources/hub1/clusters/c1/agentevents"
        );
        let enhancement = |event: &Event| Dialect::Enhancement.topic_of_agent("c1", event);
        assert_eq!(
            enhancement(&of(&asks, "")).unwrap(),
            "/sources/clusters/c1/specresync"
        );
        assert_eq!(
            enhancement(&of(&status, "s1")).unwrap(),
            "/sources/s1/clusters/c1/status"
        );
    }
}
