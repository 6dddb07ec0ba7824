//! Under which requests a run has recorded signals, so that a signal that is sent again is recorded once.
//!
//! ```text
//!   caller: signal_as("r-1", ..) ──► SignalReceived, with r-1 ──► the answer is lost
//!           signal_as("r-1", ..) ──► known: nothing is recorded, and the answer is the same
//! ```
//!
//! The requests of runs that this one continues, and those from before a checkpoint, are among them.
//!
//! A run may have a thousand of them, and a shard many such runs, so they are held small: a hash of each, in which a request
//! is looked for, and of each text only what differs from the one before it. Those of a trigger differ in a few bytes.

use std::collections::VecDeque;
use std::hash::{DefaultHasher, Hasher};

use super::Ledger;

/// How many requests of signals a run remembers: the latest. A signal that is sent again under an older request is
/// taken for a new one.
pub const SIGNAL_REQUESTS_LEN_MAX: usize = 1_000;

/// Ends a text: no byte of UTF-8.
const END: u8 = 0xff;

/// The memory of a run. Most runs have none.
#[derive(Clone, Debug, Default)]
pub(super) struct SignalRequests {
    /// Of each request, the oldest first.
    hashes: VecDeque<u32>,
    /// Of each request, the oldest first: how many bytes it shares with the one before it, those that follow, and [`END`].
    texts: VecDeque<u8>,
    /// The text before the oldest: one that is forgotten.
    before: Vec<u8>,
    /// The latest text.
    latest: Vec<u8>,
}

impl SignalRequests {
    pub(super) fn is_empty(&self) -> bool {
        self.hashes.is_empty()
    }

    fn knows(&self, request: &str) -> bool {
        let hash = hash_of(request);
        let (first, second) = self.hashes.as_slices();
        // Nearly every request is new, and its hash too.
        if !first.contains(&hash) && !second.contains(&hash) {
            return false;
        }
        let mut known = self.hashes.iter();
        self.any(|text| known.next() == Some(&hash) && text == request.as_bytes())
    }

    fn remember(&mut self, request: &str) {
        let request_bytes = request.as_bytes();
        let same = self.latest.iter().zip(request_bytes);
        let shared = same.take_while(|(one, other)| one == other).count();
        let shared = u8::try_from(shared).unwrap_or(u8::MAX);
        self.hashes.push_back(hash_of(request));
        self.texts.push_back(shared);
        self.texts.extend(&request_bytes[usize::from(shared)..]);
        self.texts.push_back(END);
        self.latest.clear();
        self.latest.extend_from_slice(request_bytes);
        if self.hashes.len() > SIGNAL_REQUESTS_LEN_MAX {
            self.forget_oldest();
        }
    }

    fn forget_oldest(&mut self) {
        self.hashes.pop_front();
        if let Some(shared) = self.texts.pop_front() {
            self.before.truncate(usize::from(shared));
        }
        while let Some(byte) = self.texts.pop_front().filter(|byte| *byte != END) {
            self.before.push(byte);
        }
    }

    /// Whether that is so of any text, the oldest first.
    fn any(&self, mut is_so: impl FnMut(&[u8]) -> bool) -> bool {
        let mut text = self.before.clone();
        let mut bytes = self.texts.iter().copied();
        while let Some(shared) = bytes.next() {
            text.truncate(usize::from(shared));
            text.extend(bytes.by_ref().take_while(|byte| *byte != END));
            if is_so(&text) {
                return true;
            }
        }
        false
    }

    fn memory_bytes(&self) -> usize {
        let texts = self.texts.capacity() + self.before.capacity() + self.latest.capacity();
        self.hashes.capacity() * size_of::<u32>() + texts
    }
}

fn hash_of(request: &str) -> u32 {
    let mut hasher = DefaultHasher::new();
    hasher.write(request.as_bytes());
    let [a, b, c, d, ..] = hasher.finish().to_le_bytes();
    u32::from_le_bytes([a, b, c, d])
}

impl Ledger {
    pub(super) fn remember_signal_request(&mut self, request: &str) {
        let requests = &mut self.remembered.get_or_insert_default().signal_requests;
        if !requests.knows(request) {
            requests.remember(request);
        }
    }

    /// Whether a signal is known to be recorded under this request; those under the
    /// [oldest](SIGNAL_REQUESTS_LEN_MAX) are not.
    #[must_use]
    pub fn knows_signal_request(&self, request: &str) -> bool {
        let remembered = self.remembered.as_ref();
        remembered.is_some_and(|remembered| remembered.signal_requests.knows(request))
    }

    /// The requests that are known, the oldest first.
    pub(crate) fn signal_requests(&self) -> Vec<String> {
        let mut all = Vec::new();
        if let Some(remembered) = &self.remembered {
            remembered.signal_requests.any(|text| {
                all.push(String::from_utf8_lossy(text).into_owned());
                false
            });
        }
        all
    }

    /// About how many bytes of memory the requests of signals take.
    pub(crate) fn signal_requests_memory_bytes(&self) -> usize {
        let remembered = self.remembered.as_ref();
        remembered.map_or(0, |remembered| remembered.signal_requests.memory_bytes())
    }
}

/// About how many bytes a request takes where it is written.
pub(crate) const fn request_bytes(request: &str) -> usize {
    request.len() + 3
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

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

    #[test]
    fn a_request_with_the_hash_of_another_is_another() {
        let mut requests = SignalRequests::default();
        requests.remember("one");
        requests.hashes[0] = hash_of("two");
        assert!(!requests.knows("two"));
        requests.remember("two");
        assert!(requests.knows("two"));
    }

    #[test]
    fn a_thousand_requests_of_a_trigger_take_some_bytes_each() {
        let mut ledger = Ledger::new();
        for number in 0..3 * SIGNAL_REQUESTS_LEN_MAX {
            ledger.remember_signal_request(&format!("billing/0123456789abcdef0001{:016x}", number * 1_000));
        }
        let bytes = ledger.signal_requests_memory_bytes();
        assert!(bytes < 24 * SIGNAL_REQUESTS_LEN_MAX, "{bytes}");
    }

    proptest! {
        #[test]
        fn what_is_known_is_what_a_list_of_the_latest_texts_has(
            requests in proptest::collection::vec("[ab]{0,4}|é{0,2}[aèé]{0,3}|x{250,260}[ab]{0,2}", 0..60),
        ) {
            let (mut remembered, mut model) = (SignalRequests::default(), VecDeque::new());
            for request in &requests {
                prop_assert_eq!(remembered.knows(request), model.contains(request));
                if !remembered.knows(request) {
                    remembered.remember(request);
                    model.push_back(request.clone());
                }
                if model.len() > 7 {
                    remembered.forget_oldest();
                    model.pop_front();
                }
                let mut all = VecDeque::new();
                remembered.any(|text| {
                    all.push_back(String::from_utf8(text.to_vec()).unwrap());
                    false
                });
                prop_assert_eq!(&all, &model);
            }
        }
    }
}
