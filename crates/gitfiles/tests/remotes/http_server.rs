//! A server of HTTP for `git http-backend`, with passwords, TLS, and a say in each request.

use std::io::{self, BufRead, BufReader, Read, Write};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::{Arc, Mutex};

use base64::Engine as _;
use rustls::{ServerConfig, ServerConnection, StreamOwned};

use crate::lab::isolate;
use crate::servers::Door;

/// What to do before a request is served; gets its method and target, and may answer itself.
type Interceptor = Box<dyn FnMut(&str, &str) -> Option<String> + Send>;

#[derive(Default)]
struct State {
    /// User and password that everyone has to show.
    login: Option<String>,
    interceptor: Option<Interceptor>,
    /// Of answers to which requests only so many bytes are sent.
    cut: Option<(&'static str, usize)>,
    /// Method, target, and how many bytes the answer had.
    served: Vec<(String, String, usize)>,
    /// The header `authorization` of each request.
    shown: Vec<Option<String>>,
}

pub(crate) struct HttpServer {
    door: Door,
    state: Arc<Mutex<State>>,
}

impl HttpServer {
    pub(crate) fn start(root: PathBuf, tls: Option<Arc<ServerConfig>>) -> Self {
        let state = Arc::new(Mutex::new(State::default()));
        let shared = state.clone();
        let door = Door::open(move |stream| {
            // A client that is gone is no problem of the server's.
            let _ = match &tls {
                None => serve(stream, &root, &shared),
                Some(config) => {
                    let connection = ServerConnection::new(config.clone()).unwrap();
                    serve(StreamOwned::new(connection, stream), &root, &shared)
                }
            };
        });
        Self { door, state }
    }

    pub(crate) fn port(&self) -> u16 {
        self.door.port()
    }

    pub(crate) fn require_login(&self, user: &str, password: &str) {
        let pair = base64::engine::general_purpose::STANDARD.encode(format!("{user}:{password}"));
        self.state.lock().unwrap().login = Some(format!("Basic {pair}"));
    }

    /// `interceptor` is called before each request is served; what it gives is the whole answer.
    pub(crate) fn intercept(
        &self,
        interceptor: impl FnMut(&str, &str) -> Option<String> + Send + 'static,
    ) {
        self.state.lock().unwrap().interceptor = Some(Box::new(interceptor));
    }

    /// Calls `action` once, before the first request whose method and target begin so.
    pub(crate) fn before_first(
        &self,
        wanted: &'static str,
        action: impl FnOnce() + Send + 'static,
    ) {
        let mut action = Some(action);
        self.intercept(move |method, target| {
            if format!("{method} {target}").contains(wanted)
                && let Some(action) = action.take()
            {
                action();
            }
            None
        });
    }

    /// Sends only `bytes` of the answer to requests whose method and target contain `wanted`.
    pub(crate) fn cut(&self, cut: Option<(&'static str, usize)>) {
        self.state.lock().unwrap().cut = cut;
    }

    /// Gives and forgets what was served.
    pub(crate) fn take_served(&self) -> Vec<(String, String, usize)> {
        std::mem::take(&mut self.state.lock().unwrap().served)
    }

    pub(crate) fn shown(&self) -> Vec<Option<String>> {
        self.state.lock().unwrap().shown.clone()
    }
}

fn serve(stream: impl Read + Write, root: &Path, state: &Mutex<State>) -> io::Result<()> {
    let mut stream = BufReader::new(stream);
    let mut line = String::new();
    stream.read_line(&mut line)?;
    let mut words = line.split_ascii_whitespace();
    let (Some(method), Some(target)) = (words.next(), words.next()) else {
        return Ok(());
    };
    let (method, target) = (method.to_owned(), target.to_owned());
    let mut length = 0;
    let (mut content_type, mut authorization) = (String::new(), None);
    loop {
        let mut header = String::new();
        stream.read_line(&mut header)?;
        let Some((name, value)) = header.trim_end().split_once(':') else {
            break;
        };
        let value = value.trim();
        match name.to_ascii_lowercase().as_str() {
            "content-length" => length = value.parse().unwrap(),
            "content-type" => value.clone_into(&mut content_type),
            "authorization" => authorization = Some(value.to_owned()),
            _ => {}
        }
    }
    let mut body = vec![0; length];
    stream.read_exact(&mut body)?;
    let answer = {
        let mut locked = state.lock().unwrap();
        locked.shown.push(authorization.clone());
        if locked.login.is_some() && locked.login != authorization {
            Some("HTTP/1.1 401 Unauthorized\r\nwww-authenticate: Basic\r\n\r\n".to_owned())
        } else {
            let mut interceptor = locked.interceptor.take();
            drop(locked);
            let answer = interceptor
                .as_mut()
                .and_then(|intercept| intercept(&method, &target));
            state.lock().unwrap().interceptor = interceptor;
            answer
        }
    };
    let mut answer = match answer {
        Some(answer) => answer.into_bytes(),
        None => run_backend(root, &method, &target, &content_type, &body)?,
    };
    let cut = state.lock().unwrap().cut;
    if let Some((wanted, bytes)) = cut
        && format!("{method} {target}").contains(wanted)
    {
        answer.truncate(bytes);
    }
    state
        .lock()
        .unwrap()
        .served
        .push((method, target, answer.len()));
    let stream = stream.get_mut();
    stream.write_all(&answer)?;
    stream.flush()
}

fn run_backend(
    root: &Path,
    method: &str,
    target: &str,
    content_type: &str,
    body: &[u8],
) -> io::Result<Vec<u8>> {
    let (path, query) = target.split_once('?').unwrap_or((target, ""));
    let mut command = Command::new("git");
    isolate(&mut command);
    let mut child = command
        .arg("http-backend")
        .env("GIT_PROJECT_ROOT", root)
        .env("GIT_HTTP_EXPORT_ALL", "1")
        .env("PATH_INFO", path)
        .env("QUERY_STRING", query)
        .env("REQUEST_METHOD", method)
        .env("CONTENT_TYPE", content_type)
        .env("CONTENT_LENGTH", body.len().to_string())
        .env("REMOTE_ADDR", "127.0.0.1")
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()?;
    let mut input = child.stdin.take().unwrap();
    let answer = std::thread::scope(|scope| {
        scope.spawn(move || input.write_all(body));
        child.wait_with_output()
    })?
    .stdout;
    let end = answer
        .windows(4)
        .position(|four| four == b"\r\n\r\n")
        .unwrap();
    let head = String::from_utf8_lossy(&answer[..end]);
    let status = head
        .lines()
        .find_map(|line| line.strip_prefix("Status: "))
        .unwrap_or("200 OK")
        .to_owned();
    let content = &answer[end + 4..];
    let mut http = format!(
        "HTTP/1.1 {status}\r\nconnection: close\r\ncontent-length: {}\r\n",
        content.len()
    );
    for line in head.lines().filter(|line| !line.starts_with("Status: ")) {
        http = format!("{http}{line}\r\n");
    }
    let mut http = format!("{http}\r\n").into_bytes();
    http.extend_from_slice(content);
    Ok(http)
}
