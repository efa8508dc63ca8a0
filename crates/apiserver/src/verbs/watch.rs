//! watch: a backlog, then live events, with bookmarks and a time limit.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use futures::stream;
use serde_json::{Value, json};
use tokio::sync::mpsc;
use tokio::time::{Instant, Interval, MissedTickBehavior};

use super::call::{Answer, Call, Outcome};
use super::read::{Selection, list_options_error, revision_parameter};
use crate::http::negotiate::Form;
use crate::object;
use crate::stats::OpenWatch;
use crate::status::{ApiError, ApiResult, FieldError};
use crate::store::{Event, EventKind, Stored};
use crate::table;

/// How often a quiet watch tells its client how far it has seen, as the real server does.
const BOOKMARK_INTERVAL: Duration = Duration::from_secs(60);

/// Shortest default length of a watch; the longest is twice that (`--min-request-timeout`).
const MIN_WATCH: Duration = Duration::from_secs(30 * 60);

/// The annotation of the bookmark that ends the initial events of a streaming list.
const INITIAL_EVENTS_END: &str = "k8s.io/initial-events-end";

struct Watch {
    call: Call,
    selection: Selection,
    backlog: VecDeque<Arc<Event>>,
    /// Sent when the backlog is through.
    after_backlog: Option<Bytes>,
    events: mpsc::Receiver<Arc<Event>>,
    bookmarks: Option<Interval>,
    /// Highest revision sent.
    seen: u64,
    deadline: Instant,
    columns_sent: bool,
    _open: Option<OpenWatch>,
}

pub(crate) fn watch(call: Call) -> ApiResult<Outcome> {
    let selection = Selection::of(&call)?;
    let initial = initial_events(&call)?;
    let asked = revision_parameter(&call)?;
    let timeout = match call.query.get("timeoutSeconds").map(str::parse::<u64>) {
        None | Some(Ok(0)) => MIN_WATCH.mul_f64(1.0 + rand::random::<f64>()),
        Some(Ok(seconds)) => Duration::from_secs(seconds),
        Some(Err(e)) => {
            return Err(ApiError::bad_request(format!(
                "invalid timeoutSeconds: {e}"
            )));
        }
    };
    let after = match (initial, asked) {
        (Some(false), None | Some(0)) => Some(call.server.store.revision()),
        (Some(true), _) | (_, None | Some(0)) => None,
        (_, Some(revision)) => Some(revision),
    };
    let scope = selection.narrow(call.scope(), call.def.namespaced);
    let subscription = match call.server.store.watch(&call.def.key, scope, after) {
        Ok(subscription) => subscription,
        Err(too_old) => {
            let asked = after.unwrap_or_default();
            let error = ApiError::expired(format!(
                "too old resource version: {asked} ({})",
                too_old.oldest
            ));
            let line = line("ERROR", &error.to_value());
            return Ok(Answer::Lines(Box::pin(stream::iter([line]))).into());
        }
    };
    let with_bookmarks = call.query.flag("allowWatchBookmarks");
    let after_backlog = (initial == Some(true) && with_bookmarks)
        .then(|| bookmark(&call, subscription.revision, true));
    let bookmarks = with_bookmarks.then(|| {
        let mut interval =
            tokio::time::interval_at(Instant::now() + BOOKMARK_INTERVAL, BOOKMARK_INTERVAL);
        interval.set_missed_tick_behavior(MissedTickBehavior::Delay);
        interval
    });
    let open = call
        .counted
        .then(|| call.server.meter.open_watch(&call.def.key));
    let watch = Watch {
        selection,
        backlog: subscription.backlog.into(),
        after_backlog,
        events: subscription.events,
        bookmarks,
        seen: after.unwrap_or(subscription.revision),
        deadline: Instant::now() + timeout,
        columns_sent: false,
        _open: open,
        call,
    };
    Ok(Answer::Lines(Box::pin(stream::unfold(watch, next))).into())
}

/// `sendInitialEvents`, checked against the parameters that it goes with.
fn initial_events(call: &Call) -> ApiResult<Option<bool>> {
    let Some(text) = call.query.get("sendInitialEvents") else {
        if call.query.get("resourceVersionMatch").is_some() {
            return Err(list_options_error(&[FieldError::forbidden(
                "resourceVersionMatch",
                "resourceVersionMatch is forbidden for watch unless sendInitialEvents is provided",
            )]));
        }
        return Ok(None);
    };
    if call.query.get("resourceVersionMatch") != Some("NotOlderThan") {
        return Err(list_options_error(&[FieldError::forbidden(
            "resourceVersionMatch",
            "sendInitialEvents requires setting resourceVersionMatch to NotOlderThan",
        )]));
    }
    Ok(Some(matches!(text, "true" | "1")))
}

