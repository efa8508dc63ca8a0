//! Counters of what the server was asked for.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};

/// Requests and watches since the start, by verb and by resource (`deployments.apps`).
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Stats {
    /// Requests by verb (`get`, `list`, `watch`, `create`, `update`, `patch`, `delete`,
    /// `deletecollection`) and resource.
    pub requests: BTreeMap<(String, String), u64>,
    /// Watches open now, by resource.
    pub watches: BTreeMap<String, u64>,
    /// Watches open now.
    pub open_watches: u64,
    /// Most watches that were open at one time.
    pub peak_watches: u64,
}

impl Stats {
    /// Requests with this verb for this resource.
    pub fn count(&self, verb: &str, resource: &str) -> u64 {
        self.requests
            .get(&(verb.to_owned(), resource.to_owned()))
            .copied()
            .unwrap_or_default()
    }

    /// Requests with this verb.
    pub fn count_verb(&self, verb: &str) -> u64 {
        self.requests
            .iter()
            .filter(|((v, _), _)| v == verb)
            .map(|(_, n)| n)
            .sum()
    }
}

#[derive(Debug, Default)]
struct Counters {
    requests: BTreeMap<&'static str, BTreeMap<Arc<str>, u64>>,
    watches: BTreeMap<Arc<str>, u64>,
    open: u64,
    peak: u64,
}

/// The counters behind [`Stats`].
#[derive(Clone, Debug, Default)]
pub(crate) struct Meter(Arc<Mutex<Counters>>);

impl Meter {
    fn with<T>(&self, change: impl FnOnce(&mut Counters) -> T) -> T {
        change(&mut self.0.lock().unwrap_or_else(PoisonError::into_inner))
    }

    pub(crate) fn request(&self, verb: &'static str, resource: &Arc<str>) {
        self.with(|c| {
            let by_resource = c.requests.entry(verb).or_default();
            if let Some(count) = by_resource.get_mut(resource) {
                *count += 1;
            } else {
                by_resource.insert(resource.clone(), 1);
            }
        });
    }

    /// Counts a watch as open until the guard is dropped.
    pub(crate) fn open_watch(&self, resource: &Arc<str>) -> OpenWatch {
        self.with(|c| {
            *c.watches.entry(resource.clone()).or_default() += 1;
            c.open += 1;
            c.peak = c.peak.max(c.open);
        });
        OpenWatch {
            meter: self.clone(),
            resource: resource.clone(),
        }
    }

    pub(crate) fn snapshot(&self) -> Stats {
        self.with(|c| Stats {
            requests: c
                .requests
                .iter()
                .flat_map(|(verb, by_resource)| {
                    by_resource.iter().map(|(resource, n)| {
                        (((*verb).to_owned(), resource.as_ref().to_owned()), *n)
                    })
                })
                .collect(),
            watches: c
                .watches
                .iter()
                .map(|(r, n)| (r.as_ref().to_owned(), *n))
                .collect(),
            open_watches: c.open,
            peak_watches: c.peak,
        })
    }
}

/// One open watch.
#[derive(Debug)]
pub(crate) struct OpenWatch {
    meter: Meter,
    resource: Arc<str>,
}

impl Drop for OpenWatch {
    fn drop(&mut self) {
        self.meter.with(|c| {
            c.open = c.open.saturating_sub(1);
            if let Some(count) = c.watches.get_mut(&self.resource) {
                *count = count.saturating_sub(1);
                if *count == 0 {
                    c.watches.remove(&self.resource);
                }
            }
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn watches_count_while_open_and_leave_a_peak() {
        let meter = Meter::default();
        let pods: Arc<str> = Arc::from("pods");
        meter.request("watch", &pods);
        let (a, b) = (meter.open_watch(&pods), meter.open_watch(&pods));
        assert_eq!(meter.snapshot().watches["pods"], 2);
        drop((a, b));
        let stats = meter.snapshot();
        assert_eq!((stats.open_watches, stats.peak_watches), (0, 2));
        assert_eq!(
            (stats.count("watch", "pods"), stats.count_verb("watch")),
            (1, 1)
        );
    }
}
