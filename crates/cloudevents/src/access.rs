//! Who may publish and subscribe to which topics of a broker.
//!
//! | Who | Publishes (sdk-go) | Reads (sdk-go) |
//! |---|---|---|
//! | source S | `sources/S/clusters/+/sourceevents`, `sources/S/sourcebroadcast` | `sources/S/clusters/+/agentevents`, `clusters/+/agentbroadcast` |
//! | agent of C | `sources/+/clusters/C/agentevents`, `clusters/C/agentbroadcast` | `sources/+/clusters/C/sourceevents`, `sources/+/sourcebroadcast` |
//!
//! | Who | Publishes (design text) | Reads (design text) |
//! |---|---|---|
//! | source S | `/sources/S/clusters/+/spec`, `/sources/S/clusters/statusresync` | `/sources/S/clusters/+/status`, `/sources/clusters/+/specresync` |
//! | agent of C | `/sources/+/clusters/C/status`, `/sources/clusters/C/specresync` | `/sources/+/clusters/C/spec`, `/sources/+/clusters/statusresync` |
//!
//! Beside the topics of the design text, source S has `/sources/S/clusters/presence` and agent of C
//! `/sources/clusters/C/presence` to say that it is there, and each reads those of the other side.
//!
//! The words of the first table come from the config ([`Topics`]). A name that is fixed there is
//! fixed here, so a broker for several sources has `+` in their place. In the dialect of sdk-go the
//! presence of an agent, a retained message or a last will, goes to one of these topics.

use crate::topics::{is_name, unshared};
use crate::{Dialect, Topics};

/// Whom a client of a broker acts for.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum Principal {
    /// The source of this id.
    Source(String),
    /// The agent of the cluster of this name.
    Agent(String),
    /// An operator: every topic, also those of the broker itself (`$SYS`).
    Everything,
}

/// The rules of a broker whose clients speak this dialect.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Access {
    /// Who talks to whom how.
    pub dialect: Dialect,
}

/// What one principal may do.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Rights {
    /// Everything.
    Everything,
    /// What these topics allow; a `+` in them stands for any one level.
    Topics {
        /// Where it may publish.
        publish: Vec<String>,
        /// What it may read.
        subscribe: Vec<String>,
    },
}

impl Access {
    /// What a principal may do: nothing, if its name cannot be part of a topic.
    pub fn rights(&self, principal: &Principal) -> Rights {
        let (publish, subscribe) = match (principal, &self.dialect) {
            (Principal::Everything, _) => return Rights::Everything,
            (Principal::Source(name) | Principal::Agent(name), _) if !is_name(name) => {
                (Vec::new(), Vec::new())
            }
            (_, Dialect::SdkGo(topics)) if topics.check().is_err() => (Vec::new(), Vec::new()),
            (Principal::Source(source), Dialect::SdkGo(topics)) => of_source(topics, source),
            (Principal::Agent(cluster), Dialect::SdkGo(topics)) => of_agent(topics, cluster),
            (Principal::Source(source), Dialect::Enhancement) => (
                vec![
                    format!("/sources/{source}/clusters/+/spec"),
                    format!("/sources/{source}/clusters/statusresync"),
                    format!("/sources/{source}/clusters/presence"),
                ],
                vec![
                    format!("/sources/{source}/clusters/+/status"),
                    "/sources/clusters/+/specresync".to_owned(),
                    "/sources/clusters/+/presence".to_owned(),
                ],
            ),
            (Principal::Agent(cluster), Dialect::Enhancement) => (
                vec![
                    format!("/sources/+/clusters/{cluster}/status"),
                    format!("/sources/clusters/{cluster}/specresync"),
                    format!("/sources/clusters/{cluster}/presence"),
                ],
                vec![
                    format!("/sources/+/clusters/{cluster}/spec"),
                    "/sources/+/clusters/statusresync".to_owned(),
                    "/sources/+/clusters/presence".to_owned(),
                ],
            ),
        };
        Rights::Topics { publish, subscribe }
    }

