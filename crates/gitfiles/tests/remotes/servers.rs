//! A server of Git's own protocol: each connection is handed to a `git daemon` as inetd would.

use std::io;
use std::net::{Ipv4Addr, TcpListener, TcpStream};
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;

use crate::lab::isolate;

/// Accepts connections until it is dropped.
pub(crate) struct Door {
    port: u16,
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl Door {
    /// Calls `serve` with each connection, on a thread of its own.
    pub(crate) fn open(serve: impl Fn(TcpStream) + Send + Sync + 'static) -> Self {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        let port = listener.local_addr().unwrap().port();
        let stop = Arc::new(AtomicBool::new(false));
        let stopped = stop.clone();
        let serve = Arc::new(serve);
        let thread = std::thread::spawn(move || {
            while let Ok((stream, _)) = listener.accept() {
                if stopped.load(Ordering::SeqCst) {
                    return;
                }
                let serve = serve.clone();
                std::thread::spawn(move || serve(stream));
            }
        });
        Self {
            port,
            stop,
            thread: Some(thread),
        }
    }

    pub(crate) fn port(&self) -> u16 {
        self.port
    }
}

impl Drop for Door {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::SeqCst);
        // Wakes the thread up.
        let woken = TcpStream::connect((Ipv4Addr::LOCALHOST, self.port));
        if let (Ok(_), Some(thread)) = (woken, self.thread.take()) {
            thread.join().unwrap();
        }
    }
}

pub(crate) struct DaemonServer {
    door: Door,
}

impl DaemonServer {
    pub(crate) fn start(root: PathBuf) -> Self {
        Self {
            door: Door::open(move |stream| {
                // A client that is gone is no problem of the server's.
                let _ = run_daemon(stream, &root);
            }),
        }
    }

    pub(crate) fn port(&self) -> u16 {
        self.door.port()
    }
}

fn run_daemon(stream: TcpStream, root: &Path) -> io::Result<()> {
    let output = OwnedFd::from(stream.try_clone()?);
    let mut command = Command::new("git");
    isolate(&mut command);
    command
        .args(["daemon", "--inetd", "--export-all", "--enable=receive-pack"])
        .arg(format!("--base-path={}", root.display()))
        .arg(root)
        .stdin(Stdio::from(OwnedFd::from(stream)))
        .stdout(Stdio::from(output))
        .stderr(Stdio::null())
        .status()
        .map(|_| ())
}
