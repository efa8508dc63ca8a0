//! Resync: what one side may have missed, and what the other sends it.
//!
//! An agent tells a source the versions that it has of that source's resources; a source tells
//! agents the hashes of the statuses that it has. An empty list asks for everything. The answers
//! are ordinary events.

use std::collections::{BTreeMap, BTreeSet};

use serde::{Deserialize, Deserializer, Serialize};
use serde_json::Value;

/// What of a resource decides about resync.
pub trait Resource {
    /// Its uid.
    fn uid(&self) -> &str;
    /// The version of its spec; 0 where versions are not kept, which then is always sent.
    fn version(&self) -> i64;
    /// Whether it is to go.
    fn is_deleting(&self) -> bool;
}

/// The version that an agent has of a resource.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct ResourceVersion {
    /// Its uid.
    #[serde(rename = "resourceID")]
    pub id: String,
    /// The version.
    #[serde(rename = "resourceVersion")]
    pub version: i64,
}

/// The data of a request for specs.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub struct ResourceVersions {
    /// What the agent has.
    #[serde(rename = "resourceVersions")]
    pub versions: Vec<ResourceVersion>,
}

/// The hash of a status that a source has.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct StatusHash {
    /// The uid of the resource.
    #[serde(rename = "resourceID")]
    pub id: String,
    /// The hash.
    #[serde(rename = "statusHash")]
    pub hash: String,
}

/// The data of a request for statuses.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub struct StatusHashes {
    /// What the source has.
    #[serde(rename = "statusHashes")]
    pub hashes: Vec<StatusHash>,
}

// Go reads a key in any letter case, takes null and a missing key for an empty list, and ignores
// the rest; and the design text shows versions as text.

/// A field by its name in any letter case.
fn field<'a>(value: &'a Value, name: &str) -> Option<&'a Value> {
    let mut fields = value.as_object()?.iter();
    fields
        .find(|(key, _)| key.eq_ignore_ascii_case(name))
        .map(|(_, value)| value)
}

fn items<'a>(value: &'a Value, name: &str) -> Result<&'a [Value], String> {
    if !value.is_object() && !value.is_null() {
        return Err("it is no object".to_owned());
    }
    match field(value, name) {
        None | Some(Value::Null) => Ok(&[]),
        Some(Value::Array(items)) => Ok(items),
        Some(_) => Err(format!("{name} is no list")),
    }
}

fn text(item: &Value, name: &str) -> Result<String, String> {
    let text = field(item, name).and_then(Value::as_str);
    text.map(ToOwned::to_owned)
        .ok_or_else(|| format!("{name} is missing or no text"))
}

impl<'de> Deserialize<'de> for ResourceVersions {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let read = |value: &Value| -> Result<Self, String> {
            let one = |item: &Value| {
                let version = field(item, "resourceVersion");
                let version = version.and_then(|version| match version {
                    Value::String(text) => text.parse().ok(),
                    other => other.as_i64(),
                });
                Ok(ResourceVersion {
                    id: text(item, "resourceID")?,
                    version: version.ok_or("resourceVersion is missing or no whole number")?,
                })
            };
            let items = items(value, "resourceVersions")?;
            let versions = items.iter().map(one).collect::<Result<_, String>>()?;
            Ok(Self { versions })
        };
        read(&Value::deserialize(deserializer)?).map_err(serde::de::Error::custom)
    }
}

impl<'de> Deserialize<'de> for StatusHashes {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let read = |value: &Value| -> Result<Self, String> {
            let one = |item: &Value| {
                Ok(StatusHash {
                    id: text(item, "resourceID")?,
                    hash: text(item, "statusHash")?,
                })
            };
            let items = items(value, "statusHashes")?;
            let hashes = items.iter().map(one).collect::<Result<_, String>>()?;
            Ok(Self { hashes })
        };
        read(&Value::deserialize(deserializer)?).map_err(serde::de::Error::custom)
    }
}

