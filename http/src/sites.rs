//! The names under which the routes may be requested, and the pages that may request them.
//!
//! A browser sends both: `Host` is the name that it has looked up, `Origin` the page that sends the request. An attacker's
//! page may look up its own name as 127.0.0.1 (DNS rebinding), and then sends that name as the host; or it uses this server's
//! name, and then its origin is another. Programs other than browsers send no origin, and any host they like.

use std::net::IpAddr;

use axum::http::header::{HeaderName, ORIGIN};
use axum::http::request::Parts;
use axum::http::uri::Authority;
use axum::http::{HeaderValue, header};

use crate::problem::Problem;

/// The names under which the routes may be requested, and the pages that may request them. The headers `Host` and `Origin` of
/// each request are compared with these.
///
/// By default, these are `localhost` and the loopback addresses, with any port, and pages of the same host and port as the
/// request. A request without such a header is accepted: every browser sends `Host`, and `Origin` when a page of another site
/// requests a change.
///
/// ```
/// use millrun_http::Sites;
///
/// // Behind a proxy for https://app.example.com that passes the host on as its own name for this program.
/// let sites = Sites::loopback().host("app.internal").origin("https://app.example.com");
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Sites {
    hosts: Vec<String>,
    origins: Vec<String>,
    /// Whether any IP address is accepted as a host: such a host has not been looked up by name.
    has_addresses: bool,
}

impl Default for Sites {
    fn default() -> Self {
        Self::loopback()
    }
}

impl Sites {
    /// `localhost` and the loopback addresses, and no page of another host or port.
    #[must_use]
    pub const fn loopback() -> Self {
        Self {
            hosts: Vec::new(),
            origins: Vec::new(),
            has_addresses: false,
        }
    }

    /// Also accepts this host: a name or an address as in a URL, without a port; any port is accepted.
    #[must_use]
    pub fn host(mut self, host: impl Into<String>) -> Self {
        self.hosts.push(host.into());
        self
    }

    /// Also accepts every IP address as a host: a page that has looked up its own name does not send one.
    #[must_use]
    pub const fn addresses(mut self) -> Self {
        self.has_addresses = true;
        self
    }

    /// Also accepts pages of this origin, such as `https://app.example.com`: for a proxy that does not pass on the browser's
    /// `Host`, or for a page of another host. Such a page also needs CORS headers in the answers, which the router does not
    /// set.
    #[must_use]
    pub fn origin(mut self, origin: impl Into<String>) -> Self {
        self.origins.push(origin.into());
        self
    }

    /// Checks a request.
    ///
    /// # Errors
    /// The problem `host` or `origin`.
    pub(crate) fn check(&self, request: &Parts) -> Result<(), Problem> {
        let host = one(request, header::HOST).map_err(|()| Problem::new("host", "there are several"))?;
        let is_plain = host.is_some_and(|host| is_loopback(host.as_bytes()));
        if is_plain && request.uri.authority().is_none() && !request.headers.contains_key(ORIGIN) {
            // What nearly all programs send is accepted at once.
            return Ok(());
        }
        let asked = match host {
            Some(host) => {
                Some(authority(host).ok_or_else(|| Problem::new("host", format!("{host:?} is no host")))?)
            }
            None => None,
        };
        // With a proxy, or with HTTP/2, the host is in the request's target.
        for asked in asked.iter().chain(request.uri.authority()) {
            if !self.is_allowed(asked) {
                let detail = format!("{:?} is no name of this program", asked.host());
                return Err(Problem::new("host", detail));
            }
        }
        let origin = one(request, ORIGIN).map_err(|()| Problem::new("origin", "there are several"))?;
        let Some(origin) = origin else {
            return Ok(());
        };
        let text = origin.to_str().unwrap_or_default();
        let is_listed = self
            .origins
            .iter()
            .any(|listed| listed.eq_ignore_ascii_case(text));
        let page = text.split_once("://").map(|(_, page)| page);
        let asked = asked.as_ref().or_else(|| request.uri.authority());
        let is_ours = match (page, asked) {
            (Some(page), Some(asked)) => page.eq_ignore_ascii_case(asked.as_str()),
            _ => false,
        };
        if is_listed || is_ours {
            return Ok(());
        }
        Err(Problem::new("origin", format!("a page of {text:?} may not ask")))
    }

    fn is_allowed(&self, asked: &Authority) -> bool {
        // IPv6 addresses are in brackets in a URL.
        let host = asked.host();
        let address = host
            .trim_start_matches('[')
            .trim_end_matches(']')
            .parse::<IpAddr>();
        host.eq_ignore_ascii_case("localhost")
            || address.is_ok_and(|address| address.is_loopback() || self.has_addresses)
            || self.hosts.iter().any(|listed| listed.eq_ignore_ascii_case(host))
    }
}

/// Whether a host is one of the always accepted names, in its usual form, with or without a port.
fn is_loopback(host: &[u8]) -> bool {
    let behind = [&b"127.0.0.1"[..], b"localhost", b"[::1]"]
        .into_iter()
        .find_map(|name| host.strip_prefix(name));
    match behind {
        Some([]) => true,
        Some([b':', port @ ..]) => (1..=5).contains(&port.len()) && port.iter().all(u8::is_ascii_digit),
        _ => false,
    }
}

/// The value of a header that may occur once.
fn one(request: &Parts, name: HeaderName) -> Result<Option<&HeaderValue>, ()> {
    let mut values = request.headers.get_all(name).iter();
    let first = values.next();
    if values.next().is_some() {
        Err(())
    } else {
        Ok(first)
    }
}

/// A host with or without a port, and without a user's name.
fn authority(value: &HeaderValue) -> Option<Authority> {
    let text = value.to_str().ok().filter(|text| !text.contains('@'))?;
    text.parse().ok()
}
