//! Under which requests a run has recorded signals, so that a signal that is sent again is recorded once.
//!
//! ```text
//!   caller: signal_as("r-1", ..) ──► SignalReceived, with r-1 ──► the answer is lost
//!           signal_as("r-1", ..) ──► known: nothing is recorded, and the answer is the same
//! ```
//!
//! The requests of runs that this one continues, and those from before a checkpoint, are among them.

use std::collections::{BTreeSet, VecDeque};
use std::sync::Arc;

use super::Ledger;

/// How many requests of signals a run remembers: the latest. A signal that is sent again under an older request is
/// taken for a new one.
pub const SIGNAL_REQUESTS_LEN_MAX: usize = 1_000;

/// The memory of a run. Most runs have none.
#[derive(Clone, Debug, Default)]
pub(super) struct SignalRequests {
    known: BTreeSet<Arc<str>>,
    /// The same, the oldest first.
    order: VecDeque<Arc<str>>,
    /// Of the texts.
    bytes: usize,
}

impl SignalRequests {
    pub(super) fn is_empty(&self) -> bool {
        self.order.is_empty()
    }
}

impl Ledger {
    pub(super) fn remember_signal_request(&mut self, request: &str) {
        let requests = &mut self.remembered.get_or_insert_default().signal_requests;
        if requests.known.contains(request) {
            return;
        }
        let request: Arc<str> = request.into();
        requests.bytes += request.len();
        requests.known.insert(Arc::clone(&request));
        requests.order.push_back(request);
        if requests.order.len() > SIGNAL_REQUESTS_LEN_MAX
            && let Some(oldest) = requests.order.pop_front()
        {
            requests.bytes -= oldest.len();
            requests.known.remove(&oldest);
        }
    }

    /// Whether a signal is known to be recorded under this request; those under the
    /// [oldest](SIGNAL_REQUESTS_LEN_MAX) are not.
    #[must_use]
    pub fn knows_signal_request(&self, request: &str) -> bool {
        let remembered = self.remembered.as_ref();
        remembered.is_some_and(|remembered| remembered.signal_requests.known.contains(request))
    }

    /// The requests that are known, the oldest first.
    pub(crate) fn signal_requests(&self) -> Vec<String> {
        let remembered = self.remembered.iter();
        let requests = remembered.flat_map(|remembered| &remembered.signal_requests.order);
        requests.map(ToString::to_string).collect()
    }

    /// About how many bytes of memory the requests of signals take.
    pub(crate) fn signal_requests_memory_bytes(&self) -> usize {
        // The text has two counters, and a place in each list.
        const REQUEST_BYTES: usize = 80;
        let requests = self
            .remembered
            .as_ref()
            .map(|remembered| &remembered.signal_requests);
        requests.map_or(0, |requests| {
            requests.order.len() * REQUEST_BYTES + requests.bytes
        })
    }
}

/// About how many bytes a request takes where it is written.
pub(crate) const fn request_bytes(request: &str) -> usize {
    request.len() + 3
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_latest_requests_are_known_and_older_ones_are_forgotten() {
        let mut ledger = Ledger::new();
        let request = |number: usize| format!("request {number}");
        for number in 0..=SIGNAL_REQUESTS_LEN_MAX {
            ledger.remember_signal_request(&request(number));
            ledger.remember_signal_request(&request(number));
        }
        assert!(!ledger.knows_signal_request(&request(0)));
        assert!((1..=SIGNAL_REQUESTS_LEN_MAX).all(|number| ledger.knows_signal_request(&request(number))));
        let all: Vec<_> = (1..=SIGNAL_REQUESTS_LEN_MAX).map(request).collect();
        assert_eq!(ledger.signal_requests(), all);
        assert_eq!(Ledger::new().signal_requests(), [""; 0]);
    }
}