    /// Whether a principal may publish to a topic, retained or not.
    pub fn may_publish(&self, principal: &Principal, topic: &str) -> bool {
        self.rights(principal).may_publish(topic)
    }

    /// Whether a principal may read everything that a filter can match.
    pub fn may_subscribe(&self, principal: &Principal, filter: &str) -> bool {
        self.rights(principal).may_subscribe(filter)
    }
}

impl Rights {
    /// Whether this topic may be published to, retained or not.
    pub fn may_publish(&self, topic: &str) -> bool {
        match self {
            Self::Everything => true,
            Self::Topics { publish, .. } => {
                !topic.contains(['+', '#']) && publish.iter().any(|own| covers(own, topic))
            }
        }
    }

    /// Whether everything may be read that this filter can match.
    pub fn may_subscribe(&self, filter: &str) -> bool {
        match self {
            Self::Everything => true,
            // A topic of ours covers the filter, or none does, also not several together: let each
            // `+` of the filter stand for a word that no topic of ours has; what covers that has
            // `+` there, too.
            Self::Topics { subscribe, .. } => {
                subscribe.iter().any(|own| covers(own, unshared(filter)))
            }
        }
    }
}

/// Whether a topic of ours, with `+` for any one level, has all that a filter can match. Ours have
/// no end of their own choice, so that `#` always matches more.
fn covers(own: &str, filter: &str) -> bool {
    let mut levels = filter.split('/');
    let each = own.split('/').all(|own| match levels.next() {
        None => false,
        Some("+") => own == "+",
        Some(level) if level.contains(['+', '#']) => false,
        Some(level) => own == "+" || own == level,
    });
    each && levels.next().is_none()
}

/// The level of the source in events, and of either side in its broadcasts.
const FIRST: usize = 1;
/// The level of the cluster in events.
const SECOND: usize = 3;

/// A topic with this name at this level, unless another name is fixed there.
fn named(topic: &str, level: usize, name: &str) -> Option<String> {
    let mut levels: Vec<_> = unshared(topic).split('/').collect();
    let place = levels.get_mut(level)?;
    if *place != "+" && *place != name {
        return None;
    }
    *place = name;
    Some(levels.join("/"))
}

fn any(topic: &str) -> String {
    unshared(topic).to_owned()
}

fn of_source(topics: &Topics, source: &str) -> (Vec<String>, Vec<String>) {
    let own = |topic: &str| named(topic, FIRST, source);
    let broadcast = topics.source_broadcast.as_deref().and_then(own);
    let publish = own(&topics.source_events).into_iter().chain(broadcast);
    let heard = topics.agent_broadcast.as_deref().map(any);
    let subscribe = own(&topics.agent_events).into_iter().chain(heard);
    (publish.collect(), subscribe.collect())
}

