//! Lists in pages: every page shows the state of the first one.
//!
//! The real server reads later pages at the first one's revision from etcd. Here the rest of
//! the list is kept (the objects are shared, so that costs a pointer each) until newer paged
//! lists push it out; its token then answers 410 like a compacted revision.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, PoisonError};

use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;

use crate::status::{ApiError, ApiResult};
use crate::store::Stored;

/// Paged lists that can be in progress at one time.
const OPEN_LISTS: usize = 64;

/// A list from which pages are cut.
#[derive(Debug)]
pub(crate) struct Snapshot {
    id: u64,
    pub(crate) revision: u64,
    pub(crate) objects: Vec<Arc<Stored>>,
}

/// The lists in progress.
#[derive(Debug, Default)]
pub(crate) struct Pages(Mutex<VecDeque<Arc<Snapshot>>>);

impl Pages {
    /// Keeps a list and gives it an identity.
    pub(crate) fn keep(&self, revision: u64, objects: Vec<Arc<Stored>>) -> Arc<Snapshot> {
        let snapshot = Arc::new(Snapshot {
            id: rand::random(),
            revision,
            objects,
        });
        let mut open = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if open.len() == OPEN_LISTS {
            open.pop_front();
        }
        open.push_back(snapshot.clone());
        snapshot
    }

    /// The token for the page that starts at `offset`.
    pub(crate) fn token(snapshot: &Snapshot, offset: usize) -> String {
        URL_SAFE_NO_PAD.encode(format!("{}:{offset}", snapshot.id))
    }

    /// The list and offset that a token names.
    pub(crate) fn resume(&self, token: &str) -> ApiResult<(Arc<Snapshot>, usize)> {
        let invalid = || {
            ApiError::bad_request(
                "invalid continue token: continue key is not valid: illegal base64 data",
            )
        };
        let text = URL_SAFE_NO_PAD.decode(token).map_err(|_| invalid())?;
        let text = String::from_utf8(text).map_err(|_| invalid())?;
        let (id, offset) = text.split_once(':').ok_or_else(invalid)?;
        let id: u64 = id.parse().map_err(|_| invalid())?;
        let offset: usize = offset.parse().map_err(|_| invalid())?;
        let open = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let snapshot = open.iter().find(|s| s.id == id).cloned().ok_or_else(|| {
            ApiError::expired(
                "The provided continue parameter is too old to display a consistent list result. You can start a new list without the continue parameter.",
            )
        })?;
        if offset > snapshot.objects.len() {
            return Err(invalid());
        }
        Ok((snapshot, offset))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use http::StatusCode;

    #[test]
    fn tokens_resume_their_list_and_expire() {
        let pages = Pages::default();
        let snapshot = pages.keep(7, Vec::new());
        let token = Pages::token(&snapshot, 0);
        assert_eq!(pages.resume(&token).unwrap().0.revision, 7);
        assert_eq!(pages.resume("%").unwrap_err().code, StatusCode::BAD_REQUEST);
        let beyond = Pages::token(&snapshot, 1);
        assert_eq!(
            pages.resume(&beyond).unwrap_err().code,
            StatusCode::BAD_REQUEST
        );
        for _ in 0..OPEN_LISTS {
            pages.keep(8, Vec::new());
        }
        assert_eq!(pages.resume(&token).unwrap_err().code, StatusCode::GONE);
    }
}
