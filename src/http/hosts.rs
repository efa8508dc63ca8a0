//! Which names the end points answer to.
//!
//! A page of another site can make a browser ask a server of this network, and by a name of its own
//! that it lets point here (DNS rebinding) also read the answer. Such a request always has that
//! name as its host; probes and Prometheus use addresses.

use std::net::IpAddr;
use std::sync::Arc;

use axum::extract::{Request, State};
use axum::http::uri::Authority;
use axum::http::{HeaderMap, HeaderName, StatusCode, Uri, header};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};

/// Names that are answered, beside addresses and those of this host.
pub(super) type AllowedHosts = Arc<[String]>;

/// Refuses requests for names that are not ours, and those that pages of other sites make.
pub(super) async fn guard(
    State(allowed): State<AllowedHosts>,
    request: Request,
    next: Next,
) -> Response {
    match refusal(request.uri(), request.headers(), &allowed) {
        Some(refusal) => refusal.into_response(),
        None => next.run(request).await,
    }
}

fn refusal(uri: &Uri, headers: &HeaderMap, allowed: &[String]) -> Option<(StatusCode, String)> {
    let authority = uri.authority().map(Authority::as_str);
    let host = authority.or_else(|| text_of(headers, header::HOST));
    if let Some(host) = host.filter(|host| !is_allowed(host, allowed)) {
        let message = format!(
            "host {host:?} is not answered here: use an address, or add the name to \
             telemetry.allowed_hosts\n"
        );
        return Some((StatusCode::MISDIRECTED_REQUEST, message));
    }
    is_of_another_site(headers, host).then(|| {
        let message = "requests of other sites are not answered\n";
        (StatusCode::FORBIDDEN, message.to_owned())
    })
}

fn text_of(headers: &HeaderMap, name: HeaderName) -> Option<&str> {
    headers.get(name).and_then(|value| value.to_str().ok())
}

/// The name of `name:port` or `[address]:port`.
fn name_of(host: &str) -> &str {
    match host.strip_prefix('[') {
        Some(rest) => rest.split(']').next().unwrap_or_default(),
        None => host.rsplit_once(':').map_or(host, |(name, _)| name),
    }
}

fn is_allowed(host: &str, allowed: &[String]) -> bool {
    let name = name_of(host).trim_end_matches('.');
    name.parse::<IpAddr>().is_ok()
        || name.eq_ignore_ascii_case("localhost")
        || allowed.iter().any(|known| name.eq_ignore_ascii_case(known))
}

/// Whether a page that is not ours makes the request. Following a link from there is fine.
fn is_of_another_site(headers: &HeaderMap, host: Option<&str>) -> bool {
    let named = |name| text_of(headers, HeaderName::from_static(name));
    let is_link = named("sec-fetch-mode") == Some("navigate");
    if named("sec-fetch-site") == Some("cross-site") && !is_link {
        return true;
    }
    let origin = text_of(headers, header::ORIGIN);
    let of_origin = origin.and_then(|origin| origin.split_once("://"));
    match (origin, of_origin, host) {
        (Some(_), Some((_, of)), Some(host)) => !of.eq_ignore_ascii_case(host),
        (Some(_), ..) => true,
        (None, ..) => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_this_host_and_named_hosts_are_answered() {
        let allowed = ["muster.example.org".to_owned()];
        for host in [
            "127.0.0.1:9090",
            "10.0.0.7",
            "[::1]:9090",
            "[fe80::1]",
            "localhost:9090",
            "LOCALHOST.",
            "Muster.example.org:80",
        ] {
            assert!(is_allowed(host, &allowed), "{host}");
        }
        for host in [
            "evil.example",
            "evil.example:9090",
            "127.0.0.1.evil.example",
            "localhost.evil.example",
            "x.muster.example.org",
            "",
            "[evil.example]",
        ] {
            assert!(!is_allowed(host, &allowed), "{host}");
        }
    }

    #[test]
    fn requests_of_other_pages_are_told_from_links_and_our_own() {
        let of = |pairs: &[(&'static str, &str)]| {
            let pairs = pairs.iter().map(|(name, value)| {
                let name = HeaderName::from_static(name);
                (name, value.parse().unwrap())
            });
            is_of_another_site(&pairs.collect(), Some("127.0.0.1:9090"))
        };
        assert!(!of(&[]));
        assert!(!of(&[("origin", "http://127.0.0.1:9090")]));
        assert!(!of(&[("sec-fetch-site", "same-origin")]));
        let link = [
            ("sec-fetch-site", "cross-site"),
            ("sec-fetch-mode", "navigate"),
        ];
        assert!(!of(&link));
        assert!(of(&[("origin", "http://evil.example")]));
        assert!(of(&[("origin", "null")]));
        assert!(of(&[
            ("sec-fetch-site", "cross-site"),
            ("sec-fetch-mode", "no-cors")
        ]));
    }
}
