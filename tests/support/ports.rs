//! Ports for servers that cannot be told to take any free one and say which.

use std::future::Future;
use std::net::{Ipv4Addr, TcpListener};

use anyhow::Result;

use super::process::EndedEarly;

/// Starts a server on `N` free ports. Another process may take one of them between our look
/// and the server's bind, so a server that ends early is started again on other ports, twice.
pub(crate) async fn on_free_ports<const N: usize, T, Fut>(
    start: impl Fn([u16; N]) -> Fut,
) -> Result<T>
where
    Fut: Future<Output = Result<T>>,
{
    for _ in 0..2 {
        match start(free_ports()?).await {
            Err(err) if err.is::<EndedEarly>() => {}
            done => return done,
        }
    }
    start(free_ports()?).await
}

/// Returns `N` different ports that were free a moment ago: all are held until the last is
/// known.
fn free_ports<const N: usize>() -> Result<[u16; N]> {
    let mut held = Vec::with_capacity(N);
    let mut ports = [0; N];
    for port in &mut ports {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?;
        *port = listener.local_addr()?.port();
        held.push(listener);
    }
    Ok(ports)
}
