//! The dashboard: a page that shows what the process knows, live.
//!
//! | Path | Answer |
//! |---|---|
//! | `/` | the page |
//! | `/dashboard/look.css`, `/dashboard/page.js` | what it is made of; it needs nothing from elsewhere |
//! | `/dashboard/overview` | what it shows, as JSON |
//! | `/dashboard/events` | the same as server-sent events, one for each change |
//!
//! However many look, the actors are asked once; while nobody looks, not at all.

use std::convert::Infallible;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use axum::Router;
use axum::extract::State;
use axum::http::header;
use axum::response::sse::{Event, KeepAlive, Sse};
use axum::response::{IntoResponse, Response};
use axum::routing::{MethodRouter, get};
use futures::future::BoxFuture;
use futures::{Stream, StreamExt};
use serde_json::Value;
use tokio::sync::watch;
use tokio::time::Instant;
use tokio_stream::wrappers::WatchStream;
use tokio_util::sync::CancellationToken;

/// Time between two looks at the actors.
const PERIOD: Duration = Duration::from_secs(1);

/// A look may take this share of the time: one that takes 100 ms is followed by 2 s of rest, so that
/// a page which somebody left open costs a large process little.
const SHARE: u32 = 20;

/// How often something is sent to who looks while nothing changes, so that both sides notice a
/// connection that is gone.
const KEEP_ALIVE: Duration = Duration::from_secs(10);

/// Nothing of the page comes from elsewhere, and no other page may embed it.
const POLICY: &str = "default-src 'none'; script-src 'self'; style-src 'self'; img-src data:; \
                      connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'";

/// Gives what the page shows.
pub type Look = Arc<dyn Fn() -> BoxFuture<'static, Value> + Send + Sync>;

/// What all who look share.
#[derive(Clone)]
struct Board {
    look: Look,
    /// The last state as text, empty before the first look.
    latest: watch::Sender<Arc<str>>,
    /// Whether a task looks.
    looked_at: Arc<AtomicBool>,
    shutdown: CancellationToken,
}

/// The routes of the dashboard. Open event streams end on `shutdown`, else they would hold up a
/// graceful end.
pub(super) fn router(look: Look, shutdown: CancellationToken) -> Router {
    let board = Board {
        look,
        latest: watch::Sender::new(Arc::from("")),
        looked_at: Arc::default(),
        shutdown,
    };
    Router::new()
        .route(
            "/",
            asset(
                "text/html; charset=utf-8",
                include_str!("dashboard/index.html"),
            ),
        )
        .route(
            "/dashboard/look.css",
            asset(
                "text/css; charset=utf-8",
                include_str!("dashboard/look.css"),
            ),
        )
        .route(
            "/dashboard/page.js",
            asset(
                "text/javascript; charset=utf-8",
                include_str!("dashboard/page.js"),
            ),
        )
        .route("/dashboard/overview", get(overview))
        .route("/dashboard/events", get(events))
        .with_state(board)
}

fn asset(kind: &'static str, text: &'static str) -> MethodRouter<Board> {
    let headers = [
        (header::CONTENT_TYPE, kind),
        (header::CONTENT_SECURITY_POLICY, POLICY),
        // A newer program has a newer page.
        (header::CACHE_CONTROL, "no-cache"),
        (header::X_CONTENT_TYPE_OPTIONS, "nosniff"),
    ];
    get(move || async move { (headers, text) })
}

async fn overview(State(board): State<Board>) -> Response {
    let text = (board.look)().await.to_string();
    ([(header::CONTENT_TYPE, "application/json")], text).into_response()
}

async fn events(State(board): State<Board>) -> Sse<impl Stream<Item = Result<Event, Infallible>>> {
    let states = board.subscribe();
    let ended = board.shutdown.cancelled_owned();
    let events = WatchStream::new(states)
        .filter(|state| std::future::ready(!state.is_empty()))
        .map(|state| Ok(Event::default().data(&*state)))
        .take_until(ended);
    Sse::new(events).keep_alive(KeepAlive::new().interval(KEEP_ALIVE))
}

impl Board {
    /// The states from now on. Who comes first begins the looks.
    fn subscribe(&self) -> watch::Receiver<Arc<str>> {
        let receiver = self.latest.subscribe();
        if !self.looked_at.swap(true, Ordering::AcqRel) {
            tokio::spawn(self.clone().watch());
        }
        receiver
    }

    /// Looks until nobody does any more.
    async fn watch(self) {
        loop {
            while self.latest.receiver_count() > 0 {
                if self.shutdown.is_cancelled() {
                    return;
                }
                self.refresh().await;
            }
            // What was true then is no answer to who comes later.
            self.latest.send_replace(Arc::from(""));
            self.looked_at.store(false, Ordering::Release);
            // Somebody may have come before that, and left the looks to this.
            if self.latest.receiver_count() == 0 || self.looked_at.swap(true, Ordering::AcqRel) {
                return;
            }
        }
    }

