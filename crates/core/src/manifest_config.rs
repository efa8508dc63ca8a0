//! Which options of a work apply to which of its objects.

use std::collections::HashMap;

use muster_api::work::{
    ConditionRule, FeedbackRule, FeedbackScrapeType, ManifestConfigOption, UpdateStrategy,
    UpdateStrategyType,
};

use thiserror::Error;

use crate::ownership::ObjectId;

/// The options that apply to one object, put together from the entries that match it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct EffectiveConfig<'a> {
    /// Rules of the first matching entry that has any.
    pub feedback_rules: &'a [FeedbackRule],
    /// Rules of the first matching entry that has any.
    pub condition_rules: &'a [ConditionRule],
    /// Strategy of the first matching entry that has one.
    pub update_strategy: Option<&'a UpdateStrategy>,
    /// Whether the object is watched or polled.
    pub scrape: &'a FeedbackScrapeType,
}

impl EffectiveConfig<'_> {
    /// Nothing configured.
    pub const NONE: EffectiveConfig<'static> = EffectiveConfig {
        feedback_rules: &[],
        condition_rules: &[],
        update_strategy: None,
        scrape: &FeedbackScrapeType::Poll,
    };

    /// How the object is written; Update unless configured otherwise.
    pub fn strategy(&self) -> &UpdateStrategyType {
        self.update_strategy
            .map_or(&UpdateStrategyType::Update, |strategy| &strategy.type_)
    }
}

/// Most characters that are compared with wildcards in one pass over the manifests of a work: some
/// hundredths of a second.
pub const MAX_WILDCARD_STEPS: usize = 10_000_000;

/// The options of an object could not be found within [`MAX_WILDCARD_STEPS`].
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[error(
    "manifestConfigs: matching the wildcards of resourceIdentifier with the objects of the work \
     takes more than {MAX_WILDCARD_STEPS} steps, reached at {resource} {namespace}/{name}"
)]
pub struct TooManyWildcards {
    /// Resource of the object.
    pub resource: String,
    /// Its namespace; empty for a cluster-scoped object.
    pub namespace: String,
    /// Its name.
    pub name: String,
}

/// The options of a work, to be found by object.
#[derive(Debug)]
pub struct ManifestConfigs<'a> {
    entries: &'a [ManifestConfigOption],
    /// Positions of the entries for one object each.
    exact: HashMap<ObjectId<'a>, Vec<usize>>,
    /// Positions of the entries with wildcards, by group and resource.
    wildcards: HashMap<(&'a str, &'a str), Vec<usize>>,
    steps_left: usize,
}

impl<'a> ManifestConfigs<'a> {
    /// The options of one work, for one pass over its manifests.
    pub fn new(entries: &'a [ManifestConfigOption]) -> Self {
        let mut exact: HashMap<_, Vec<_>> = HashMap::new();
        let mut wildcards: HashMap<_, Vec<_>> = HashMap::new();
        for (position, entry) in entries.iter().enumerate() {
            let identifier = &entry.resource_identifier;
            let (group, resource) = (&*identifier.group, &*identifier.resource);
            let (namespace, name) = (&*identifier.namespace, &*identifier.name);
            if namespace.contains('*') || name.contains('*') {
                let of_type = wildcards.entry((group, resource)).or_default();
                of_type.push(position);
            } else {
                let object = ObjectId {
                    group,
                    resource,
                    namespace,
                    name,
                };
                exact.entry(object).or_default().push(position);
            }
        }
        Self {
            entries,
            exact,
            wildcards,
            steps_left: MAX_WILDCARD_STEPS,
        }
    }

    /// Finds the options of an object (`ocm`: `pkg/work/helper.FindManifestConfiguration`).
    ///
    /// Group and resource of an entry match exactly, name and namespace by [`wildcard_match`].
    ///
    /// Differs from upstream: an object is watched if any matching entry says so, where upstream
    /// takes the last matching entry's word and ignores an entry that says nothing else. Since the
    /// CRD fills in `Poll`, an entry about something else would otherwise end a watch.
    ///
    /// # Errors
    ///
    /// All objects of the pass together take more than [`MAX_WILDCARD_STEPS`].
    pub fn find(&mut self, object: ObjectId<'_>) -> Result<EffectiveConfig<'a>, TooManyWildcards> {
        let mut matching = self.exact.get(&object).cloned().unwrap_or_default();
        let of_type = self.wildcards.get(&(object.group, object.resource));
        for position in of_type.into_iter().flatten() {
            let identifier = &self.entries[*position].resource_identifier;
            let steps_left = &mut self.steps_left;
            let matches =
                wildcard_match_within(&identifier.namespace, object.namespace, steps_left)
                    .and_then(|matches| match matches {
                        true => wildcard_match_within(&identifier.name, object.name, steps_left),
                        false => Some(false),
                    });
            match matches {
                Some(true) => matching.push(*position),
                Some(false) => {}
                None => {
                    return Err(TooManyWildcards {
                        resource: object.resource.to_owned(),
                        namespace: object.namespace.to_owned(),
                        name: object.name.to_owned(),
                    });
                }
            }
        }
        matching.sort_unstable();
        let entries = self.entries;
        Ok(put_together(
            matching.into_iter().map(|position| &entries[position]),
        ))
    }
}

fn put_together<'a>(
    matching: impl Iterator<Item = &'a ManifestConfigOption>,
) -> EffectiveConfig<'a> {
    let mut found: EffectiveConfig<'a> = EffectiveConfig::NONE;
    for config in matching {
        if found.feedback_rules.is_empty() {
            found.feedback_rules = &config.feedback_rules;
        }
        if found.condition_rules.is_empty() {
            found.condition_rules = &config.condition_rules;
        }
        found.update_strategy = found.update_strategy.or(config.update_strategy.as_ref());
        if config.feedback_scrape_type == FeedbackScrapeType::Watch {
            found.scrape = &config.feedback_scrape_type;
        }
    }
    found
}

