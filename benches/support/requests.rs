//! Requests as the servers have counted them, which no client can do without.

use std::collections::BTreeMap;

use anyhow::{Context, Result};
use http::Request;
use kube::Client;
use muster_apiserver::ApiServer;
use serde_json::Value;

/// The metric that a kube-apiserver counts answered requests in. A watch counts when it ends.
const TOTAL: &str = "apiserver_request_total";
/// What a kube-apiserver asks itself for while it idles (its lease of 10 s, its API documents), and
/// what asks for the counts. No label tells who asked.
const OF_THE_SERVER: [(&str, &str); 3] = [
    ("resource", "leases"),
    ("subresource", "openapi/v3"),
    ("subresource", "/metrics"),
];

/// Verbs that change nothing, in the words of either server.
const READS: [&str; 3] = ["GET", "LIST", "WATCH"];

/// What a request was.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Kind {
    /// `hub` or `spoke`; empty where one server is both.
    pub server: &'static str,
    /// In capitals.
    pub verb: String,
    /// Plural, or the path of what is no resource.
    pub resource: String,
}

impl Kind {
    /// Whether it changes nothing.
    pub fn reads(&self) -> bool {
        READS.contains(&self.verb.as_str())
    }
}

/// How many requests of each kind.
#[derive(Debug, Clone, Default)]
pub struct Requests(BTreeMap<Kind, u64>);

impl Requests {
    /// What an embedded server has answered since it started.
    pub fn of_embedded(server: &'static str, api: &ApiServer) -> Self {
        let requests = api.stats().requests.into_iter();
        Self(
            requests
                .map(|((verb, resource), count)| {
                    let verb = verb.to_uppercase();
                    let kind = Kind {
                        server,
                        verb,
                        resource,
                    };
                    (kind, count)
                })
                .collect(),
        )
    }

    /// What a kube-apiserver has answered to others since it started.
    pub async fn of_real(client: &Client) -> Result<Self> {
        let request = Request::get("/metrics").body(Vec::new())?;
        let metrics = client.request_text(request).await?;
        let mut requests = BTreeMap::new();
        for line in metrics.lines() {
            let Some(series) = line.strip_prefix(TOTAL) else {
                continue;
            };
            let (labels, count) = parse(series).with_context(|| format!("odd metric: {line}"))?;
            let label = |name: &str| labels.get(name).copied().unwrap_or_default();
            if OF_THE_SERVER
                .iter()
                .any(|&(name, value)| label(name) == value)
            {
                continue;
            }
            let resource = match (label("resource"), label("subresource")) {
                (resource, "") => resource.to_owned(),
                ("", path) => path.to_owned(),
                (resource, subresource) => format!("{resource}/{subresource}"),
            };
            let kind = Kind {
                server: "",
                verb: label("verb").to_owned(),
                resource,
            };
            *requests.entry(kind).or_default() += count;
        }
        Ok(Self(requests))
    }

    /// Both.
    #[must_use]
    pub fn and(mut self, more: Self) -> Self {
        self.0.extend(more.0);
        self
    }

    /// What came after `before`.
    #[must_use]
    pub fn since(mut self, before: &Self) -> Self {
        self.0.retain(|kind, count| {
            *count -= before.0.get(kind).copied().unwrap_or_default();
            *count > 0
        });
        self
    }

    /// How many are like this.
    pub fn count(&self, like: impl Fn(&Kind) -> bool) -> u64 {
        let alike = self.0.iter().filter(|(kind, _)| like(kind));
        alike.map(|(_, count)| count).sum()
    }

    /// For a figure's parameters: `{"spoke GET configmaps": 5}`.
    pub fn params(&self) -> Value {
        let name = |kind: &Kind| format!("{} {} {}", kind.server, kind.verb, kind.resource);
        let named = self.0.iter();
        named
            .map(|(kind, count)| (name(kind).trim_start().to_owned(), Value::from(*count)))
            .collect::<serde_json::Map<_, _>>()
            .into()
    }
}

/// Labels and value of a series, without its name: `{code="200",verb="GET"} 14`. The values of
/// this metric have neither commas nor quotes.
fn parse(series: &str) -> Option<(BTreeMap<&str, &str>, u64)> {
    let (labels, count) = series.strip_prefix('{')?.rsplit_once("} ")?;
    let labels = labels.split(',').map(|label| {
        let (name, value) = label.split_once('=')?;
        Some((name, value.trim_matches('"')))
    });
    Some((labels.collect::<Option<_>>()?, count.parse().ok()?))
}
