//! Whether an agent, or a source, is there: what it says when it has subscribed, and, as its last
//! will, what the broker says for it when it is gone.
//!
//! This is muster's own: others know no such type, and drop it. The message is retained, so that who
//! starts knows, too.

use crate::event::extension::{CLUSTER_NAME, ORIGINAL_SOURCE};
use crate::{Action, DataType, Event, EventType, ExtensionError, Stamp, SubResource, TypeError};

/// Whether the agent of a cluster is connected.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Presence {
    /// The cluster.
    pub cluster: String,
    /// Whether its agent is there.
    pub connected: bool,
}

#[derive(serde::Serialize, serde::Deserialize)]
struct Data {
    connected: bool,
}

fn data(connected: bool) -> Vec<u8> {
    // A boolean always encodes.
    serde_json::to_vec(&Data { connected }).unwrap_or_default()
}

/// What cannot be read says nothing but that somebody was there.
fn is_connected(event: &Event) -> bool {
    let data: Option<Data> = serde_json::from_slice(&event.data).ok();
    data.is_none_or(|data| data.connected)
}

/// Whether a source is connected; its id is the event's source.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SourcePresence {
    /// Whether it is there.
    pub connected: bool,
}

impl SourcePresence {
    fn data_type() -> DataType {
        DataType::new("dev.muster.sources", "v1alpha1", "presences")
    }

    /// As an event of this source, for all agents.
    pub fn event(self, stamp: Stamp, source: &str) -> Event {
        let action = Action::UpdateRequest;
        let event_type = EventType::new(Self::data_type(), SubResource::Spec, action);
        Event::new(stamp, source, &event_type)
            .with(CLUSTER_NAME, "")
            .with(ORIGINAL_SOURCE, "")
            .with_json(data(self.connected))
    }

    /// Takes it out of an event, if it is one.
    ///
    /// # Errors
    ///
    /// The event does not say what it is.
    pub fn read(event: &Event) -> Result<Option<Self>, TypeError> {
        let is_one = event.event_type()?.data_type == Self::data_type();
        let connected = is_connected(event);
        Ok(is_one.then_some(Self { connected }))
    }
}

impl Presence {
    fn data_type() -> DataType {
        DataType::new("dev.muster.agents", "v1alpha1", "presences")
    }

    /// As an event of this agent.
    pub fn event(&self, stamp: Stamp, agent: &str) -> Event {
        let action = Action::UpdateRequest;
        let event_type = EventType::new(Self::data_type(), SubResource::Status, action);
        Event::new(stamp, agent, &event_type)
            .with(CLUSTER_NAME, &*self.cluster)
            .with(ORIGINAL_SOURCE, "")
            .with_json(data(self.connected))
    }

    /// Takes it out of an event, if it is one.
    ///
    /// # Errors
    ///
    /// The event does not say what it is, or for which cluster.
    pub fn read(event: &Event) -> Result<Option<Self>, ReadError> {
        if event.event_type()?.data_type != Self::data_type() {
            return Ok(None);
        }
        let cluster = event.require(CLUSTER_NAME)?.to_owned();
        let connected = is_connected(event);
        Ok(Some(Self { cluster, connected }))
    }
}

/// An event that does not say what it is.
#[derive(Debug, thiserror::Error)]
pub enum ReadError {
    /// It has no type.
    #[error(transparent)]
    Type(#[from] TypeError),
    /// It names no cluster.
    #[error(transparent)]
    Extension(#[from] ExtensionError),
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_said_is_understood() {
        for connected in [true, false] {
            let said = Presence {
                cluster: "edge-a".to_owned(),
                connected,
            };
            let event = said.event(Stamp::now(), "edge-a-work-agent");
            assert_eq!(Presence::read(&event).unwrap(), Some(said));
        }
    }

    #[test]
    fn sources_are_understood_and_are_no_agents() {
        for connected in [true, false] {
            let said = SourcePresence { connected };
            let event = said.event(Stamp::now(), "hub");
            assert_eq!(SourcePresence::read(&event), Ok(Some(said)));
            assert_eq!(Presence::read(&event).unwrap(), None);
            let odd = Event {
                kind: "x".to_owned(),
                ..event
            };
            assert!(SourcePresence::read(&odd).is_err());
        }
    }

    #[test]
    fn of_other_events_it_says_nothing() {
        let presence = Presence {
            cluster: "edge-a".to_owned(),
            connected: true,
        };
        let event = presence.event(Stamp::now(), "a");
        let work = Event {
            kind: "g.v1.things.status.update_request".to_owned(),
            ..event.clone()
        };
        assert_eq!(Presence::read(&work).unwrap(), None);
        let mut nowhere = event.clone();
        nowhere.extensions.clear();
        assert!(Presence::read(&nowhere).is_err());
        let odd = Event {
            data: b"?".as_slice().into(),
            ..event
        };
        assert_eq!(Presence::read(&odd).unwrap(), Some(presence));
    }
}