/// Whether a text matches a pattern in which `*` stands for any run of characters and everything
/// else for itself. A `*` that is not the whole pattern stays within a line.
pub fn wildcard_match(pattern: &str, text: &str) -> bool {
    let mut unlimited = usize::MAX;
    wildcard_match_within(pattern, text, &mut unlimited).unwrap_or(false)
}

/// [`wildcard_match`], as far as there are steps left.
fn wildcard_match_within(pattern: &str, text: &str, steps_left: &mut usize) -> Option<bool> {
    *steps_left = steps_left.checked_sub(1)?;
    if pattern == "*" {
        return Some(true);
    }
    let mut lines = text.split('\n');
    for pattern in pattern.split('\n') {
        let Some(line) = lines.next() else {
            return Some(false);
        };
        if !line_matches(pattern.as_bytes(), line.as_bytes(), steps_left)? {
            return Some(false);
        }
    }
    Some(lines.next().is_none())
}

/// Goes through the text once; where it stops to match, the last star takes one byte more.
fn line_matches(pattern: &[u8], text: &[u8], steps_left: &mut usize) -> Option<bool> {
    let (mut at, mut read) = (0, 0);
    let mut last_star: Option<(usize, usize)> = None;
    while read < text.len() {
        *steps_left = steps_left.checked_sub(1)?;
        if pattern.get(at) == Some(&b'*') {
            at += 1;
            last_star = Some((at, read));
        } else if pattern.get(at) == Some(&text[read]) {
            at += 1;
            read += 1;
        } else if let Some((after, taken)) = last_star {
            (at, read) = (after, taken + 1);
            last_star = Some((after, taken + 1));
        } else {
            return Some(false);
        }
    }
    Some(pattern[at..].iter().all(|&rest| rest == b'*'))
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn configs(names: impl IntoIterator<Item = String>) -> Vec<ManifestConfigOption> {
        let config = |name: String| -> Value {
            json!({"resourceIdentifier": {"resource": "configmaps", "namespace": "n", "name": name},
                "feedbackScrapeType": "Watch"})
        };
        let all: Value = names.into_iter().map(config).collect();
        serde_json::from_value(all).unwrap()
    }

    fn object(name: &str) -> ObjectId<'_> {
        ObjectId {
            group: "",
            resource: "configmaps",
            namespace: "n",
            name,
        }
    }

    #[test]
    fn options_by_name_cost_nothing_of_the_budget_of_wildcards() {
        let names: Vec<String> = (0..20_000).map(|n| format!("cm-{n}")).collect();
        let configs = configs(names.iter().cloned());
        let mut found = ManifestConfigs::new(&configs);
        for name in &names {
            let config = found.find(object(name)).unwrap();
            assert_eq!(*config.scrape, FeedbackScrapeType::Watch, "{name}");
        }
        assert_eq!(found.steps_left, MAX_WILDCARD_STEPS);
        assert_eq!(found.find(object("other")), Ok(EffectiveConfig::NONE));
    }

    #[test]
    fn wildcards_that_take_too_long_are_given_up_with_the_objects_name() {
        // Each takes a step for each pair of characters.
        let hard = "a".repeat(2_000);
        let patterns = (0..100).map(|n| format!("*{hard}{n}"));
        let hard = configs(patterns);
        let text = "a".repeat(4_000);
        let mut found = ManifestConfigs::new(&hard);
        let error = (0..100).find_map(|_| found.find(object(&text)).err());
        let error = error.unwrap().to_string();
        assert!(
            error.starts_with("manifestConfigs: ")
                && error.contains("more than 10000000 steps, reached at configmaps n/aaa"),
            "{error}"
        );
        let easy = configs(["*".to_owned()]);
        let mut found = ManifestConfigs::new(&easy);
        for _ in 0..100_000 {
            let config = found.find(object("any")).unwrap();
            assert_eq!(*config.scrape, FeedbackScrapeType::Watch);
        }
    }
}
