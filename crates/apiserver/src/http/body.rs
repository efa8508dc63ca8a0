//! Answer bodies: whole, or a stream of watch lines.

use std::convert::Infallible;
use std::pin::Pin;
use std::task::{Context, Poll};

use bytes::Bytes;
use futures::Stream;
use http_body::{Body, Frame, SizeHint};

/// A stream of lines, each sent as one frame.
pub(crate) type Lines = Pin<Box<dyn Stream<Item = Bytes> + Send>>;

/// The body of an answer.
pub(crate) enum ApiBody {
    Whole(Option<Bytes>),
    Lines(Lines),
}

impl std::fmt::Debug for ApiBody {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::Whole(_) => "ApiBody::Whole",
            Self::Lines(_) => "ApiBody::Lines",
        })
    }
}

impl Body for ApiBody {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        match &mut *self {
            Self::Whole(bytes) => Poll::Ready(bytes.take().map(|b| Ok(Frame::data(b)))),
            Self::Lines(lines) => lines
                .as_mut()
                .poll_next(cx)
                .map(|line| line.map(|l| Ok(Frame::data(l)))),
        }
    }

    fn is_end_stream(&self) -> bool {
        matches!(self, Self::Whole(None))
    }

    fn size_hint(&self) -> SizeHint {
        match self {
            Self::Whole(bytes) => SizeHint::with_exact(bytes.as_ref().map_or(0, Bytes::len) as u64),
            Self::Lines(_) => SizeHint::default(),
        }
    }
}
