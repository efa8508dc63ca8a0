//! Limits how many requests a client sends: a token bucket, as client-go's QPS and burst.
//!
//! One bucket a client, so one for the hub and one for each cluster. Requests above the limit wait,
//! in order; none fails. An own few lines and not a crate, since the known ones count on a clock of
//! their own, which tests cannot pause.

use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use futures::FutureExt;
use futures::future::BoxFuture;
use http::{Request, Response};
use kube::Client;
use kube::client::Body;
use tokio::time::{Instant, Sleep};
use tower::Service;

/// Longest time for one token; a rate below that is as good as none.
const SLOWEST: Duration = Duration::from_secs(24 * 60 * 60);

/// `client` with at most `burst` requests at once and `qps` a second on average. A `qps` below 0 is
/// no limit.
pub(super) fn throttled(client: Client, qps: f64, burst: u32) -> Client {
    if qps < 0.0 {
        return client;
    }
    let namespace = client.default_namespace().to_owned();
    let service = Throttle {
        inner: client,
        bucket: Bucket::new(qps, burst),
        slot: Slot::None,
    };
    Client::new(service, namespace)
}

/// Tokens that come back one an interval, up to `burst` of them.
#[derive(Debug)]
struct Bucket {
    interval: Duration,
    burst: u32,
    /// When all tokens will be there.
    full: Instant,
}

impl Bucket {
    fn new(qps: f64, burst: u32) -> Self {
        let interval = Duration::try_from_secs_f64(1.0 / qps).unwrap_or(SLOWEST);
        Self {
            interval: interval.min(SLOWEST),
            burst,
            full: Instant::now(),
        }
    }

    /// Takes a token. Gives when it is there, which may be later than `now`.
    fn take(&mut self, now: Instant) -> Instant {
        self.full = self.full.max(now) + self.interval;
        let ahead = self.interval.saturating_mul(self.burst);
        self.full.checked_sub(ahead).map_or(now, |at| at.max(now))
    }
}

enum Slot {
    /// No token taken.
    None,
    /// Taken, and there at some time.
    Waiting(Pin<Box<Sleep>>),
    /// There.
    Ready,
}

struct Throttle {
    inner: Client,
    bucket: Bucket,
    slot: Slot,
}

impl Service<Request<Body>> for Throttle {
    type Response = Response<Body>;
    type Error = kube::Error;
    type Future = BoxFuture<'static, kube::Result<Response<Body>>>;

    // The buffer in front asks this only with a request in hand, and one after the other: a token
    // is never taken for nothing, and requests keep their order.
    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), Self::Error>> {
        loop {
            match &mut self.slot {
                Slot::None => {
                    let now = Instant::now();
                    let at = self.bucket.take(now);
                    self.slot = if at > now {
                        Slot::Waiting(Box::pin(tokio::time::sleep_until(at)))
                    } else {
                        Slot::Ready
                    };
                }
                Slot::Waiting(sleep) => {
                    ready!(sleep.as_mut().poll(cx));
                    self.slot = Slot::Ready;
                }
                Slot::Ready => return Poll::Ready(Ok(())),
            }
        }
    }

    fn call(&mut self, request: Request<Body>) -> Self::Future {
        self.slot = Slot::None;
        let client = self.inner.clone();
        async move { client.send(request).await }.boxed()
    }
}

#[cfg(test)]
mod tests {
    use futures::StreamExt;
    use futures::stream::FuturesUnordered;

    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    /// Sends this many requests at once; gives when each was answered, in order.
    async fn answered(client: &Client, requests: usize) -> Vec<Duration> {
        let begin = Instant::now();
        let requests: FuturesUnordered<_> = (0..requests)
            .map(|_| async move {
                let request = Request::get("/").body(Body::empty()).unwrap();
                client.send(request).await.unwrap();
                begin.elapsed()
            })
            .collect();
        requests.collect().await
    }

    fn server() -> Client {
        let answer = tower::service_fn(|_: Request<Body>| async {
            Ok::<_, tower::BoxError>(Response::new(Body::empty()))
        });
        Client::new(answer, "here")
    }

    fn near(found: Duration, wanted: Duration) -> bool {
        found >= wanted && found < wanted + Duration::from_millis(5)
    }

    #[tokio::test(start_paused = true)]
    async fn a_burst_goes_at_once_and_the_rest_in_time() {
        let client = throttled(server(), 2.0, 3);
        assert_eq!(client.default_namespace(), "here");
        let times = answered(&client, 5).await;
        assert!(near(times[2], Duration::ZERO), "{times:?}");
        assert!(near(times[3], SECOND / 2), "{times:?}");
        assert!(near(times[4], SECOND), "{times:?}");
        // Two tokens come back in a second, and never more than three.
        tokio::time::sleep(SECOND).await;
        let times = answered(&client, 3).await;
        assert!(
            near(times[1], Duration::ZERO) && near(times[2], SECOND / 2),
            "{times:?}"
        );
        tokio::time::sleep(100 * SECOND).await;
        let times = answered(&client, 4).await;
        assert!(
            near(times[2], Duration::ZERO) && near(times[3], SECOND / 2),
            "{times:?}"
        );
    }

    #[tokio::test(start_paused = true)]
    async fn requests_that_nobody_waits_for_cost_no_token() {
        let client = throttled(server(), 1.0, 1);
        answered(&client, 1).await;
        let given_up = tokio::time::timeout(SECOND / 10, answered(&client, 20)).await;
        assert!(given_up.is_err());
        let times = answered(&client, 1).await;
        assert!(times[0] < SECOND, "{times:?}");
    }

    #[tokio::test(start_paused = true)]
    async fn there_are_limits_to_limits() {
        let client = throttled(server(), -1.0, 1);
        assert!(near(answered(&client, 500).await[499], Duration::ZERO));
        let client = throttled(server(), 1e-300, u32::MAX);
        assert!(near(answered(&client, 500).await[499], Duration::ZERO));
    }
}
