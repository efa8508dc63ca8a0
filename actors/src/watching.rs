//! A Kubernetes watch as a stream of messages for an actor.
//!
//! The watch itself runs on the worker threads ([`Io`]): requests, decoding and retries never touch
//! an arbiter. What arrives at the actor is already reduced to what it needs, through a bounded
//! channel, so that a slow actor slows the watch and nothing else.

use std::fmt::Debug;
use std::panic::AssertUnwindSafe;
use std::time::Duration;

use futures::{FutureExt, Stream, StreamExt};
use kube::core::Status;
use kube::runtime::utils::Backoff;
use kube::runtime::watcher;
use kube::{Api, Resource};
use serde::de::DeserializeOwned;
use tokio::sync::mpsc;
use tokio::time::{sleep, timeout};
use tokio_stream::wrappers::ReceiverStream;
use tracing::{debug, error, warn};

use crate::api_text::{text, with_cause};
use crate::supervision::{Io, StreamHealth, metrics, panic_text};

/// Events that may wait between the watch and its actor. A list comes in pages of 500; two pages
/// keep the decoder busy while the actor works through one.
const BUFFER: usize = 1_000;

/// How long a watch that was tried again may be silent before it counts as open. The client tells
/// nothing when it opens one, and a quiet stream has no event that would. One that cannot be opened
/// fails sooner than this.
const SILENCE: Duration = Duration::from_secs(5);

/// How long a request for a watch lasts, in seconds, before the server ends it and the next one goes
/// on from there. A connection that was forgotten on its way tells of nothing, not even of its end:
/// it is given up 5 s after this, and not 5 s after the five minutes of the default. Bookmarks would
/// tell sooner, but a quiet type need not have any.
pub(crate) const ANEW_AFTER: u32 = 80;

/// Pause after a panic: most likely the same object is there again.
const AFTER_PANIC: Duration = Duration::from_secs(1);

/// One step of a watch, with objects reduced to `T`.
#[derive(Debug)]
pub enum Seen<T> {
    /// A list begins: what is not named again before [`Seen::Listed`] is gone.
    Listing,
    /// Part of a list.
    Item(T),
    /// The list is complete.
    Listed,
    /// Created or changed.
    Changed(T),
    /// Deleted; the last state.
    Gone(T),
}

/// Watches `api` for as long as the returned stream lives; it never ends by itself.
///
/// `reduce` runs on a worker thread, in order. Errors are reported to `health` and retried with
/// client-go's back-off; every restart lists again, so that deletions in a gap show up between
/// [`Seen::Listing`] and [`Seen::Listed`]. An object that makes `reduce` panic costs a restart of
/// the watch, like an error.
pub fn watch<K, T>(
    io: &Io,
    api: Api<K>,
    config: watcher::Config,
    health: StreamHealth,
    mut reduce: impl FnMut(K) -> T + Send + 'static,
) -> impl Stream<Item = Seen<T>> + Unpin + 'static
where
    K: Resource + Clone + Debug + DeserializeOwned + Send + 'static,
    T: Send + 'static,
{
    let config = watcher::Config {
        timeout: config.timeout.or(Some(ANEW_AFTER)),
        ..config
    };
    watch_some(io, api, config, health, move |step| {
        Some(match step {
            Ok(watcher::Event::Init) => Seen::Listing,
            Ok(watcher::Event::InitApply(object)) => Seen::Item(reduce(object)),
            Ok(watcher::Event::InitDone) => Seen::Listed,
            Ok(watcher::Event::Apply(object)) => Seen::Changed(reduce(object)),
            Ok(watcher::Event::Delete(object)) => Seen::Gone(reduce(object)),
            Err(_) => return None,
        })
    })
}

