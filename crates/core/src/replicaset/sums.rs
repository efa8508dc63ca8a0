//! Feedback values of many clusters, summed up one work at a time.

use std::collections::BTreeMap;

use super::report::{Report, ResourceKey, Value};

/// How many different texts of one value a sum lists; the rest is counted in `others`.
/// Keeps the status of a set small whatever its clusters say: 16 texts of at most
/// [`MAX_TEXT`] bytes.
const MAX_TEXTS: usize = 16;
/// Longer texts are cut to this many bytes in sums; the full text stays in the ManifestWork.
const MAX_TEXT: usize = 128;

/// The sum of one value over the clusters that report it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ValueSum {
    /// Name of the value.
    pub name: String,
    /// Clusters that report it.
    pub clusters: u32,
    /// Sum, minimum, maximum, where integers are reported. The sum saturates at the int64 bounds.
    pub integers: Option<(i64, i64, i64)>,
    /// Texts and booleans with the number of clusters each, most frequent first.
    pub counts: Vec<(String, u32)>,
    /// Clusters whose text is not among `counts`.
    pub others: u32,
}

/// The sums of one object.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ResourceSum {
    /// The object.
    pub resource: ResourceKey,
    /// Its values, by name.
    pub values: Vec<ValueSum>,
}

#[derive(Debug, Clone, Default)]
struct Cell {
    clusters: u32,
    sum: i128,
    /// Multiset of the integers, so that minimum and maximum survive the removal of one.
    integers: BTreeMap<i64, u32>,
    texts: BTreeMap<String, u32>,
}

/// Running sums. Adding and removing a report cost O(values × log of the distinct values),
/// whatever the number of clusters.
#[derive(Debug, Clone, Default)]
pub struct FeedbackSums {
    cells: BTreeMap<ResourceKey, BTreeMap<String, Cell>>,
}

fn cut(text: &str) -> &str {
    if text.len() <= MAX_TEXT {
        return text;
    }
    let mut end = MAX_TEXT;
    while !text.is_char_boundary(end) {
        end -= 1;
    }
    &text[..end]
}

fn text_of(value: &Value) -> Option<&str> {
    match value {
        Value::Integer(_) => None,
        Value::Text(text) => Some(cut(text)),
        Value::Boolean(true) => Some("true"),
        Value::Boolean(false) => Some("false"),
    }
}

fn take_one<K: Ord>(counts: &mut BTreeMap<K, u32>, key: &K) {
    // Every removal follows an addition of the same report, so the entry is there.
    if let Some(count) = counts.get_mut(key) {
        *count -= 1;
        if *count == 0 {
            counts.remove(key);
        }
    }
}

impl Cell {
    fn add(&mut self, value: &Value) {
        self.clusters += 1;
        match (value, text_of(value)) {
            (Value::Integer(integer), _) => {
                self.sum += i128::from(*integer);
                *self.integers.entry(*integer).or_default() += 1;
            }
            (_, Some(text)) => match self.texts.get_mut(text) {
                Some(count) => *count += 1,
                None => {
                    self.texts.insert(text.to_owned(), 1);
                }
            },
            (_, None) => {}
        }
    }

    fn remove(&mut self, value: &Value) {
        self.clusters -= 1;
        match (value, text_of(value)) {
            (Value::Integer(integer), _) => {
                self.sum -= i128::from(*integer);
                take_one(&mut self.integers, integer);
            }
            (_, Some(text)) => take_one(&mut self.texts, &text.to_owned()),
            (_, None) => {}
        }
    }
}

impl FeedbackSums {
    /// Adds what one cluster reports.
    pub fn add(&mut self, report: &Report) {
        for (resource, values) in report.resources() {
            if values.len() == 0 {
                continue;
            }
            // Look up before cloning: the key exists for all clusters but the first.
            if !self.cells.contains_key(resource) {
                self.cells.insert(resource.clone(), BTreeMap::new());
            }
            let Some(cells) = self.cells.get_mut(resource) else {
                continue;
            };
            for (name, value) in values {
                if let Some(cell) = cells.get_mut(name) {
                    cell.add(value);
                } else {
                    cells.entry(name.to_owned()).or_default().add(value);
                }
            }
        }
    }

    /// Takes back a report that was added before.
    pub fn remove(&mut self, report: &Report) {
        for (resource, values) in report.resources() {
            let Some(cells) = self.cells.get_mut(resource) else {
                continue;
            };
            for (name, value) in values {
                let Some(cell) = cells.get_mut(name) else {
                    continue;
                };
                cell.remove(value);
                if cell.clusters == 0 {
                    cells.remove(name);
                }
            }
            if cells.is_empty() {
                self.cells.remove(resource);
            }
        }
    }

    /// Puts what a cluster reports now in the place of what it did `before`, which was added.
    pub fn replace(&mut self, before: &Report, now: &Report) {
        if !before.is_shaped_like(now) {
            self.remove(before);
            self.add(now);
            return;
        }
        // Mostly one value of many has changed.
        for ((resource, old), (_, new)) in before.resources().zip(now.resources()) {
            let Some(cells) = self.cells.get_mut(resource) else {
                continue;
            };
            for ((name, old), (_, new)) in old.zip(new).filter(|((_, old), (_, new))| old != new) {
                if let Some(cell) = cells.get_mut(name) {
                    cell.remove(old);
                    cell.add(new);
                }
            }
        }
    }

