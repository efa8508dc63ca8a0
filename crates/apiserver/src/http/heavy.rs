//! Writes that can compute for a while: on threads where they hold up nothing else.
//!
//! Every step of a write has a bound, but those of a request that is as large as it may be, or of
//! a type with rules, add up to a good part of a second. On a worker thread of the runtime this
//! would be time in which nothing else is answered.

use std::sync::Arc;

use http::Response;
use tokio::runtime::Handle;
use tokio::sync::Semaphore;

use super::body::ApiBody;
use crate::builtin::CRDS;
use crate::status::{ApiError, ApiResult};
use crate::verbs::call::Call;

/// Body and stored object together that are worth another thread, in bytes.
const HEAVY_BYTES: usize = 32 << 10;
/// What counts as one share of the memory that such requests may take at one time. Parsed and
/// copied, an object takes up to a hundred times its size.
const SHARE_BYTES: usize = 128 << 10;
/// Shares of all of them: about one request of the largest size, or this many small ones.
const SHARES: usize = 32;

/// The places for heavy writes.
#[derive(Debug)]
pub(crate) struct Heavy {
    shares: Arc<Semaphore>,
}

impl Default for Heavy {
    fn default() -> Self {
        Self {
            shares: Arc::new(Semaphore::new(SHARES)),
        }
    }
}

/// How many shares a write takes; none if it can be done in passing.
pub(crate) fn shares(call: &Call) -> Option<u32> {
    let key = crate::store::ObjectKey::new(call.namespace(), call.name());
    let stored = call.server.store.get(&call.def.key, &key);
    let stored = stored.map_or(0, |stored| stored.bytes().len());
    let bytes = call.body.len() + stored;
    let has_rules = || {
        let schema = call.version().schema.get();
        schema.is_some_and(|schema| schema.rules.is_some())
    };
    let is_heavy = bytes > HEAVY_BYTES || &*call.def.key == CRDS || has_rules();
    let shares = (1 + bytes / SHARE_BYTES).min(SHARES);
    is_heavy.then(|| u32::try_from(shares).unwrap_or(u32::MAX))
}

impl Heavy {
    /// Runs a request on a thread of its own once there is room. Whoever leaves before that gives
    /// its place up.
    pub(crate) async fn run<F>(
        &self,
        shares: u32,
        request: impl FnOnce() -> F + Send + 'static,
    ) -> ApiResult<Response<ApiBody>>
    where
        F: Future<Output = ApiResult<Response<ApiBody>>>,
    {
        let room = self.shares.clone().acquire_many_owned(shares);
        let room = room.await.map_err(ApiError::internal)?;
        let runtime = Handle::current();
        let task = muster_watchdog::current().map(|caller| caller.sibling());
        let request = move || {
            let _room = room;
            match task {
                Some(task) => runtime.block_on(task.watch(request())),
                None => runtime.block_on(request()),
            }
        };
        match tokio::task::spawn_blocking(request).await {
            Ok(answer) => answer,
            Err(e) => Err(ApiError::internal(format!("the request was aborted: {e}"))),
        }
    }
}
