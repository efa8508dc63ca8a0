//! A node of the tree.

use std::fmt;

use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
use serde::Serialize;

/// How something stands; the greater, the worse.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum State {
    /// As it should be.
    #[default]
    Ok,
    /// Something is still to come.
    Waiting,
    /// Nobody can tell.
    Unknown,
    /// Something is wrong.
    Failed,
}

impl fmt::Display for State {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::Ok => "ok",
            Self::Waiting => "waiting",
            Self::Unknown => "unknown",
            Self::Failed => "failed",
        })
    }
}

/// What is said of one object by itself, whatever is below it.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Verdict {
    /// How it stands.
    pub state: State,
    /// Why, as a word: that of the condition, or one of [`super::reasons`]. Empty where all is well.
    pub reason: String,
    /// Why, for people.
    pub message: String,
    /// Since when, as far as known.
    pub since: Option<Timestamp>,
}

impl Verdict {
    /// A verdict with a reason of its own.
    pub fn new(state: State, reason: &str, message: impl Into<String>) -> Self {
        Self {
            state,
            reason: reason.to_owned(),
            message: message.into(),
            since: None,
        }
    }

    /// What a condition says.
    pub fn of(state: State, condition: &Condition) -> Self {
        let message = if condition.message.is_empty() {
            format!("{} is {}", condition.type_, condition.status)
        } else {
            condition.message.clone()
        };
        Self::new(state, &condition.reason, message).since(condition.last_transition_time.0)
    }

    /// The same with a time.
    #[must_use]
    pub fn since(mut self, since: impl Into<Option<Timestamp>>) -> Self {
        self.since = since.into();
        self
    }

    /// Whether all is well.
    pub const fn is_ok(&self) -> bool {
        matches!(self.state, State::Ok)
    }
}

/// An object, how it stands, and what is below it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Node {
    /// Kind of the object.
    pub kind: String,
    /// Its namespace; empty for objects without one.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub namespace: String,
    /// Its name.
    pub name: String,
    /// The worst of its own state and those below it.
    pub state: State,
    /// Its own, which the reason is for.
    pub own_state: State,
    /// Why, as a word; empty where it is only below that something is not as it should be.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub reason: String,
    /// Why, for people.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub message: String,
    /// Since when.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub since: Option<Timestamp>,
    /// What it waits for: names of clusters that go first.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub waits_for: Vec<String>,
    /// What is not as it should be and holds nothing up.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub warnings: Vec<String>,
    /// What is below it.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub children: Vec<Self>,
}

/// `Deployment default/web`
impl fmt::Display for Node {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} ", self.kind)?;
        if !self.namespace.is_empty() {
            write!(f, "{}/", self.namespace)?;
        }
        f.write_str(&self.name)
    }
}

impl Node {
    /// An object about which nothing is said yet.
    pub(super) fn new(
        kind: impl Into<String>,
        namespace: impl Into<String>,
        name: impl Into<String>,
    ) -> Self {
        Self {
            kind: kind.into(),
            namespace: namespace.into(),
            name: name.into(),
            state: State::Ok,
            own_state: State::Ok,
            reason: String::new(),
            message: String::new(),
            since: None,
            waits_for: Vec::new(),
            warnings: Vec::new(),
            children: Vec::new(),
        }
    }

    /// The same with what is said of it.
    pub(super) fn with(mut self, verdict: Verdict) -> Self {
        self.state = self.state.max(verdict.state);
        self.own_state = verdict.state;
        self.reason = verdict.reason;
        self.message = verdict.message;
        self.since = verdict.since;
        self
    }

    /// The same with what is below it, which can make its state worse.
    pub(super) fn over(mut self, children: Vec<Self>) -> Self {
        let worst = children.iter().map(|child| child.state).max();
        self.state = self.state.max(worst.unwrap_or_default());
        self.children = children;
        self
    }
}
