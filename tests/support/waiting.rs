//! The one way to wait for something.

use std::future::Future;
use std::time::Duration;

use anyhow::{Result, anyhow};
use tokio::time::{Instant, sleep, timeout};

/// How long [`eventually`] pauses between two looks: short against any story, long against
/// what a look costs a busy two-core machine.
const PAUSE: Duration = Duration::from_millis(25);

/// Looks again and again until `look` gives a value, and fails after `limit` with what was
/// seen last. `what` completes the sentence "waited for …".
pub(crate) async fn eventually<T, F, Fut>(limit: Duration, what: &str, mut look: F) -> Result<T>
where
    F: FnMut() -> Fut,
    Fut: Future<Output = Result<T>>,
{
    let deadline = Instant::now() + limit;
    let mut last_seen = anyhow!("nothing, not even the first look came back");
    loop {
        // A look that hangs counts as the state seen before it.
        match timeout(deadline.saturating_duration_since(Instant::now()), look()).await {
            Ok(Ok(value)) => return Ok(value),
            Ok(Err(seen)) => last_seen = seen,
            Err(_) => {}
        }
        if Instant::now() + PAUSE >= deadline {
            return Err(anyhow!(
                "waited {limit:?} for {what}; last seen: {last_seen:#}"
            ));
        }
        sleep(PAUSE).await;
    }
}

/// Awaits `future`, and fails after `limit`. `what` completes the sentence "waited for …".
pub(crate) async fn within<T>(
    limit: Duration,
    what: &str,
    future: impl Future<Output = T>,
) -> Result<T> {
    timeout(limit, future)
        .await
        .map_err(|_| anyhow!("waited {limit:?} for {what}"))
}