    /// Looks once, and rests.
    async fn refresh(&self) {
        let began = Instant::now();
        let state = (self.look)().await.to_string();
        self.latest.send_if_modified(|latest| {
            let changed = **latest != *state;
            if changed {
                *latest = Arc::from(state);
            }
            changed
        });
        let rest = PERIOD.max(began.elapsed() * SHARE);
        tokio::select! {
            () = tokio::time::sleep(rest) => {}
            () = self.latest.closed() => {}
            () = self.shutdown.cancelled() => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::AtomicUsize;

    use serde_json::json;
    use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader};
    use tokio::net::TcpStream;

    use super::*;

    /// A page whose state is how often it was looked up, or always the same.
    async fn served(counts: bool) -> (std::net::SocketAddr, Arc<AtomicUsize>, CancellationToken) {
        let looks = Arc::new(AtomicUsize::new(0));
        let counted = Arc::clone(&looks);
        let look: Look = Arc::new(move || {
            let number = counted.fetch_add(1, Ordering::SeqCst) + 1;
            let state = json!({"look": if counts { number } else { 0 }});
            Box::pin(async move { state })
        });
        let shutdown = CancellationToken::new();
        let listener = tokio::net::TcpListener::bind(("127.0.0.1", 0))
            .await
            .unwrap();
        let address = listener.local_addr().unwrap();
        let server = axum::serve(listener, router(look, shutdown.clone()))
            .with_graceful_shutdown(shutdown.clone().cancelled_owned());
        tokio::spawn(server.into_future());
        (address, looks, shutdown)
    }

    type Lines = tokio::io::Lines<BufReader<TcpStream>>;

    async fn ask(address: std::net::SocketAddr, path: &str) -> Lines {
        let mut stream = TcpStream::connect(address).await.unwrap();
        let request = format!("GET {path} HTTP/1.1\r\nHost: muster\r\n\r\n");
        stream.write_all(request.as_bytes()).await.unwrap();
        BufReader::new(stream).lines()
    }

    /// The next event; `None` at the end of the stream.
    async fn event(lines: &mut Lines) -> Option<String> {
        while let Some(line) = lines.next_line().await.unwrap() {
            if let Some(data) = line.strip_prefix("data: ") {
                return Some(data.to_owned());
            }
        }
        None
    }

    #[tokio::test]
    async fn the_page_and_its_parts_are_there_and_embed_nothing() {
        let (address, looks, _shutdown) = served(true).await;
        for (path, kind) in [
            ("/", "text/html"),
            ("/dashboard/look.css", "text/css"),
            ("/dashboard/page.js", "text/javascript"),
        ] {
            let mut lines = ask(address, path).await;
            let mut head = Vec::new();
            while let Some(line) = lines.next_line().await.unwrap() {
                if line.is_empty() {
                    break;
                }
                head.push(line);
            }
            assert_eq!(head[0], "HTTP/1.1 200 OK", "{path}");
            let head = head.join("\n");
            assert!(
                head.contains(&format!("content-type: {kind}; charset=utf-8")),
                "{head}"
            );
            assert!(
                head.contains("content-security-policy: default-src 'none'"),
                "{head}"
            );
        }
        assert_eq!(looks.load(Ordering::SeqCst), 0, "nobody has looked");
        let page = include_str!("dashboard/index.html");
        let all = [
            page,
            include_str!("dashboard/look.css"),
            include_str!("dashboard/page.js"),
        ];
        for part in all {
            let outside = part.matches("http://").count() + part.matches("https://").count();
            assert_eq!(outside, part.matches("http://www.w3.org/2000/svg").count());
        }
    }

    #[tokio::test(start_paused = true)]
    async fn all_who_look_share_the_looks_which_end_with_the_last() {
        let (address, looks, shutdown) = served(true).await;
        let (mut one, mut other) = (
            ask(address, "/dashboard/events").await,
            ask(address, "/dashboard/events").await,
        );
        assert!(event(&mut one).await.unwrap().contains("look"));
        assert!(event(&mut other).await.unwrap().contains("look"));
        for _ in 0..5 {
            assert!(event(&mut one).await.is_some());
        }
        let so_far = looks.load(Ordering::SeqCst);
        assert!((6..=8).contains(&so_far), "{so_far} looks for two who look");
        drop((one, other));
        // Those who have gone are noticed with what is sent next.
        tokio::time::sleep(KEEP_ALIVE * 3).await;
        let at_rest = looks.load(Ordering::SeqCst);
        tokio::time::sleep(KEEP_ALIVE * 10).await;
        assert_eq!(looks.load(Ordering::SeqCst), at_rest);

        let mut late = ask(address, "/dashboard/events").await;
        let first = event(&mut late).await.unwrap();
        assert_eq!(
            first,
            json!({"look": at_rest + 1}).to_string(),
            "nothing old"
        );
        shutdown.cancel();
        while event(&mut late).await.is_some() {}
    }

    #[tokio::test(start_paused = true)]
    async fn a_look_that_takes_long_is_followed_by_a_long_rest() {
        let took = Duration::from_millis(200);
        let look: Look = Arc::new(move || {
            Box::pin(async move {
                tokio::time::sleep(took).await;
                json!({})
            })
        });
        let board = Board {
            look,
            latest: watch::Sender::new(Arc::from("")),
            looked_at: Arc::default(),
            shutdown: CancellationToken::new(),
        };
        let _somebody = board.latest.subscribe();
        let began = Instant::now();
        board.refresh().await;
        assert_eq!(began.elapsed().as_secs(), (took + took * SHARE).as_secs());
    }

    #[tokio::test(start_paused = true)]
    async fn what_stays_the_same_is_told_once() {
        let (address, looks, shutdown) = served(false).await;
        let mut lines = ask(address, "/dashboard/events").await;
        assert!(event(&mut lines).await.is_some());
        tokio::time::sleep(PERIOD * 30).await;
        assert!(looks.load(Ordering::SeqCst) >= 20);
        shutdown.cancel();
        assert_eq!(event(&mut lines).await, None, "nothing but the end");
    }
}