/// Like [`watch`], for a watch of which most events concern nobody: `pick` sees every step on a
/// worker thread and says what the actor is to hear of. Failures that it picks are the actor's to
/// tell: they are neither logged nor reported to `health`. That a connection has fallen silent is
/// for its caller to find out, or for the time limit of `config`.
pub fn watch_some<K, T>(
    io: &Io,
    api: Api<K>,
    config: watcher::Config,
    health: StreamHealth,
    mut pick: impl FnMut(Result<watcher::Event<K>, &watcher::Error>) -> Option<T> + Send + 'static,
) -> impl Stream<Item = T> + Unpin + 'static
where
    K: Resource + Clone + Debug + DeserializeOwned + Send + 'static,
    T: Send + 'static,
{
    let (events, receiver) = mpsc::channel(BUFFER);
    let task = io.run(async move {
        loop {
            let follow = follow(&api, &config, &health, &mut pick, &events);
            let Err(panic) = AssertUnwindSafe(follow).catch_unwind().await else {
                return; // the actor is gone
            };
            let panic = panic_text(panic.as_ref());
            error!(
                stream = health.name(),
                panic, "watch panicked, watching anew"
            );
            metrics::stream_failed();
            health.failing(format_args!("panicked: {panic}"));
            // From here on the actor knows of a gap, as before any list.
            let gap = AssertUnwindSafe(|| pick(Ok(watcher::Event::Init)));
            if let Ok(Some(gap)) = std::panic::catch_unwind(gap)
                && events.send(gap).await.is_err()
            {
                return;
            }
            sleep(AFTER_PANIC).await;
        }
    });
    Watching {
        receiver: ReceiverStream::new(receiver),
        _task: task,
    }
}

/// Watches until the actor is gone.
async fn follow<K, T>(
    api: &Api<K>,
    config: &watcher::Config,
    health: &StreamHealth,
    pick: &mut impl FnMut(Result<watcher::Event<K>, &watcher::Error>) -> Option<T>,
    events: &mpsc::Sender<T>,
) where
    K: Resource + Clone + Debug + DeserializeOwned + Send + 'static,
{
    let mut watch = std::pin::pin!(watcher(api.clone(), config.clone()));
    let mut backoff = watcher::DefaultBackoff::default();
    let mut failed = false;
    // What has been told already: a right that is missing is missing at each try.
    let mut told = None;
    loop {
        let event = if failed {
            let Ok(event) = timeout(SILENCE, watch.next()).await else {
                health.alive();
                failed = false;
                told = None;
                continue;
            };
            event
        } else {
            watch.next().await
        };
        // It never ends.
        let Some(event) = event else { return };
        let (picked, pause) = match event {
            Ok(event) => {
                // A list under way proves nothing yet; its end and every later event do.
                if !matches!(event, watcher::Event::Init | watcher::Event::InitApply(_)) {
                    health.alive();
                    backoff.reset();
                    failed = false;
                    told = None;
                }
                (pick(Ok(event)), None)
            }
            Err(error) => {
                let text = text_of(&error);
                let picked = pick(Err(&error));
                metrics::stream_failed();
                if picked.is_none() {
                    let stream = health.name();
                    if told.as_ref() == Some(&text) {
                        debug!(stream, error = text, "watch failed again, retrying");
                    } else {
                        warn!(stream, error = text, "watch failed, retrying");
                    }
                    health.failing(&text);
                    told = Some(text);
                }
                failed = true;
                // It never runs out.
                (picked, Some(backoff.next().unwrap_or(SILENCE)))
            }
        };
        if let Some(picked) = picked
            && events.send(picked).await.is_err()
        {
            return;
        }
        if let Some(pause) = pause {
            sleep(pause).await;
        }
    }
}

/// The API server's answer that ended a watch; `None` if there was none.
pub fn answer_of(error: &watcher::Error) -> Option<&Status> {
    match error {
        watcher::Error::InitialListFailed(kube::Error::Api(status))
        | watcher::Error::WatchStartFailed(kube::Error::Api(status))
        | watcher::Error::WatchFailed(kube::Error::Api(status))
        | watcher::Error::WatchError(status) => Some(status),
        _ => None,
    }
}

/// What failed, and why, in one line.
fn text_of(error: &watcher::Error) -> String {
    let (what, why) = match error {
        watcher::Error::InitialListFailed(error) => ("list", text(error)),
        watcher::Error::WatchStartFailed(error) | watcher::Error::WatchFailed(error) => {
            ("watch", text(error))
        }
        watcher::Error::WatchError(status) => ("watch", status.message.clone()),
        watcher::Error::NoResourceVersion => return with_cause(error),
    };
    // A server answers so where it has no such type, as before its definition is installed.
    if answer_of(error).is_some_and(|status| status.code == 404) {
        return format!("failed to {what}: the API server does not serve the type ({why})");
    }
    format!("failed to {what}: {why}")
}

/// Keeps the watching task alive exactly as long as the stream.
struct Watching<T> {
    receiver: ReceiverStream<T>,
    _task: crate::supervision::Running<()>,
}

impl<T> Stream for Watching<T> {
    type Item = T;

    fn poll_next(
        mut self: std::pin::Pin<&mut Self>,
        cx: &mut std::task::Context<'_>,
    ) -> std::task::Poll<Option<Self::Item>> {
        self.receiver.poll_next_unpin(cx)
    }
}

