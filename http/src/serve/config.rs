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
    /// How many connections there are at once; 8,192 by default, and at least 1. At the bound the oldest connection
    /// that has sent no request is closed; if each has sent one, further clients wait in the system's queue.
    pub connections_max: usize,
    /// How many bytes a request's line and headers may have; 16 KiB by default. More is the status 431.
    pub header_bytes_max: usize,
    /// How long a client may take to send a request's line and headers, and to begin with the next one; 5 s by
    /// default. Then the connection is closed.
    pub header_within: Duration,
    /// How long a request may take from its headers to the head of its answer, its body included; 30 s by default.
    /// Then the answer is the problem `timeout`. A request that may wait (`wait_ms`) has that time in addition; what
    /// streams has its bounds in the stream; upkeep of the store has [`upkeep_within`](Self::upkeep_within).
    pub request_within: Duration,
    /// How long a request may take that verifies, copies or exports the store, in place of
    /// [`request_within`](Self::request_within) if it is longer; an hour by default. Then the answer is the problem
    /// `timeout`, and what has begun is finished all the same. A caller without the role for it, and one whose body has
    /// not come, does not have this bound.
    pub upkeep_within: Duration,
    /// How many bytes of an answer wait in memory for the client to take them; 64 KiB by default, and at least
    /// 8 KiB, or one piece of the answer that is larger. At the bound no more of the answer is made. On Linux the
    /// system has at most as many again that it cannot send yet (`TCP_NOTSENT_LOWAT`); elsewhere as many as its own
    /// buffers take.
    pub unsent_bytes_max: usize,
    /// How long a client may take none of the bytes that wait for it; 30 s by default. Then the connection is
    /// closed.
    pub unsent_within: Duration,
    /// How long the server goes on as before once it is to stop, while `ready` answers 503: so long it takes those
    /// who send requests to look elsewhere. Zero by default.
    pub unready_for: Duration,
    /// How long requests may take that are under way when the server stops; 10 s by default. Then their connections
    /// are closed.
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