    /// The sums, ordered by resource and value name.
    pub fn sums(&self) -> Vec<ResourceSum> {
        let sum_of = |(name, cell): (&String, &Cell)| {
            let first = cell.integers.first_key_value().map(|(least, _)| *least);
            let last = cell.integers.last_key_value().map(|(most, _)| *most);
            let bounded = cell.sum.clamp(i64::MIN.into(), i64::MAX.into());
            let mut counts: Vec<(String, u32)> = cell
                .texts
                .iter()
                .map(|(text, count)| (text.clone(), *count))
                .collect();
            counts.sort_by(|a, b| b.1.cmp(&a.1).then_with(|| a.0.cmp(&b.0)));
            let others = counts.iter().skip(MAX_TEXTS).map(|(_, count)| count).sum();
            counts.truncate(MAX_TEXTS);
            ValueSum {
                name: name.clone(),
                clusters: cell.clusters,
                integers: first
                    .zip(last)
                    .map(|(least, most)| (i64::try_from(bounded).unwrap_or_default(), least, most)),
                counts,
                others,
            }
        };
        self.cells
            .iter()
            .map(|(resource, cells)| ResourceSum {
                resource: resource.clone(),
                values: cells.iter().map(sum_of).collect(),
            })
            .collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn key() -> ResourceKey {
        ResourceKey {
            group: "apps".into(),
            version: "v1".into(),
            resource: "deployments".into(),
            name: "web".into(),
            namespace: "default".into(),
        }
    }

    fn report(values: &[(&str, Value)]) -> Report {
        let values = values.iter().map(|(n, v)| ((*n).to_owned(), v.clone()));
        Report::from_iter([(key(), values.collect())])
    }

    #[test]
    fn integers_have_sum_minimum_and_maximum_also_after_removal() {
        let mut sums = FeedbackSums::default();
        let reports: Vec<_> = [3, 1, 3]
            .iter()
            .map(|n| report(&[("Ready", Value::Integer(*n))]))
            .collect();
        for report in &reports {
            sums.add(report);
        }
        let value = &sums.sums()[0].values[0];
        assert_eq!((value.clusters, value.integers), (3, Some((7, 1, 3))));
        sums.remove(&reports[1]);
        sums.remove(&reports[0]);
        let value = &sums.sums()[0].values[0];
        assert_eq!((value.clusters, value.integers), (1, Some((3, 3, 3))));
        sums.remove(&reports[2]);
        assert!(sums.sums().is_empty());
    }

    #[test]
    fn texts_are_counted_bounded_and_cut() {
        let mut sums = FeedbackSums::default();
        for n in 0..20 {
            sums.add(&report(&[("Phase", Value::Text(format!("p{n:02}")))]));
        }
        sums.add(&report(&[("Phase", Value::Text("p07".into()))]));
        sums.add(&report(&[("Phase", Value::Boolean(true))]));
        let value = sums.sums()[0].values[0].clone();
        assert_eq!(value.counts[0], ("p07".to_owned(), 2));
        assert_eq!(value.counts.len(), MAX_TEXTS);
        assert_eq!(
            (value.clusters, value.others, value.integers),
            (22, 5, None)
        );

        let mut sums = FeedbackSums::default();
        let long = report(&[("Log", Value::Text("ä".repeat(200)))]);
        sums.add(&long);
        assert_eq!(sums.sums()[0].values[0].counts[0].0, "ä".repeat(64));
        sums.remove(&long);
        assert!(sums.sums().is_empty());
    }

    #[test]
    fn sums_saturate_instead_of_overflowing() {
        let mut sums = FeedbackSums::default();
        let big = report(&[("N", Value::Integer(i64::MAX))]);
        sums.add(&big);
        sums.add(&big);
        assert_eq!(
            sums.sums()[0].values[0].integers,
            Some((i64::MAX, i64::MAX, i64::MAX))
        );
        sums.remove(&big);
        assert_eq!(
            sums.sums()[0].values[0].integers,
            Some((i64::MAX, i64::MAX, i64::MAX))
        );
    }

    fn any_value() -> impl Strategy<Value = Value> {
        prop_oneof![
            any::<i8>().prop_map(|n| Value::Integer(n.into())),
            "[ab]{0,2}".prop_map(Value::Text),
            any::<bool>().prop_map(Value::Boolean),
        ]
    }

    proptest! {
        /// After any history the sums equal those of a fresh count.
        #[test]
        fn incremental_equals_recount(
            history in prop::collection::vec((0_usize..4, prop::collection::vec(
                ("[xy]", any_value()), 0..3)), 0..40)
        ) {
            let mut running = FeedbackSums::default();
            let mut current = vec![Report::default(); 4];
            for (cluster, mut values) in history {
                values.dedup_by(|a, b| a.0 == b.0);
                let next = Report::from_iter([(key(), values)]);
                running.replace(&current[cluster], &next);
                current[cluster] = next;
            }
            let mut fresh = FeedbackSums::default();
            for report in &current {
                fresh.add(report);
            }
            prop_assert_eq!(running.sums(), fresh.sums());
        }
    }
}
