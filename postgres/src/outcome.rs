//! Decides what the writer does next, given the server's answers: the machine that knows whether a flush is durable.
//!
//! ```text
//!            ┌────────────── landed ◄───────────────┐
//!            ▼                                      │ the marker is where the flush moves it
//!   idle ─ flush ─► send ── connection lost ─► connect ─► raise the term ─► look at the marker
//!                    ▲                                                      │
//!                    └────────────── send again ◄───────────────────────────┘ it is where it was
//!                                                          anywhere else: rolled back, stop
//! ```
//!
//! A flush carries the term of this opening, and locks the row that holds the term. Raising the term waits for the end of a
//! statement under way, and makes every later one fail with the old term. So after a raise the marker is final: the flush has
//! landed, or never will.

use std::fmt;

/// Moves the marker from one flush to the next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Move {
    /// The term under which the flush is accepted.
    pub(crate) term: i64,
    /// Where the marker must be before the flush.
    pub(crate) from: i64,
    /// Where the marker is after the flush.
    pub(crate) to: i64,
}

/// What the writer has to do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Step {
    /// Open a connection.
    Connect,
    /// Raise the term of this opening.
    Raise,
    /// Read the marker.
    Look,
    /// Send the flush.
    Send(Move),
    /// Nothing: the flush is durable, or there is none.
    Rest,
    /// Stop writing for good.
    Stop(Halt),
}

/// Why the writer stops.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Halt {
    /// Another process has opened the store.
    Fenced,
    /// Acknowledged data is missing.
    RolledBack {
        /// The expected place of the marker.
        expected: i64,
        /// The found place; `None` if there is no marker.
        found: Option<i64>,
    },
    /// A row of the flush exists already.
    Duplicate,
}

impl fmt::Display for Halt {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Fenced => {
                f.write_str("another process has opened the store: see that only one has it open")
            }
            Self::RolledBack {
                expected,
                found: Some(found),
            } => write!(
                f,
                "the database is not where it was left: flush {expected} was acknowledged, the last one in it is {found}"
            ),
            Self::RolledBack {
                expected,
                found: None,
            } => write!(
                f,
                "the database is not where it was left: flush {expected} was acknowledged, and its marker is missing"
            ),
            Self::Duplicate => f.write_str("a row that was to be written is in the database already"),
        }
    }
}

/// An answer of the server, or the loss of its connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Heard {
    /// A connection is open.
    Connected,
    /// The term has this value now; `None` if the store belongs to another opening.
    Raised(Option<i64>),
    /// The marker has this value.
    Marker(Option<i64>),
    /// The flush was answered: whether its term was the present one, and whether the marker was where it had to be.
    Flushed { has_term: bool, has_moved: bool },
    /// The server has refused the statement as a whole, and would accept it at another time.
    Refused,
    /// A row of the flush exists already.
    Duplicate,
    /// The connection is lost; the statement may have been performed or not.
    Lost,
}

/// Knows whether a flush is durable; one flush at a time.
#[derive(Clone, Debug)]
pub(crate) struct FlushFate {
    term: i64,
    /// The last flush that is known to be durable.
    marker: i64,
    has_flush: bool,
    /// Whether the flush may have been performed.
    is_sent: bool,
    is_connected: bool,
    is_raised: bool,
    is_looked: bool,
    /// The marker was not where a flush expects it. Its place is only looked up for the error.
    is_astray: bool,
    halt: Option<Halt>,
}

impl FlushFate {
    /// For an opening that has a connection and this term, and has read this marker.
    pub(crate) fn new(term: i64, marker: i64) -> Self {
        Self {
            term,
            marker,
            has_flush: false,
            is_sent: false,
            is_connected: true,
            is_raised: true,
            is_looked: true,
            is_astray: false,
            halt: None,
        }
    }

    /// Begins a new flush. The one before it is durable.
    pub(crate) fn begin(&mut self) {
        debug_assert!(!self.has_flush, "one flush at a time");
        (self.has_flush, self.is_sent) = (true, false);
    }

    pub(crate) fn step(&self) -> Step {
        let mending = self.mending();
        match (mending, self.has_flush) {
            (Some(stop @ Step::Stop(_)), _) => stop,
            (_, false) => Step::Rest,
            (Some(step), true) => step,
            (None, true) => Step::Send(Move {
                term: self.term,
                from: self.marker,
                to: self.marker + 1,
            }),
        }
    }

    /// What has to be done before a flush can be sent; `None` if there is a valid session of this opening.
    pub(crate) fn mending(&self) -> Option<Step> {
        match () {
            () if self.halt.is_some() => self.halt.map(Step::Stop),
            () if !self.is_connected => Some(Step::Connect),
            () if !self.is_raised => Some(Step::Raise),
            () if !self.is_looked => Some(Step::Look),
            () => None,
        }
    }

    /// The flush was handed to the connection: from now on it may have been performed.
    pub(crate) fn sent(&mut self) {
        self.is_sent = true;
    }

    pub(crate) fn hear(&mut self, heard: Heard) {
        match heard {
            Heard::Connected => self.is_connected = true,
            Heard::Raised(Some(term)) => (self.term, self.is_raised) = (term, true),
            Heard::Raised(None) => self.halt = Some(Halt::Fenced),
            // A raise of this opening whose answer was lost may arrive late. The next raise tells who has the store.
            Heard::Flushed { has_term: false, .. } => {
                (self.is_sent, self.is_raised, self.is_looked) = (false, false, false);
            }
            Heard::Marker(found) => self.look(found),
            Heard::Flushed {
                has_term: true,
                has_moved: true,
            } => self.land(),
            Heard::Flushed {
                has_term: true,
                has_moved: false,
            } => (self.is_astray, self.is_sent, self.is_looked) = (true, false, false),
            // A flush that was sent over a lost connection still has to be looked for.
            Heard::Refused => self.is_sent &= !self.is_looked,
            Heard::Duplicate => self.halt = Some(Halt::Duplicate),
            Heard::Lost => {
                (self.is_connected, self.is_raised, self.is_looked) = (false, false, false);
            }
        }
    }

    fn look(&mut self, found: Option<i64>) {
        self.is_looked = true;
        match found {
            Some(found) if found == self.marker && !self.is_astray => self.is_sent = false,
            Some(found) if self.is_sent && found == self.marker + 1 => self.land(),
            found => {
                let expected = self.marker;
                self.halt = Some(Halt::RolledBack { expected, found });
            }
        }
    }

    fn land(&mut self) {
        self.marker += 1;
        (self.has_flush, self.is_sent) = (false, false);
    }
}

#[cfg(test)]
mod tests;
