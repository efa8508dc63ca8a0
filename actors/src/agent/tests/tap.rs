//! A client that writes down what goes through it, and fails on request.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use bytes::Bytes;
use http::{Method, Request, Response};
use http_body::Frame;
use http_body_util::BodyExt;
use http_body_util::combinators::UnsyncBoxBody;
use kube::Client;
use kube::client::Body;
use serde_json::json;

/// What happens to a request.
#[derive(Debug, Clone)]
pub(super) enum Fault {
    /// The connection breaks.
    Broken,
    /// The request takes this long.
    Slow(Duration),
    /// The server never answers.
    Silent,
    /// The server answers with this object.
    Body(String),
    /// The server answers with this status and text.
    Refused(u16, &'static str, &'static str),
}

type Rule = Box<dyn FnMut(&Method, &str) -> Option<Fault> + Send>;

#[derive(Default)]
struct State {
    requests: Vec<(Method, String)>,
    answers: BTreeMap<u16, usize>,
    under_way: usize,
    most_at_once: usize,
    /// Open watches by path.
    watches: BTreeMap<String, usize>,
    opened_watches: usize,
    /// The first so many show nothing any more.
    muted: usize,
    rule: Option<Rule>,
}

type Answer = UnsyncBoxBody<Bytes, tower::BoxError>;

fn boxed(body: Body) -> Answer {
    body.map_err(Into::into).boxed_unsync()
}

/// Counts as long as it lives.
struct OpenWatch {
    tap: Tap,
    path: String,
}

impl Drop for OpenWatch {
    fn drop(&mut self) {
        if let Some(count) = self.tap.lock().watches.get_mut(&self.path) {
            *count -= 1;
        }
    }
}

/// The middle of a connection.
#[derive(Clone)]
pub(super) struct Tap {
    client: Client,
    state: Arc<Mutex<State>>,
}

impl Tap {
    pub(super) fn new(client: Client) -> Self {
        Self {
            client,
            state: Arc::default(),
        }
    }

    /// A client that goes through here.
    pub(super) fn client(&self) -> Client {
        let tap = self.clone();
        let service = tower::service_fn(move |request| {
            let tap = tap.clone();
            async move { tap.pass(request).await }
        });
        Client::new(service, "default")
    }

    async fn pass(&self, request: Request<Body>) -> Result<Response<Answer>, tower::BoxError> {
        let (fault, watch) = {
            let mut state = self.lock();
            let path = request.uri().path().to_owned();
            let fault = state
                .rule
                .as_mut()
                .and_then(|rule| rule(request.method(), &path));
            let watch = request
                .uri()
                .query()
                .is_some_and(|query| query.contains("watch=true"));
            if !watch {
                state.requests.push((request.method().clone(), path));
            }
            (fault, watch)
        };
        match fault {
            // Not one of the requests that wait for an answer.
            _ if watch && !matches!(fault, Some(Fault::Broken | Fault::Refused(..))) => {
                self.watch(request).await
            }
            None => self.forward(request, Duration::ZERO).await,
            Some(Fault::Slow(delay)) => self.forward(request, delay).await,
            Some(Fault::Broken) => Err("connection reset by test".into()),
            Some(Fault::Silent) => std::future::pending().await,
            Some(Fault::Body(body)) => Ok(Response::new(boxed(Body::from(body.into_bytes())))),
            Some(Fault::Refused(code, reason, message)) => {
                let status = json!({
                    "kind": "Status", "apiVersion": "v1", "status": "Failure",
                    "code": code, "reason": reason, "message": message,
                });
                let body = boxed(Body::from(serde_json::to_vec(&status)?));
                Ok(Response::builder().status(code).body(body)?)
            }
        }
    }

    async fn forward(
        &self,
        request: Request<Body>,
        delay: Duration,
    ) -> Result<Response<Answer>, tower::BoxError> {
        {
            let mut state = self.lock();
            state.under_way += 1;
            state.most_at_once = state.most_at_once.max(state.under_way);
        }
        tokio::time::sleep(delay).await;
        let answer = self.client.send(request).await;
        let mut state = self.lock();
        state.under_way -= 1;
        let answer = answer?;
        *state.answers.entry(answer.status().as_u16()).or_default() += 1;
        Ok(answer.map(boxed))
    }

    async fn watch(&self, request: Request<Body>) -> Result<Response<Answer>, tower::BoxError> {
        let path = request.uri().path().to_owned();
        let number = {
            let mut state = self.lock();
            *state.watches.entry(path.clone()).or_default() += 1;
            state.opened_watches += 1;
            state.opened_watches
        };
        let open = OpenWatch {
            tap: self.clone(),
            path,
        };
        let answer = self.client.send(request).await?;
        Ok(answer.map(|body| {
            let frames = body.map_frame(move |frame| {
                if number <= open.tap.lock().muted {
                    return Frame::data(Bytes::new());
                }
                frame
            });
            frames.map_err(Into::into).boxed_unsync()
        }))
    }

    /// Lets the watches that are open now stay so, and show nothing any more.
    pub(super) fn mute_watches(&self) {
        let mut state = self.lock();
        state.muted = state.opened_watches;
    }

    /// Watches of a resource that are open.
    pub(super) fn watches(&self, resource: &str) -> usize {
        let state = self.lock();
        let of_resource = state
            .watches
            .iter()
            .filter(|(path, _)| path.split('/').any(|part| part == resource));
        of_resource.map(|(_, count)| count).sum()
    }

    /// Answers with this HTTP status so far.
    pub(super) fn answers(&self, code: u16) -> usize {
        self.lock().answers.get(&code).copied().unwrap_or_default()
    }

    /// Most requests that were under way at one time.
    pub(super) fn most_at_once(&self) -> usize {
        self.lock().most_at_once
    }

    /// Decides about requests from now on.
    pub(super) fn fail(&self, rule: impl FnMut(&Method, &str) -> Option<Fault> + Send + 'static) {
        self.lock().rule = Some(Box::new(rule));
    }

    /// Lets everything through again.
    pub(super) fn heal(&self) {
        self.lock().rule = None;
    }

    /// Forgets the requests so far.
    pub(super) fn clear(&self) {
        let mut state = self.lock();
        state.requests.clear();
        state.most_at_once = 0;
    }

    /// The requests since [`Tap::clear`], watches left out.
    pub(super) fn requests(&self) -> Vec<(Method, String)> {
        self.lock().requests.clone()
    }

    /// The requests that are no reads.
    pub(super) fn writes(&self) -> Vec<(Method, String)> {
        let mut requests = self.requests();
        requests.retain(|(method, _)| method != Method::GET);
        requests
    }

    /// How often each path was read.
    pub(super) fn reads(&self) -> BTreeMap<String, usize> {
        let mut reads = BTreeMap::new();
        for (method, path) in self.requests() {
            if method == Method::GET {
                *reads.entry(path).or_default() += 1;
            }
        }
        reads
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        // A rule may panic to see what comes of it.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