async fn next(mut watch: Watch) -> Option<(Bytes, Watch)> {
    loop {
        if let Some(event) = watch.backlog.pop_front() {
            watch.seen = watch.seen.max(event.revision());
            if let Some(line) = watch.line(&event) {
                return Some((line, watch));
            }
            continue;
        }
        if let Some(line) = watch.after_backlog.take() {
            return Some((line, watch));
        }
        let server = watch.call.server.clone();
        let event = tokio::select! {
            biased;
            () = server.stopping.cancelled() => return None,
            event = watch.events.recv() => event?,
            () = tokio::time::sleep_until(watch.deadline) => return None,
            () = tick(&mut watch.bookmarks) => {
                // Read before the queue is looked at: what was published by then is in it.
                let revision = server.store.published();
                if watch.events.is_empty() && revision > watch.seen {
                    watch.seen = revision;
                    let line = bookmark(&watch.call, revision, false);
                    return Some((line, watch));
                }
                continue;
            }
        };
        watch.seen = watch.seen.max(event.revision());
        if let Some(line) = watch.line(&event) {
            return Some((line, watch));
        }
    }
}

async fn tick(interval: &mut Option<Interval>) {
    match interval {
        Some(interval) => {
            interval.tick().await;
        }
        None => std::future::pending().await,
    }
}

impl Watch {
    /// How the event looks to this watch, if it concerns it.
    fn line(&mut self, event: &Event) -> Option<Bytes> {
        let before = event
            .previous
            .as_ref()
            .is_some_and(|o| self.selection.matches(o));
        let after = event.kind != EventKind::Deleted && self.selection.matches(&event.object);
        let kind = match (before, after) {
            (false, false) => return None,
            (false, true) => EventKind::Added,
            (true, true) => EventKind::Modified,
            (true, false) => EventKind::Deleted,
        };
        // Leaving the selection looks like a deletion of the object as it was.
        let left = kind == EventKind::Deleted && event.kind != EventKind::Deleted;
        if left && let Some(previous) = &event.previous {
            let mut value = previous.value();
            object::set_meta(
                &mut value,
                "resourceVersion",
                Value::String(event.revision().to_string()),
            );
            let gone = Event::new(kind, Arc::new(Stored::new(value, &[])), None);
            return Some(self.render(&gone, kind));
        }
        Some(self.render(event, kind))
    }

    fn render(&mut self, event: &Event, kind: EventKind) -> Bytes {
        let call = &self.call;
        match call.form {
            Form::Table => {
                let metadata = json!({"resourceVersion": event.revision().to_string()});
                let table = table::render(
                    call,
                    &metadata,
                    std::slice::from_ref(&event.object),
                    !self.columns_sent,
                );
                self.columns_sent = true;
                line(kind.as_str(), &table)
            }
            Form::Metadata => event.line(kind, true),
            Form::Object | Form::AggregatedDiscovery => {
                if call.def.storage_version == call.path.version {
                    event.line(kind, false)
                } else {
                    let bytes = event.object.bytes_as(&call.def.kind, &call.api_version());
                    crate::store::watch_line(kind.as_str(), &bytes)
                }
            }
        }
    }
}

fn line(kind: &str, object: &Value) -> Bytes {
    crate::store::watch_line(kind, object.to_string().as_bytes())
}

fn bookmark(call: &Call, revision: u64, initial_end: bool) -> Bytes {
    let mut metadata = json!({"resourceVersion": revision.to_string(), "creationTimestamp": null});
    if initial_end {
        metadata["annotations"] = json!({INITIAL_EVENTS_END: "true"});
    }
    let (kind, api_version) = match call.form {
        Form::Metadata => (
            "PartialObjectMetadata".to_owned(),
            "meta.k8s.io/v1".to_owned(),
        ),
        Form::Table => {
            let table = json!({
                "kind": "Table", "apiVersion": "meta.k8s.io/v1", "metadata": {
                    "resourceVersion": revision.to_string(),
                },
                "columnDefinitions": [], "rows": [{"cells": [], "object": {
                    "kind": "PartialObjectMetadata", "apiVersion": "meta.k8s.io/v1",
                    "metadata": metadata,
                }}],
            });
            return line("BOOKMARK", &table);
        }
        _ => (call.def.kind.clone(), call.api_version()),
    };
    line(
        "BOOKMARK",
        &json!({"kind": kind, "apiVersion": api_version, "metadata": metadata}),
    )
}
