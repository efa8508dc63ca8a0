//! Which options of a work apply to which of its objects.

use muster_api::work::{
    ConditionRule, FeedbackRule, FeedbackScrapeType, ManifestConfigOption, UpdateStrategy,
    UpdateStrategyType,
};

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

/// Finds the options of an object (`ocm`: `pkg/work/helper.FindManifestConfiguration`).
///
/// Group and resource of an entry match exactly, name and namespace by [`wildcard_match`].
///
/// Differs from upstream: an object is watched if any matching entry says so, where upstream
/// takes the last matching entry's word and ignores an entry that says nothing else. Since the
/// CRD fills in `Poll`, an entry about something else would otherwise end a watch.
pub fn find_config<'a>(
    configs: &'a [ManifestConfigOption],
    object: ObjectId<'_>,
) -> EffectiveConfig<'a> {
    let mut found: EffectiveConfig<'a> = EffectiveConfig::NONE;
    let matching = configs.iter().filter(|config| {
        let identifier = &config.resource_identifier;
        identifier.group == object.group
            && identifier.resource == object.resource
            && wildcard_match(&identifier.namespace, object.namespace)
            && wildcard_match(&identifier.name, object.name)
    });
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
    if pattern == "*" {
        return true;
    }
    let mut lines = text.split('\n');
    pattern.split('\n').all(|pattern| {
        lines
            .next()
            .is_some_and(|line| line_matches(pattern.as_bytes(), line.as_bytes()))
    }) && lines.next().is_none()
}

/// Goes through the text once; where it stops to match, the last star takes one byte more.
fn line_matches(pattern: &[u8], text: &[u8]) -> bool {
    let (mut at, mut read) = (0, 0);
    let mut last_star: Option<(usize, usize)> = None;
    while read < text.len() {
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
            return false;
        }
    }
    pattern[at..].iter().all(|&rest| rest == b'*')
}