#[cfg(test)]
mod tests {
    use http::{Request, Response};
    use http_body_util::StreamBody;
    use k8s_openapi::api::core::v1::ConfigMap;
    use kube::api::{ObjectMeta, PostParams};
    use kube::client::Body;
    use muster_apiserver::{ApiServer, Storage};

    use super::*;
    use crate::supervision::Health;

    async fn create(client: &kube::Client, name: &str) {
        let api: Api<ConfigMap> = Api::namespaced(client.clone(), "default");
        let object = ConfigMap {
            metadata: ObjectMeta {
                name: Some(name.to_owned()),
                ..ObjectMeta::default()
            },
            ..ConfigMap::default()
        };
        api.create(&PostParams::default(), &object).await.unwrap();
    }

    /// A server that lists nothing and whose watches are silent for ever, and its requests.
    fn silent_server() -> (kube::Client, mpsc::UnboundedReceiver<String>) {
        type Frame = Result<http_body::Frame<bytes::Bytes>, std::io::Error>;
        let (asked, requests) = mpsc::unbounded_channel();
        let service = tower::service_fn(move |request: Request<Body>| {
            let uri = request.uri().to_string();
            let list = r#"{"kind": "ConfigMapList", "apiVersion": "v1",
                "metadata": {"resourceVersion": "7"}, "items": []}"#;
            let frames = if uri.contains("watch=true") {
                futures::stream::pending::<Frame>().left_stream()
            } else {
                let frame: Frame = Ok(http_body::Frame::data(list.into()));
                futures::stream::iter([frame]).right_stream()
            };
            asked.send(uri).unwrap();
            async { Ok::<_, std::io::Error>(Response::new(StreamBody::new(frames))) }
        });
        (kube::Client::new(service, "default"), requests)
    }

    #[tokio::test(start_paused = true)]
    async fn a_connection_that_has_fallen_silent_is_given_up_without_a_new_list() {
        let (client, mut requests) = silent_server();
        let health = Health::new();
        let mut seen = watch(
            &Io::current(),
            Api::<ConfigMap>::namespaced(client, "default"),
            watcher::Config::default(),
            health.stream("maps"),
            |_| (),
        );
        assert!(matches!(seen.next().await, Some(Seen::Listing)));
        assert!(matches!(seen.next().await, Some(Seen::Listed)));
        assert!(!requests.recv().await.unwrap().contains("watch=true"));
        for _ in 0..3 {
            let request = timeout(Duration::from_secs(90), requests.recv()).await;
            let request = request.unwrap().unwrap();
            for parameter in ["watch=true", "timeoutSeconds=80", "resourceVersion=7"] {
                assert!(request.contains(parameter), "{request}");
            }
        }
        assert!(health.not_ready().is_empty());
    }

    #[tokio::test(start_paused = true)]
    async fn an_object_that_makes_the_reader_panic_costs_a_new_list() {
        let server = ApiServer::builder()
            .storage(Storage::Memory)
            .build()
            .await
            .unwrap();
        let client = server.client();
        let (health, mut panics) = (Health::new(), 2);
        let mut seen = watch(
            &Io::current(),
            Api::<ConfigMap>::namespaced(client.clone(), "default"),
            watcher::Config::default(),
            health.stream("maps"),
            move |object| {
                let name = object.metadata.name.unwrap_or_default();
                if name == "bad" && panics > 0 {
                    panics -= 1;
                    panic!("asked to");
                }
                name
            },
        );
        loop {
            match seen.next().await.unwrap() {
                Seen::Listed => break,
                Seen::Listing | Seen::Item(_) => {}
                other => panic!("{other:?}"),
            }
        }
        assert!(health.not_ready().is_empty());
        create(&client, "bad").await;
        // A gap, at once; after the pause another list, which panics again; then one with it.
        assert!(matches!(seen.next().await, Some(Seen::Listing)));
        let reasons = health.not_ready();
        assert!(
            reasons[0].starts_with("maps: panicked: asked to"),
            "{reasons:?}"
        );
        let mut listings = 0;
        let listed = loop {
            match seen.next().await.unwrap() {
                Seen::Listing => listings += 1,
                Seen::Item(name) => break name,
                other => panic!("{other:?}"),
            }
        };
        assert_eq!((listings, &*listed), (3, "bad"));
        assert!(matches!(seen.next().await, Some(Seen::Listed)));
        assert!(health.not_ready().is_empty());
        create(&client, "good").await;
        assert!(matches!(seen.next().await, Some(Seen::Changed(name)) if name == "good"));
    }
}