/// What a source sends to an agent that has asked for specs.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum SpecAnswer<'a, T> {
    /// This resource, as it is.
    Send(&'a T),
    /// The deletion of a resource that the source does not have, in the version that the agent has.
    Forget(&'a ResourceVersion),
}

/// Answers an agent. `own` are the source's resources for its cluster; `complete` says that they
/// are all of them: before, what is not among them may only not be there yet.
///
/// Differs from sdk-go, which deletes nothing on an agent whose cluster has no resource at the
/// source, since it cannot tell an empty store from one that is not filled yet.
pub fn answer_specs<'a, T: Resource>(
    own: &'a [T],
    reported: &'a ResourceVersions,
    complete: bool,
) -> Vec<SpecAnswer<'a, T>> {
    let last: BTreeMap<_, _> = reported
        .versions
        .iter()
        .map(|reported| (reported.id.as_str(), reported.version))
        .collect();
    let newer = own.iter().filter(|resource| {
        let last = last.get(resource.uid()).copied().unwrap_or_default();
        resource.is_deleting() || resource.version() == 0 || resource.version() > last
    });
    let mut answers: Vec<_> = newer.map(SpecAnswer::Send).collect();
    if complete {
        let known: BTreeSet<_> = own.iter().map(Resource::uid).collect();
        let unknown = reported.versions.iter();
        let unknown = unknown.filter(|reported| !known.contains(reported.id.as_str()));
        answers.extend(unknown.map(SpecAnswer::Forget));
    }
    answers
}

/// Answers a source: the resources of its own whose status it is to hear of. Those that a list
/// leaves out are not meant, unless it is empty.
pub fn answer_statuses<'a, T: Resource>(
    own: &'a [T],
    asked: &StatusHashes,
    hash: impl Fn(&T) -> String,
) -> Vec<&'a T> {
    if asked.hashes.is_empty() {
        return own.iter().collect();
    }
    let known: BTreeMap<_, _> = asked
        .hashes
        .iter()
        .map(|asked| (asked.id.as_str(), asked.hash.as_str()))
        .collect();
    own.iter()
        .filter(|resource| {
            let known = known.get(resource.uid());
            known.is_some_and(|known| **known != hash(resource))
        })
        .collect()
}

/// Splits a request for statuses into parts whose data has at most so many bytes, a single entry
/// apart. An agent answers each part by itself. An empty list stays one part: it asks for all.
pub fn split_hashes(asked: StatusHashes, most_bytes: usize) -> Vec<StatusHashes> {
    /// `{"resourceID":"","statusHash":""},`
    const AROUND: usize = 34;
    /// `{"statusHashes":[]}`
    const ENVELOPE: usize = 19;
    let mut parts = vec![StatusHashes::default()];
    let mut bytes = ENVELOPE;
    for entry in asked.hashes {
        let more = AROUND + entry.id.len() + entry.hash.len();
        let is_full = parts.last().is_some_and(|part| !part.hashes.is_empty());
        if is_full && bytes + more > most_bytes {
            parts.push(StatusHashes::default());
            bytes = ENVELOPE;
        }
        bytes += more;
        if let Some(part) = parts.last_mut() {
            part.hashes.push(entry);
        }
    }
    parts
}

/// Splits a request for specs into parts whose data has at most so many bytes, a single entry apart.
/// An empty list stays one part.
///
/// Unlike those of [`split_hashes`], parts mean nothing by themselves: what a list leaves out counts
/// as not there. They are put together by [`Parts`]; a source that does not know of parts answers
/// each with all that the others list, which is much, and right.
pub fn split_versions(own: &ResourceVersions, most_bytes: usize) -> Vec<ResourceVersions> {
    /// `{"resourceID":"","resourceVersion":},` and the digits of a version.
    const AROUND: usize = 38 + 19;
    let mut parts = vec![ResourceVersions::default()];
    let mut bytes = 0;
    for entry in &own.versions {
        let more = AROUND + entry.id.len();
        let is_full = parts.last().is_some_and(|part| !part.versions.is_empty());
        if is_full && bytes + more > most_bytes {
            parts.push(ResourceVersions::default());
            bytes = 0;
        }
        bytes += more;
        if let Some(part) = parts.last_mut() {
            part.versions.push(entry.clone());
        }
    }
    parts
}

/// Parts of the requests of agents that have not all come yet; one request for each cluster.
#[derive(Debug, Default)]
pub struct Parts(BTreeMap<String, Collected>);

#[derive(Debug)]
struct Collected {
    id: String,
    parts: Vec<Option<ResourceVersions>>,
}

