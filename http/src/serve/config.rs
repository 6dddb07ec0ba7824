//! The bounds of a server.

use std::time::Duration;

/// The bounds of a server: those that a router nested in another server does not have.
///
/// ```
/// use std::time::Duration;
/// use millrun_http::ServeConfig;
///
/// let mut config = ServeConfig::default();
/// config.drain_within = Duration::from_secs(5);
/// ```
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct ServeConfig {
    /// The largest number of connections; 8,192 by default, and at least 1. At the bound the oldest connection that has sent
    /// no request is closed; if each has sent one, further clients wait in the system's queue.
    pub connections_max: usize,
    /// The largest size of a request's line and headers in bytes; 16 KiB by default. A larger one is answered with status
    /// 431.
    pub header_bytes_max: usize,
    /// How long a client may take to send a request's line and headers, and to begin with the next request; 5 s by default.
    /// Then the connection is closed.
    pub header_within: Duration,
    /// How long a request may take from its headers to the head of its answer, its body included; 30 s by default. Then the
    /// answer is the problem `timeout`. A request that may wait (`wait_ms`) has that time in addition; a stream has bounds of
    /// its own; upkeep of the store has [`upkeep_within`](Self::upkeep_within).
    pub request_within: Duration,
    /// How long a request that verifies, copies or exports the store may take, in place of
    /// [`request_within`](Self::request_within) if this is longer; an hour by default. Then the answer is the problem
    /// `timeout`, and the operation continues to its end. This bound only applies to callers with the necessary role, and
    /// once the body has come.
    pub upkeep_within: Duration,
    /// How many bytes of an answer wait in memory for the client; 64 KiB by default, and at least 8 KiB, or one larger piece
    /// of the answer. At the bound no more of the answer is produced. On Linux the system's send buffer holds at most as many
    /// again (`TCP_NOTSENT_LOWAT`); elsewhere it has its own size.
    pub unsent_bytes_max: usize,
    /// How long a client may take none of the waiting bytes; 30 s by default. Then the connection is closed.
    pub unsent_within: Duration,
    /// How long a server that is to stop still works as usual while `ready` answers 503: the time that load balancers need to
    /// notice. Zero by default.
    pub unready_for: Duration,
    /// How long requests under way may take when the server stops; 10 s by default. Then their connections are closed.
    pub drain_within: Duration,
}

impl Default for ServeConfig {
    fn default() -> Self {
        Self {
            connections_max: 8_192,
            header_bytes_max: 16 * 1024,
            header_within: Duration::from_secs(5),
            request_within: Duration::from_secs(30),
            upkeep_within: Duration::from_secs(3_600),
            unsent_bytes_max: 64 * 1024,
            unsent_within: Duration::from_secs(30),
            unready_for: Duration::ZERO,
            drain_within: Duration::from_secs(10),
        }
    }
}
