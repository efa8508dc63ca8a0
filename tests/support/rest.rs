//! The Kubernetes API as plain HTTP: what a server answers to the letter, which a typed
//! client hides.

use anyhow::{Context, Result, anyhow, ensure};
use futures::AsyncBufReadExt;
use futures::StreamExt;
use futures::io::{AsyncBufRead, Lines};
use http::{Method, Request};
use http_body_util::BodyExt;
use kube::Client;
use kube::client::Body;
use serde_json::Value;
use std::pin::Pin;
use std::time::Duration;

use super::waiting::within;

/// How long a story waits for an answer or for the next event of a watch.
const ANSWER_LIMIT: Duration = Duration::from_secs(30);

/// Sends requests with an administrator's rights.
#[derive(Clone)]
pub(crate) struct Rest {
    client: Client,
    accept: Option<&'static str>,
    /// Sent with every request but those for watches.
    headers: Vec<(&'static str, String)>,
}

impl Rest {
    pub(crate) fn new(client: Client) -> Self {
        Self {
            client,
            accept: None,
            headers: Vec::new(),
        }
    }

    /// The same, acting as a user by one more header of impersonation, such as
    /// `Impersonate-User`.
    pub(crate) fn acting(&self, header: &'static str, value: &str) -> Self {
        let mut other = self.clone();
        other.headers.push((header, value.to_owned()));
        other
    }

    /// The same, asking for another representation.
    pub(crate) fn accepting(&self, accept: &'static str) -> Self {
        Self {
            accept: Some(accept),
            ..self.clone()
        }
    }

    pub(crate) async fn get(&self, path: &str) -> Result<Answer> {
        self.send(Method::GET, path, None, None).await
    }

    pub(crate) async fn post(&self, path: &str, body: &Value) -> Result<Answer> {
        self.send(Method::POST, path, Some("application/json"), Some(body))
            .await
    }

    pub(crate) async fn put(&self, path: &str, body: &Value) -> Result<Answer> {
        self.send(Method::PUT, path, Some("application/json"), Some(body))
            .await
    }

    /// Sends a JSON patch (a list of operations).
    pub(crate) async fn json_patch(&self, path: &str, body: &Value) -> Result<Answer> {
        self.send(
            Method::PATCH,
            path,
            Some("application/json-patch+json"),
            Some(body),
        )
        .await
    }

    /// Sends a JSON merge patch.
    pub(crate) async fn merge_patch(&self, path: &str, body: &Value) -> Result<Answer> {
        self.send(
            Method::PATCH,
            path,
            Some("application/merge-patch+json"),
            Some(body),
        )
        .await
    }

    pub(crate) async fn delete(&self, path: &str) -> Result<Answer> {
        self.send(Method::DELETE, path, None, None).await
    }

    /// Deletes with a body of `DeleteOptions`.
    pub(crate) async fn delete_with(&self, path: &str, options: &Value) -> Result<Answer> {
        self.send(
            Method::DELETE,
            path,
            Some("application/json"),
            Some(options),
        )
        .await
    }

    /// Opens a watch; `path` carries its parameters, `watch=true` included.
    pub(crate) async fn watch(&self, path: &str) -> Result<Watch> {
        let accept = self.accept.unwrap_or("application/json");
        let request = Request::get(path)
            .header(http::header::ACCEPT, accept)
            .body(Vec::new())?;
        let stream = within(ANSWER_LIMIT, path, self.client.request_stream(request)).await??;
        let stream: Pin<Box<dyn AsyncBufRead + Send>> = Box::pin(stream);
        Ok(Watch {
            lines: stream.lines(),
            path: path.to_owned(),
        })
    }