fn of_agent(topics: &Topics, cluster: &str) -> (Vec<String>, Vec<String>) {
    let own = |topic: &str| named(topic, SECOND, cluster);
    let broadcast = topics.agent_broadcast.as_deref();
    let broadcast = broadcast.and_then(|topic| named(topic, FIRST, cluster));
    let publish = own(&topics.agent_events).into_iter().chain(broadcast);
    let heard = topics.source_broadcast.as_deref().map(any);
    let subscribe = own(&topics.source_events).into_iter().chain(heard);
    (publish.collect(), subscribe.collect())
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn sdk_go(words: [&str; 2], source: &str, cluster: &str) -> Access {
        let [first, second] = words;
        let events = format!("{first}/{source}/{second}/{cluster}");
        Access {
            dialect: Dialect::SdkGo(Topics {
                source_events: format!("{events}/sourceevents"),
                agent_events: format!("$share/statuses/{events}/agentevents"),
                source_broadcast: Some(format!("{first}/{source}/sourcebroadcast")),
                agent_broadcast: Some(format!("$share/asked/{second}/{cluster}/agentbroadcast")),
            }),
        }
    }

    fn open() -> Access {
        sdk_go(["sources", "clusters"], "+", "+")
    }

    fn enhancement() -> Access {
        Access {
            dialect: Dialect::Enhancement,
        }
    }

    fn source(name: &str) -> Principal {
        Principal::Source(name.to_owned())
    }

    fn agent(name: &str) -> Principal {
        Principal::Agent(name.to_owned())
    }

    #[test]
    fn each_publishes_its_own_topics_only() {
        let rows = [
            ("sources/hub1/clusters/c1/sourceevents", "S"),
            ("sources/hub1/clusters/c10/sourceevents", "S"),
            ("sources/hub10/clusters/c1/sourceevents", ""),
            ("sources/hub1/sourcebroadcast", "S"),
            ("sources/hub10/sourcebroadcast", ""),
            ("sources/hub1/clusters/c1/agentevents", "A"),
            ("sources/hub10/clusters/c1/agentevents", "A"),
            ("sources/hub1/clusters/c10/agentevents", ""),
            ("clusters/c1/agentbroadcast", "A"),
            ("clusters/c10/agentbroadcast", ""),
            ("sources/hub1/clusters/c1/agentevents/more", ""),
            ("/sources/hub1/clusters/c1/agentevents", ""),
            ("sources/hub1/clusters/c1", ""),
            ("sources/+/clusters/c1/agentevents", ""),
            ("sources/hub1/clusters/+/sourceevents", ""),
            ("$share/g/sources/hub1/clusters/c1/agentevents", ""),
            ("$SYS/broker/uptime", ""),
            ("", ""),
        ];
        check_publish(&open(), &rows);
        check_publish(
            &enhancement(),
            &[
                ("/sources/hub1/clusters/c1/spec", "S"),
                ("/sources/hub10/clusters/c1/spec", ""),
                ("/sources/hub1/clusters/statusresync", "S"),
                ("/sources/hub10/clusters/statusresync", ""),
                ("/sources/hub1/clusters/c1/status", "A"),
                ("/sources/hub10/clusters/c1/status", "A"),
                ("/sources/hub1/clusters/c10/status", ""),
                ("/sources/clusters/c1/specresync", "A"),
                ("/sources/clusters/c10/specresync", ""),
                ("/sources/hub1/clusters/presence", "S"),
                ("/sources/hub10/clusters/presence", ""),
                ("/sources/clusters/c1/presence", "A"),
                ("/sources/clusters/c10/presence", ""),
                ("sources/hub1/clusters/c1/status", ""),
            ],
        );
    }

    fn check_publish(access: &Access, rows: &[(&str, &str)]) {
        for (topic, who) in rows {
            let by_source = access.may_publish(&source("hub1"), topic);
            assert_eq!(by_source, *who == "S", "source, {topic}");
            let by_agent = access.may_publish(&agent("c1"), topic);
            assert_eq!(by_agent, *who == "A", "agent, {topic}");
            assert!(access.may_publish(&Principal::Everything, topic));
        }
    }

    #[test]
    fn each_reads_what_is_for_it_and_broadcasts() {
        check_subscribe(
            &open(),
            &[
                ("sources/hub1/clusters/+/agentevents", "S"),
                ("sources/hub1/clusters/c7/agentevents", "S"),
                ("sources/hub10/clusters/+/agentevents", ""),
                ("sources/+/clusters/+/agentevents", ""),
                ("clusters/+/agentbroadcast", "S"),
                ("clusters/c10/agentbroadcast", "S"),
                ("sources/+/clusters/c1/sourceevents", "A"),
                ("sources/hub1/clusters/c1/sourceevents", "A"),
                ("sources/hub1/clusters/c10/sourceevents", ""),
                ("sources/+/clusters/+/sourceevents", ""),
                ("sources/+/sourcebroadcast", "A"),
                ("sources/hub10/sourcebroadcast", "A"),
                ("$share/g/sources/+/clusters/c1/sourceevents", "A"),
                ("$share/g/sources/+/clusters/c10/sourceevents", ""),
                ("$share/g/sources/hub1/clusters/+/agentevents", "S"),
                ("$share/g", ""),
                ("$share//sources/hub1/clusters/+/agentevents", ""),
                ("$share/g/$share/g/sources/hub1/clusters/+/agentevents", ""),
                ("#", ""),
                ("+/+/+/+/agentevents", ""),
                ("sources/#", ""),
                ("sources/hub1/clusters/c1/#", ""),
                ("sources/hub1/clusters/#", ""),
                ("sources/hub1/clusters/c1/agentevents/#", ""),
                ("sources/+/sourcebroadcast/#", ""),
                ("sources/hub1/clusters/c+/agentevents", ""),
                ("sources/hub1/clusters/c1/+", ""),
                ("$SYS/#", ""),
                ("+/broker/uptime", ""),
                ("", ""),
            ],
        );
        check_subscribe(
            &enhancement(),
            &[
                ("/sources/hub1/clusters/+/status", "S"),
                ("/sources/hub10/clusters/+/status", ""),
                ("/sources/clusters/+/specresync", "S"),
                ("/sources/+/clusters/c1/spec", "A"),
                ("/sources/+/clusters/c10/spec", ""),
                ("/sources/+/clusters/statusresync", "A"),
                ("/sources/clusters/+/presence", "S"),
                ("/sources/+/clusters/presence", "A"),
                ("/sources/+/clusters/+", ""),
                ("/sources/#", ""),
                ("/sources/+/+/specresync", ""),
            ],
        );
    }

    fn check_subscribe(access: &Access, rows: &[(&str, &str)]) {
        for (filter, who) in rows {
            let by_source = access.may_subscribe(&source("hub1"), filter);
            assert_eq!(by_source, *who == "S", "source, {filter}");
            let by_agent = access.may_subscribe(&agent("c1"), filter);
            assert_eq!(by_agent, *who == "A", "agent, {filter}");
            assert!(access.may_subscribe(&Principal::Everything, filter));
        }
    }

    /// Both sides can do what they do by themselves.
    #[test]
    fn what_a_side_listens_to_is_allowed() {
        for access in [
            sdk_go(["sources", "clusters"], "hub1", "+"),
            sdk_go(["hubs", "consumers"], "hub1", "c1"),
            enhancement(),
        ] {
            for filter in access.dialect.source_filters("hub1").unwrap() {
                assert!(access.may_subscribe(&source("hub1"), &filter), "{filter}");
            }
            for filter in access.dialect.agent_filters("c1").unwrap() {
                assert!(access.may_subscribe(&agent("c1"), &filter), "{filter}");
            }
        }
    }

    #[test]
    fn names_and_words_of_the_config_are_fixed() {
        let maestro = sdk_go(["hubs", "consumers"], "maestro", "+");
        assert_eq!(
            maestro.rights(&agent("c1")),
            Rights::Topics {
                publish: vec![
                    "hubs/maestro/consumers/c1/agentevents".to_owned(),
                    "consumers/c1/agentbroadcast".to_owned(),
                ],
                subscribe: vec![
                    "hubs/maestro/consumers/c1/sourceevents".to_owned(),
                    "hubs/maestro/sourcebroadcast".to_owned(),
                ],
            }
        );
        let other = maestro.rights(&source("hub1"));
        assert!(!other.may_publish("hubs/maestro/consumers/c1/sourceevents"));
        assert!(!other.may_subscribe("hubs/maestro/consumers/+/agentevents"));
        let one = sdk_go(["sources", "clusters"], "hub1", "c1");
        assert!(one.may_publish(&agent("c1"), "sources/hub1/clusters/c1/agentevents"));
        assert!(!one.may_publish(&agent("c2"), "sources/hub1/clusters/c2/agentevents"));
        assert!(!one.may_subscribe(&source("hub1"), "sources/hub1/clusters/+/agentevents"));
    }

    #[test]
    fn names_and_configs_that_are_none_allow_nothing() {
        let none = Rights::Topics {
            publish: Vec::new(),
            subscribe: Vec::new(),
        };
        for name in ["", "+", "#", "c1/status", "C1", "c.1"] {
            for access in [open(), enhancement()] {
                assert_eq!(access.rights(&source(name)), none, "{name}");
                assert_eq!(access.rights(&agent(name)), none, "{name}");
            }
        }
        let wrong = sdk_go(["+", "clusters"], "+", "+");
        assert_eq!(wrong.rights(&agent("c1")), none);
    }

    /// Matching as the MQTT specification has it (4.7), apart from the code under test.
    fn matches(filter: &[&str], topic: &[&str]) -> bool {
        match (filter, topic) {
            (["#"], _) | ([], []) => true,
            ([first, filter @ ..], [level, topic @ ..]) => {
                (*first == "+" || first == level) && matches(filter, topic)
            }
            _ => false,
        }
    }

    fn level() -> impl Strategy<Value = &'static str> {
        proptest::sample::select(vec![
            "sources",
            "clusters",
            "hub1",
            "hub10",
            "c1",
            "c10",
            "sourceevents",
            "agentevents",
            "sourcebroadcast",
            "agentbroadcast",
            "spec",
            "status",
            "specresync",
            "statusresync",
            "",
        ])
    }

    /// Filters near those that are allowed: some of their levels are others, or wildcards.
    fn near(own: Vec<String>) -> impl Strategy<Value = (Vec<String>, Vec<String>)> {
        let own = proptest::sample::select(own);
        let changes = proptest::collection::vec((0..4u8, level(), level()), 7);
        let cut = proptest::option::weighted(0.2, 0..6usize);
        (own, changes, cut).prop_map(|(own, changes, cut)| {
            let mut filter = Vec::new();
            let mut topic = Vec::new();
            for (own, (change, new, fill)) in own.split('/').zip(&changes) {
                let level = match change {
                    0 => "+",
                    1 => new,
                    _ => own,
                };
                filter.push(level.to_owned());
                topic.push(if level == "+" { fill } else { level }.to_owned());
            }
            if let Some(cut) = cut.filter(|cut| *cut < filter.len()) {
                filter.truncate(cut);
                filter.push("#".to_owned());
            }
            (filter, topic)
        })
    }

    fn all_readable() -> Vec<String> {
        let mut all = Vec::new();
        for access in [open(), enhancement()] {
            for principal in [source("hub1"), agent("c1")] {
                if let Rights::Topics { subscribe, .. } = access.rights(&principal) {
                    all.extend(subscribe);
                }
            }
        }
        all
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(4096))]

        /// What an allowed filter matches is readable; a readable topic may be subscribed to.
        #[test]
        fn an_allowed_filter_matches_readable_topics_only(
            (filter, topic) in near(all_readable()),
            shared: bool,
        ) {
            let levels: Vec<_> = filter.iter().map(String::as_str).collect();
            let words: Vec<_> = topic.iter().map(String::as_str).collect();
            let text = levels.join("/");
            let text = if shared { format!("$share/g/{text}") } else { text };
            for access in [open(), enhancement()] {
                for principal in [source("hub1"), agent("c1")] {
                    let Rights::Topics { subscribe, .. } = access.rights(&principal) else {
                        unreachable!("only operators have all rights");
                    };
                    let readable = subscribe.iter().any(|own| {
                        matches(&own.split('/').collect::<Vec<_>>(), &words)
                    });
                    if access.may_subscribe(&principal, &text) {
                        prop_assert!(matches(&levels, &words));
                        prop_assert!(readable, "{text} matches {topic:?}");
                    }
                    prop_assert_eq!(access.may_subscribe(&principal, &words.join("/")), readable);
                }
            }
        }
    }
}
