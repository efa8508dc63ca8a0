//! The thread that answers probes.
//!
//! `/healthz` and `/readyz` must answer while every worker thread is held, and `/metrics` must show
//! that they are: so they run on a tokio runtime of their own, with one thread.

use std::future::Future;
use std::io;

use tokio::runtime::{Builder, Handle};
use tokio_util::sync::CancellationToken;

/// A tokio runtime with one thread, which ends when this is dropped.
#[derive(Debug)]
pub(super) struct ProbeThread {
    handle: Handle,
    end: CancellationToken,
}

impl ProbeThread {
    pub(super) fn start() -> io::Result<Self> {
        let runtime = Builder::new_current_thread().enable_all().build()?;
        let handle = runtime.handle().clone();
        let end = CancellationToken::new();
        let ended = end.clone();
        std::thread::Builder::new()
            .name("muster-probes".to_owned())
            .spawn(move || runtime.block_on(ended.cancelled()))?;
        Ok(Self { handle, end })
    }

    /// Runs `work`, and what it spawns, on this thread.
    pub(super) async fn run<T: Send + 'static>(
        &self,
        work: impl Future<Output = io::Result<T>> + Send + 'static,
    ) -> io::Result<T> {
        self.handle.spawn(work).await.map_err(io::Error::other)?
    }
}

impl Drop for ProbeThread {
    fn drop(&mut self) {
        self.end.cancel();
    }
}

#[cfg(test)]
mod tests {
    use std::io::{Read, Write};
    use std::net::{SocketAddr, TcpStream};
    use std::sync::{Arc, mpsc};
    use std::time::Duration;

    use muster_watchdog::{Task, stalls, working_on};

    use super::*;
    use crate::http::{self, Probes};

    fn get(address: SocketAddr, path: &str) -> String {
        let mut stream = TcpStream::connect(address).unwrap();
        let request =
            format!("GET {path} HTTP/1.1\r\nHost: 127.0.0.1\r\nConnection: close\r\n\r\n");
        stream.write_all(request.as_bytes()).unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).unwrap();
        answer
    }

    #[test]
    fn probes_answer_and_name_who_holds_the_workers() {
        let workers = Builder::new_multi_thread().worker_threads(1).build();
        let workers = workers.unwrap();
        let (held, wait_held) = mpsc::channel();
        let (release, released) = mpsc::channel::<()>();
        let task = Task::new("ProbeThreadTest", "cluster1/web");
        workers.spawn(task.watch(async move {
            working_on("Deployment ns1/web");
            held.send(()).unwrap();
            let _ = released.recv();
        }));
        wait_held.recv().unwrap();

        let probes = Probes {
            metrics: Arc::new(String::new),
            readiness: Arc::new(|| {
                let held = stalls(Duration::ZERO).into_iter();
                let held = held.filter(|stall| stall.task.role() == "ProbeThreadTest");
                held.map(|stall| stall.to_string()).collect()
            }),
            actors: Arc::new(|| Box::pin(std::future::pending())),
            overview: Arc::new(|| Box::pin(std::future::pending())),
            allowed_hosts: Arc::new([]),
            limits: muster_apiserver::ConnectionLimits::default(),
        };
        let thread = ProbeThread::start().unwrap();
        let any_port = ([127, 0, 0, 1], 0).into();
        let served = http::serve(any_port, probes, CancellationToken::new());
        let starting = tokio::runtime::Builder::new_current_thread().build();
        let (address, _server) = starting.unwrap().block_on(thread.run(served)).unwrap();

        assert!(get(address, "/healthz").starts_with("HTTP/1.1 200 "));
        let ready = get(address, "/readyz");
        assert!(ready.starts_with("HTTP/1.1 503 "), "{ready}");
        assert!(
            ready.contains("ProbeThreadTest/cluster1/web has held thread")
                && ready.contains("working on Deployment ns1/web"),
            "{ready}"
        );
        drop(release);
    }
}