/// More parts than any request has: what says so is no request of ours.
const MOST_PARTS: usize = 1_000;

impl Parts {
    /// A part has come, such as `1/3`. Gives the whole request when all have.
    ///
    /// # Errors
    ///
    /// It is no part; the text says what was expected.
    pub fn add(
        &mut self,
        cluster: &str,
        id: &str,
        part: &str,
        versions: ResourceVersions,
    ) -> Result<Option<ResourceVersions>, &'static str> {
        let numbers = part.split_once('/');
        let numbers = numbers.and_then(|(at, of)| {
            let (at, of) = (at.parse::<usize>().ok()?, of.parse::<usize>().ok()?);
            (1..=of).contains(&at).then_some((at, of))
        });
        let (at, of) = numbers
            .filter(|(_, of)| *of <= MOST_PARTS)
            .ok_or("a part such as 1/3")?;
        let fresh = || Collected {
            id: id.to_owned(),
            parts: vec![None; of],
        };
        let collected = self.0.entry(cluster.to_owned()).or_insert_with(fresh);
        // A newer request: what is left of another will never come.
        if collected.id != id || collected.parts.len() != of {
            *collected = fresh();
        }
        collected.parts[at - 1] = Some(versions);
        if collected.parts.iter().any(Option::is_none) {
            return Ok(None);
        }
        let collected = self.0.remove(cluster);
        let parts = collected.into_iter().flat_map(|collected| collected.parts);
        let versions = parts.flatten().flat_map(|part| part.versions).collect();
        Ok(Some(ResourceVersions { versions }))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_long_request_is_put_together_from_its_parts() {
        let ids: Vec<_> = (0..5_000).map(|at| format!("{at:036}")).collect();
        let all: Vec<_> = ids.iter().map(|id| (id.as_str(), i64::MAX)).collect();
        let all = reported(&all);
        let parts = split_versions(&all, 120 * 1024);
        assert_eq!(parts.len(), 4);
        for part in &parts {
            assert!(serde_json::to_vec(part).unwrap().len() < 121 * 1024);
        }
        let mut collected = Parts::default();
        let mut add = |cluster: &str, id: &str, at: usize| {
            let part = parts[at].clone();
            collected.add(cluster, id, &format!("{}/4", at + 1), part)
        };
        // In any order, twice, with those of another cluster and of an older request between.
        assert_eq!(add("a", "old", 3), Ok(None));
        for (cluster, id, at) in [("a", "x", 2), ("b", "x", 3), ("a", "x", 0), ("a", "x", 0)] {
            assert_eq!(add(cluster, id, at), Ok(None));
        }
        assert_eq!(add("a", "x", 3), Ok(None));
        assert_eq!(add("a", "x", 1), Ok(Some(all)));
        assert_eq!(add("a", "x", 1), Ok(None), "the next request");
        for wrong in ["", "1", "0/3", "4/3", "1/x", "1/100000000"] {
            let none = ResourceVersions::default();
            let error = collected.add("a", "x", wrong, none).unwrap_err();
            assert_eq!(error, "a part such as 1/3");
        }
        let none = ResourceVersions::default();
        assert_eq!(split_versions(&none, 10), [none]);
    }

    #[derive(Debug, PartialEq, Eq)]
    struct Thing {
        uid: &'static str,
        version: i64,
        deleting: bool,
    }

    impl Resource for Thing {
        fn uid(&self) -> &str {
            self.uid
        }

        fn version(&self) -> i64 {
            self.version
        }

        fn is_deleting(&self) -> bool {
            self.deleting
        }
    }

    fn thing(version: i64, deleting: bool) -> Thing {
        Thing {
            uid: "a",
            version,
            deleting,
        }
    }

    fn reported(versions: &[(&str, i64)]) -> ResourceVersions {
        let versions = versions.iter().map(|(id, version)| ResourceVersion {
            id: (*id).to_owned(),
            version: *version,
        });
        ResourceVersions {
            versions: versions.collect(),
        }
    }

    fn asked(hashes: &[(&str, &str)]) -> StatusHashes {
        let hashes = hashes.iter().map(|(id, hash)| StatusHash {
            id: (*id).to_owned(),
            hash: (*hash).to_owned(),
        });
        StatusHashes {
            hashes: hashes.collect(),
        }
    }