    /// Sends one request and reads the answer, whatever its code.
    pub(crate) async fn send(
        &self,
        method: Method,
        path: &str,
        content_type: Option<&str>,
        body: Option<&Value>,
    ) -> Result<Answer> {
        let what = format!("{method} {path}");
        let mut request = Request::builder().method(method).uri(path);
        if let Some(content_type) = content_type {
            request = request.header(http::header::CONTENT_TYPE, content_type);
        }
        request = request.header(
            http::header::ACCEPT,
            self.accept.unwrap_or("application/json"),
        );
        for (name, value) in &self.headers {
            request = request.header(*name, value);
        }
        let body = body
            .map(serde_json::to_vec)
            .transpose()?
            .unwrap_or_default();
        let answer = async {
            let response = self.client.send(request.body(Body::from(body))?).await?;
            let code = response.status().as_u16();
            let bytes = response.into_body().collect().await?.to_bytes();
            let body = serde_json::from_slice(&bytes)
                .unwrap_or_else(|_| Value::String(String::from_utf8_lossy(&bytes).into_owned()));
            Ok::<_, anyhow::Error>(Answer {
                what: what.clone(),
                code,
                body,
            })
        };
        within(ANSWER_LIMIT, &what, answer)
            .await?
            .with_context(|| what.clone())
    }
}

/// A server's answer. A body that is not JSON is given as text.
#[derive(Debug)]
pub(crate) struct Answer {
    what: String,
    pub(crate) code: u16,
    pub(crate) body: Value,
}

impl Answer {
    /// The body, provided that the code is 200 or 201.
    pub(crate) fn ok(self) -> Result<Value> {
        let Self { what, code, body } = self;
        ensure!(code == 200 || code == 201, "{what} gave {code}: {body}");
        Ok(body)
    }

    /// The body, provided that the code is 201.
    pub(crate) fn created(self) -> Result<Value> {
        let Self { what, code, body } = self;
        ensure!(code == 201, "{what} gave {code} in place of 201: {body}");
        Ok(body)
    }

    /// Requires a `Status` that refuses with exactly this code, reason (`""` for none) and
    /// message, and gives its `details`.
    pub(crate) fn refused(self, code: u16, reason: &str, message: &str) -> Result<Value> {
        let Self {
            what,
            code: http_code,
            body,
        } = self;
        let mut expected = serde_json::json!({
            "kind": "Status",
            "apiVersion": "v1",
            "metadata": {},
            "status": "Failure",
            "message": message,
            "code": code,
        });
        if !reason.is_empty() {
            expected["reason"] = Value::from(reason);
        }
        let mut status = body;
        let details = status
            .as_object_mut()
            .ok_or_else(|| anyhow!("{what} gave {http_code} and no object"))?
            .remove("details")
            .unwrap_or_default();
        ensure!(
            status == expected && http_code == code,
            "{what} gave {http_code}:\n{status}\nand not:\n{expected}"
        );
        Ok(details)
    }

    /// Requires the plain text that a server has for paths under no group that it knows.
    pub(crate) fn no_such_path(self) -> Result<()> {
        let Self { what, code, body } = self;
        ensure!(
            code == 404 && body == "404 page not found\n",
            "{what} gave {code}: {body}"
        );
        Ok(())
    }

    /// As [`Self::refused`], for a message that goes on with the words of Go's own decoders,
    /// which differ from one Go version to the next: only its beginning is compared.
    pub(crate) fn refused_beginning(
        self,
        code: u16,
        reason: &str,
        beginning: &str,
    ) -> Result<Value> {
        let message = self.body["message"].as_str().unwrap_or_default().to_owned();
        let expected = if message.starts_with(beginning) {
            &message
        } else {
            beginning
        };
        self.refused(code, reason, expected)
    }
}

/// An open watch.
pub(crate) struct Watch {
    lines: Lines<Pin<Box<dyn AsyncBufRead + Send>>>,
    path: String,
}

impl Watch {
    /// The next event: its type and its object.
    pub(crate) async fn next(&mut self) -> Result<(String, Value)> {
        let line = within(
            ANSWER_LIMIT,
            &format!("an event of {}", self.path),
            self.lines.next(),
        )
        .await?
        .ok_or_else(|| anyhow!("the watch {} ended", self.path))??;
        let event: Value = serde_json::from_str(&line)?;
        let kind = event["type"]
            .as_str()
            .ok_or_else(|| anyhow!("no type in {line}"))?;
        Ok((kind.to_owned(), event["object"].clone()))
    }

    /// The next event, provided that it has this type.
    pub(crate) async fn next_is(&mut self, kind: &str) -> Result<Value> {
        let (seen, object) = self.next().await?;
        ensure!(seen == kind, "expected {kind} and saw {seen}: {object}");
        Ok(object)
    }

    /// Requires that the server has ended the watch.
    pub(crate) async fn has_ended(&mut self) -> Result<()> {
        let next = within(
            ANSWER_LIMIT,
            &format!("the end of {}", self.path),
            self.lines.next(),
        )
        .await?;
        ensure!(
            next.is_none(),
            "expected the end of {} and saw {next:?}",
            self.path
        );
        Ok(())
    }
}
