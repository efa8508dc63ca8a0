//! Conversations with a `git daemon`, gitprotocol-pack(5): one connection, no credentials.

use std::io::{Read, Write as _};

use tokio::net::TcpStream;

use super::advertisement::broken;
use super::net::{Blocking, Waiter};
use super::{Conversation, Service, packet};
use crate::config::Limits;
use crate::error::Result;

/// Connects and asks for `service` of the repository at `path`.
pub(super) fn open(
    host: &str,
    port: u16,
    path: &str,
    service: Service,
    limits: &Limits,
) -> Result<Box<dyn Conversation>> {
    let waiter = Waiter::new(limits)?;
    let stream = waiter.connect(host, port)?;
    let mut connection = Blocking { waiter, stream };
    let mut request = Vec::new();
    packet::write(
        &mut request,
        &format!("{} {path}\0host={host}:{port}\0", service.name()),
    );
    connection
        .write_all(&request)
        .map_err(|error| broken(&error))?;
    Ok(Box::new(connection))
}

impl Conversation for Blocking<TcpStream> {
    fn advertisement(&mut self) -> Result<&mut dyn Read> {
        Ok(self)
    }

    fn exchange(mut self: Box<Self>, request: Vec<u8>) -> Result<Box<dyn Read>> {
        self.write_all(&request).map_err(|error| broken(&error))?;
        Ok(self)
    }

    fn leave(mut self: Box<Self>) {
        // The server would log a connection that ends without it; nothing else depends on it.
        let _ = self.write_all(b"0000");
    }
}