    /// The table of sdk-go's source.
    #[test]
    fn an_agent_gets_what_it_lacks() {
        for (reports, own, sent) in [
            (vec![], thing(2, false), true),
            (vec![("a", 1)], thing(2, false), true),
            (vec![("a", 2)], thing(2, false), false),
            (vec![("a", 3)], thing(2, false), false),
            (vec![("a", 9)], thing(0, false), true),
            (vec![("a", 9)], thing(2, true), true),
        ] {
            let (own, reports) = ([own], reported(&reports));
            let answers = answer_specs(&own, &reports, true);
            let expected: Vec<_> = own.iter().filter(|_| sent).map(SpecAnswer::Send).collect();
            assert_eq!(answers, expected, "{reports:?}");
        }
    }

    #[test]
    fn what_the_source_does_not_have_is_forgotten_once_it_knows_all_it_has() {
        let reports = reported(&[("a", 2), ("gone", 7)]);
        let gone = SpecAnswer::Forget(&reports.versions[1]);
        let own = [thing(2, false)];
        assert_eq!(answer_specs(&own, &reports, true), [gone]);
        assert_eq!(answer_specs(&own, &reports, false), []);
        let none: [Thing; 0] = [];
        assert_eq!(answer_specs(&none, &reports, true).len(), 2);
        assert_eq!(answer_specs(&none, &reports, false), []);
    }

    #[test]
    fn a_source_gets_statuses_that_differ() {
        let own = [thing(1, false)];
        let hash = |_: &Thing| "h".to_owned();
        assert_eq!(answer_statuses(&own, &asked(&[]), hash).len(), 1);
        assert_eq!(answer_statuses(&own, &asked(&[("a", "h")]), hash).len(), 0);
        assert_eq!(answer_statuses(&own, &asked(&[("a", "x")]), hash).len(), 1);
        assert_eq!(answer_statuses(&own, &asked(&[("b", "x")]), hash).len(), 0);
    }

    #[test]
    fn lists_are_read_as_leniently_as_go_reads_them() {
        let versions = |json: &str| serde_json::from_str::<ResourceVersions>(json);
        for empty in [
            "{}",
            r#"{"resourceVersions": null}"#,
            r#"{"resourceversions": [], "more": 1}"#,
        ] {
            assert_eq!(versions(empty).unwrap(), ResourceVersions::default());
        }
        let odd = r#"{"RESOURCEVERSIONS": [{"resourceid": "a", "ResourceVersion": "3"}]}"#;
        assert_eq!(versions(odd).unwrap(), reported(&[("a", 3)]));
        let error = |json: &str| versions(json).unwrap_err().to_string();
        assert!(error(r#"{"resourceVersions": 7}"#).contains("resourceVersions is no list"));
        let missing = r#"{"resourceVersions": [{"resourceID": "a"}]}"#;
        assert!(error(missing).contains("resourceVersion is missing"));
        let hashes = serde_json::from_str::<StatusHashes>(r#"{"statusHashes": [{}]}"#);
        assert!(
            hashes
                .unwrap_err()
                .to_string()
                .contains("resourceID is missing")
        );
    }

    #[test]
    fn a_long_list_is_split_below_what_a_broker_takes() {
        let entries: Vec<_> = (0..5_000).map(|at| format!("{at:036}")).collect();
        let hash = "0".repeat(64);
        let entries: Vec<_> = entries
            .iter()
            .map(|id| (id.as_str(), hash.as_str()))
            .collect();
        let all = asked(&entries);
        let parts = split_hashes(all.clone(), 128 * 1024);
        for part in &parts {
            let bytes = serde_json::to_vec(part).unwrap().len();
            assert!(bytes <= 128 * 1024, "{bytes}");
        }
        assert_eq!(parts.len(), 6);
        let joined: Vec<_> = parts.into_iter().flat_map(|part| part.hashes).collect();
        assert_eq!(joined, all.hashes);
        assert_eq!(split_hashes(asked(&[]), 10), [asked(&[])]);
        assert_eq!(split_hashes(asked(&[("a", "h"), ("b", "h")]), 1).len(), 2);
    }
}
