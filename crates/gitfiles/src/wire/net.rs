//! A connection that blocks, with a limit for each wait and one for the whole conversation.

use std::future::Future;
use std::io::{self, Read, Write};
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _, ReadBuf};
use tokio::net::TcpStream;
use tokio::runtime::Runtime;
use tokio::time::Instant;

use crate::config::Limits;
use crate::error::{GitErrorKind, Result};

/// What waits for the network on a thread that may block.
pub(super) struct Waiter {
    runtime: Runtime,
    stall: Duration,
    until: Instant,
}

impl Waiter {
    pub(super) fn new(limits: &Limits) -> Result<Self> {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()
            .map_err(|error| GitErrorKind::Broken {
                reason: error.to_string(),
            })?;
        Ok(Self {
            runtime,
            stall: limits.stall,
            until: Instant::now() + limits.conversation,
        })
    }

    /// Waits for `work` as long as one wait may take, and no longer than the conversation may.
    pub(super) fn wait<T>(&self, work: impl Future<Output = io::Result<T>>) -> io::Result<T> {
        let stalled = Instant::now() + self.stall;
        if stalled < self.until {
            let text = format!("nothing came or went for {:?}", self.stall);
            self.wait_until(stalled, &text, work)
        } else {
            self.wait_long(work)
        }
    }

    /// Waits for `work` as long as the conversation may take, as for a server that checks a push.
    pub(super) fn wait_long<T>(&self, work: impl Future<Output = io::Result<T>>) -> io::Result<T> {
        self.wait_until(self.until, "the conversation took too long", work)
    }

    fn wait_until<T>(
        &self,
        until: Instant,
        text: &str,
        work: impl Future<Output = io::Result<T>>,
    ) -> io::Result<T> {
        self.runtime.block_on(async {
            tokio::time::timeout_at(until, work)
                .await
                .unwrap_or_else(|_| Err(io::Error::new(io::ErrorKind::TimedOut, text)))
        })
    }

    /// Connects to a host.
    pub(super) fn connect(&self, host: &str, port: u16) -> Result<TcpStream> {
        self.wait(TcpStream::connect((host, port)))
            .map_err(|error| GitErrorKind::HostNotReachable {
                reason: format!("{host}:{port}: {error}"),
            })
    }
}

/// A stream that blocks.
pub(super) struct Blocking<S> {
    pub(super) waiter: Waiter,
    pub(super) stream: S,
}

impl<S: AsyncRead + Unpin> Read for Blocking<S> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        self.waiter.wait(self.stream.read(buffer))
    }
}

impl<S: AsyncWrite + Unpin> Write for Blocking<S> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.waiter.wait(self.stream.write(bytes))
    }

    fn flush(&mut self) -> io::Result<()> {
        self.waiter.wait(self.stream.flush())
    }
}

/// With or without TLS.
pub(super) enum Stream {
    Plain(TcpStream),
    Tls(Box<tokio_rustls::client::TlsStream<TcpStream>>),
}

impl AsyncRead for Stream {
    fn poll_read(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        match self.get_mut() {
            Self::Plain(stream) => Pin::new(stream).poll_read(context, buffer),
            Self::Tls(stream) => Pin::new(stream).poll_read(context, buffer),
        }
    }
}

impl AsyncWrite for Stream {
    fn poll_write(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        match self.get_mut() {
            Self::Plain(stream) => Pin::new(stream).poll_write(context, bytes),
            Self::Tls(stream) => Pin::new(stream).poll_write(context, bytes),
        }
    }

    fn poll_flush(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        match self.get_mut() {
            Self::Plain(stream) => Pin::new(stream).poll_flush(context),
            Self::Tls(stream) => Pin::new(stream).poll_flush(context),
        }
    }

    fn poll_shutdown(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        match self.get_mut() {
            Self::Plain(stream) => Pin::new(stream).poll_shutdown(context),
            Self::Tls(stream) => Pin::new(stream).poll_shutdown(context),
        }
    }
}
