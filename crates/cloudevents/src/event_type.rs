//! What an event is about: `<group>.<version>.<resource>.<subresource>.<action>`.

use std::fmt;
use std::str::FromStr;

/// The type of the resources in the data of events, as in
/// `io.open-cluster-management.works.v1alpha1.manifestbundles`.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct DataType {
    /// API group; has dots itself.
    pub group: String,
    /// API version.
    pub version: String,
    /// Resource name.
    pub resource: String,
}

impl DataType {
    /// A type by its parts.
    pub fn new(
        group: impl Into<String>,
        version: impl Into<String>,
        resource: impl Into<String>,
    ) -> Self {
        Self {
            group: group.into(),
            version: version.into(),
            resource: resource.into(),
        }
    }
}

impl fmt::Display for DataType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}.{}", self.group, self.version, self.resource)
    }
}

/// Which half of a resource an event carries.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum SubResource {
    /// What is wanted: from a source to an agent, and asked for by agents.
    Spec,
    /// What is: from an agent to a source, and asked for by sources.
    Status,
}

impl fmt::Display for SubResource {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Spec => "spec",
            Self::Status => "status",
        })
    }
}

/// What happened. Receivers tell requests for a resync from everything else, and nothing more.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Action {
    /// A resource is new.
    CreateRequest,
    /// A resource, or its status, has changed.
    UpdateRequest,
    /// A resource is to go.
    DeleteRequest,
    /// Asks for what the sender may have missed.
    ResyncRequest,
    /// Answers that.
    ResyncResponse,
    /// One that this version does not know.
    Other(String),
}

const ACTIONS: [(Action, &str); 5] = [
    (Action::CreateRequest, "create_request"),
    (Action::UpdateRequest, "update_request"),
    (Action::DeleteRequest, "delete_request"),
    (Action::ResyncRequest, "resync_request"),
    (Action::ResyncResponse, "resync_response"),
];

impl From<&str> for Action {
    fn from(text: &str) -> Self {
        let mut known = ACTIONS.into_iter();
        let known = known.find(|(_, name)| *name == text);
        known.map_or_else(|| Self::Other(text.to_owned()), |(action, _)| action)
    }
}

impl fmt::Display for Action {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Self::Other(text) = self {
            return f.write_str(text);
        }
        let known = ACTIONS.iter().find(|(action, _)| action == self);
        f.write_str(known.map_or("", |(_, name)| name))
    }
}

/// The type of an event.
///
/// ```
/// use muster_cloudevents::{Action, EventType, SubResource};
///
/// let text = "io.open-cluster-management.works.v1alpha1.manifestbundles.spec.create_request";
/// let event_type: EventType = text.parse()?;
/// assert_eq!(event_type.data_type.group, "io.open-cluster-management.works");
/// assert_eq!(event_type.sub_resource, SubResource::Spec);
/// assert_eq!(event_type.action, Action::CreateRequest);
/// assert_eq!(event_type.to_string(), text);
/// # Ok::<(), muster_cloudevents::TypeError>(())
/// ```
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct EventType {
    /// What the data is of.
    pub data_type: DataType,
    /// Which half.
    pub sub_resource: SubResource,
    /// What happened.
    pub action: Action,
}

impl EventType {
    /// A type by its parts.
    pub const fn new(data_type: DataType, sub_resource: SubResource, action: Action) -> Self {
        Self {
            data_type,
            sub_resource,
            action,
        }
    }

    /// Whether the event asks for what its sender may have missed.
    pub fn is_resync_request(&self) -> bool {
        self.action == Action::ResyncRequest
    }
}

impl fmt::Display for EventType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            data_type,
            sub_resource,
            action,
        } = self;
        write!(f, "{data_type}.{sub_resource}.{action}")
    }
}

/// A text is no type. The texts are sdk-go's.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum TypeError {
    /// Fewer than five parts.
    #[error("unsupported cloudevents type format: {0}")]
    Event(String),
    /// Fewer than three parts.
    #[error("unsupported cloudevents data type format: {0}")]
    Data(String),
    /// Neither spec nor status.
    #[error("unsupported subresource {0}")]
    SubResource(String),
}

impl FromStr for DataType {
    type Err = TypeError;

    fn from_str(text: &str) -> Result<Self, TypeError> {
        let mut parts = text.rsplitn(3, '.');
        match (parts.next(), parts.next(), parts.next()) {
            (Some(resource), Some(version), Some(group)) => Ok(Self::new(group, version, resource)),
            _ => Err(TypeError::Data(text.to_owned())),
        }
    }
}

impl FromStr for EventType {
    type Err = TypeError;

    fn from_str(text: &str) -> Result<Self, TypeError> {
        let bad = || TypeError::Event(text.to_owned());
        let mut parts = text.rsplitn(3, '.');
        let (Some(action), Some(sub_resource), Some(data_type)) =
            (parts.next(), parts.next(), parts.next())
        else {
            return Err(bad());
        };
        let data_type = data_type.parse().map_err(|_| bad())?;
        let sub_resource = match sub_resource {
            "spec" => SubResource::Spec,
            "status" => SubResource::Status,
            other => return Err(TypeError::SubResource(other.to_owned())),
        };
        Ok(Self::new(data_type, sub_resource, action.into()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// T01, T02.
    #[test]
    fn a_type_is_its_five_parts() {
        let text = "io.open-cluster-management.works.v1alpha1.manifests.spec.create_request";
        let parsed: EventType = text.parse().unwrap();
        let data_type = DataType::new("io.open-cluster-management.works", "v1alpha1", "manifests");
        let expected = EventType::new(data_type, SubResource::Spec, Action::CreateRequest);
        assert_eq!(parsed, expected);
        assert_eq!(parsed.to_string(), text);
        assert!(!parsed.is_resync_request());
    }

    /// T03, T04, T05.
    #[test]
    fn what_is_no_type_is_named() {
        let error = |text: &str| text.parse::<EventType>().unwrap_err().to_string();
        assert_eq!(error("test"), "unsupported cloudevents type format: test");
        assert_eq!(
            error("a.b.spec.create_request"),
            "unsupported cloudevents type format: a.b.spec.create_request"
        );
        assert_eq!(
            error("a.v1.b.unsupported.create_request"),
            "unsupported subresource unsupported"
        );
        let error = |text: &str| text.parse::<DataType>().unwrap_err().to_string();
        assert_eq!(error(""), "unsupported cloudevents data type format: ");
        assert_eq!(
            error("v1.b"),
            "unsupported cloudevents data type format: v1.b"
        );
    }

    #[test]
    fn an_unknown_action_is_kept() {
        let text = "a.v1.b.status.watch_request";
        let parsed: EventType = text.parse().unwrap();
        assert_eq!(parsed.action, Action::Other("watch_request".to_owned()));
        assert_eq!(parsed.to_string(), text);
        for (action, name) in ACTIONS {
            assert_eq!(
                (Action::from(name), action.to_string()),
                (action, name.to_owned())
            );
        }
    }
}
