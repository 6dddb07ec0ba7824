//! What the writer does next, given what it has heard from the server: the machine that decides whether a flush is
//! durable.
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
//! A flush carries the term of this opening, and locks the row that holds it. Raising the term waits until a statement
//! that was under way has ended, and makes one that comes later find another term. So what the marker says after that is
//! final: the flush has landed, or never will.

use std::fmt;

/// Moves the marker from one flush to the next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Move {
    /// Under which the flush is taken.
    pub(crate) term: i64,
    /// Where the marker must be.
    pub(crate) from: i64,
    /// Where the flush leaves it.
    pub(crate) to: i64,
}

/// What the writer is to do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Step {
    /// Opens a connection.
    Connect,
    /// Raises the term of this opening.
    Raise,
    /// Reads the marker.
    Look,
    /// Sends the flush.
    Send(Move),
    /// Nothing: the flush is durable, or there is none.
    Rest,
    /// Nothing any more.
    Stop(Halt),
}

/// Why nothing is written any more.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Halt {
    /// Another process has opened the store.
    Fenced,
    /// What was acknowledged is missing.
    RolledBack {
        /// Where the marker was to be.
        expected: i64,
        /// Where it is; `None` if there is none.
        found: Option<i64>,
    },
    /// A row that the flush makes is there already.
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

/// What the writer has heard.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Heard {
    /// There is a connection.
    Connected,
    /// The term is this now; `None`: it is not this opening's any more.
    Raised(Option<i64>),
    /// The marker is there.
    Marker(Option<i64>),
    /// The flush was taken: whether its term was the present one, and whether the marker was where it must be.
    Flushed { has_term: bool, has_moved: bool },
    /// The server has refused the statement as a whole, and would take it at another time.
    Refused,
    /// A row of the flush is there already.
    Duplicate,
    /// The connection is lost; what was asked may have been done or not.
    Lost,
}

/// Knows of one flush at a time whether it is durable.
#[derive(Clone, Debug)]
pub(crate) struct FlushFate {
    term: i64,
    /// The last flush that is known to be durable.
    marker: i64,
    has_flush: bool,
    /// The flush may have been done.
    is_sent: bool,
    is_connected: bool,
    is_raised: bool,
    is_looked: bool,
    /// The marker was not where a flush must find it: where it is, is only looked up to be told.
    is_astray: bool,
    halt: Option<Halt>,
}

impl FlushFate {
    /// Of an opening that has a connection and this term, and has found the marker there.
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

    /// There is a flush to be made durable. Of the one before it that is known.
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

    /// What is to be done before anything can be sent; `None` if there is a session, and it is that of this opening.
    pub(crate) fn mending(&self) -> Option<Step> {
        match () {
            () if self.halt.is_some() => self.halt.map(Step::Stop),
            () if !self.is_connected => Some(Step::Connect),
            () if !self.is_raised => Some(Step::Raise),
            () if !self.is_looked => Some(Step::Look),
            () => None,
        }
    }

    /// The flush is handed to the connection: from now on it may be done.
    pub(crate) fn sent(&mut self) {
        self.is_sent = true;
    }

    pub(crate) fn hear(&mut self, heard: Heard) {
        match heard {
            Heard::Connected => self.is_connected = true,
            Heard::Raised(Some(term)) => (self.term, self.is_raised) = (term, true),
            Heard::Raised(None) => self.halt = Some(Halt::Fenced),
            // A raise of this opening whose answer was lost may come late: the next one says whose the store is.
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
            // What was sent over a connection that is lost is still to be looked for.
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
