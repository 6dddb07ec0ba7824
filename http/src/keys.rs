//! Keys by which a client repeats a start without starting twice: the header `Idempotency-Key`.
//!
//! ```text
//!   request ──► key ── new ──► a task of its own starts ──► answer ──► all who wait with this key
//!                └─── known ──────────────────────────────────┘
//! ```
//!
//! The task continues when the client goes away, so that a repeated request with the key gets its result. An answer is kept
//! with the key; a refusal is told to the waiting requests, and the key is free again.
//!
//! Invariant: a key whose start is under way is known. When there are too many keys, the one that was answered first is
//! forgotten; if none is answered, a further start is refused.
//!
//! Left out on purpose: storing keys. A start without another id has the key as its id, which is durable; updates and signals
//! have the key as the name of their request, which the run remembers.

use std::collections::{BTreeMap, VecDeque};
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use axum::http::HeaderMap;
use millrun::{RunError, Runtime, StopCause};
use sha2::{Digest as _, Sha256};
use tokio::sync::watch;

use crate::Redaction;
use crate::problem::Problem;
use crate::view::Json;

/// How many keys a console remembers.
pub const KEYS_LEN_MAX: usize = 10_000;
/// The largest key in bytes: the same as for an id.
const KEY_BYTES_MAX: usize = 255;

/// The key of a request, if it has one.
pub(crate) fn key_of(headers: &HeaderMap) -> Result<Option<&str>, Problem> {
    let mut all = headers.get_all("idempotency-key").iter();
    let Some(value) = all.next() else {
        return Ok(None);
    };
    let wrong = |what: &str| Problem::new("invalid-key", what);
    if all.next().is_some() {
        return Err(wrong("it stands there twice"));
    }
    let text = value.to_str().map_err(|_| wrong("it is no text"))?;
    // The IETF draft requires quotes, which most clients leave out.
    let quoted = text.strip_prefix('"').and_then(|text| text.strip_suffix('"'));
    let key = quoted.unwrap_or(text);
    let is_plain = key.bytes().all(|byte| byte.is_ascii_graphic() && byte != b'"');
    match is_plain && (1..=KEY_BYTES_MAX).contains(&key.len()) {
        true => Ok(Some(key)),
        false => Err(wrong("1 to 255 visible ASCII characters are expected")),
    }
}

/// A hash that identifies the content of a request.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) struct Fingerprint([u8; 32]);

impl Fingerprint {
    /// The hash of the instance id and the body.
    pub(crate) fn of(value: &str, body: &[u8]) -> Self {
        let mut sum = Sha256::new();
        // The length separates the id from the body.
        sum.update(value.len().to_le_bytes());
        sum.update(value);
        sum.update(body);
        Self(sum.finalize().into())
    }
}

/// The result of a request: its answer as text, or a problem; `None` while it is under way.
type Outcome = Option<Result<Arc<str>, Problem>>;

/// The keys of a console. A cheap clone.
#[derive(Clone)]
pub(crate) struct Keys {
    state: Arc<Mutex<State>>,
    len_max: usize,
}

#[derive(Default)]
struct State {
    known: BTreeMap<Arc<str>, Known>,
    /// The answered keys, in the order of their answers.
    answered: VecDeque<Arc<str>>,
}

struct Known {
    fingerprint: Fingerprint,
    outcome: watch::Receiver<Outcome>,
}

impl Default for Keys {
    fn default() -> Self {
        Self {
            state: Arc::default(),
            len_max: KEYS_LEN_MAX,
        }
    }
}

impl fmt::Debug for Keys {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Keys").field(&self.lock().known.len()).finish()
    }
}

impl Keys {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The answer to a request with this key: that of `start`, or the answer that the key had when it came first.
    ///
    /// # Cancel safety
    /// A start that has begun continues.
    pub(crate) async fn once<F>(
        &self,
        runtime: &Runtime,
        key: &str,
        fingerprint: Fingerprint,
        start: F,
    ) -> Result<Json, Problem>
    where
        F: Future<Output = Result<Json, Problem>> + Send + 'static,
    {
        let mut outcome = match self.enter(key, fingerprint)? {
            Entered::Known(outcome) => outcome,
            Entered::New(told, ending) => {
                let outcome = told.subscribe();
                let task = async move {
                    let answer = start
                        .await
                        .map(|answer| Arc::from(answer.to_text(&Redaction::everything())));
                    if answer.is_ok() {
                        ending.keep();
                    } else {
                        drop(ending);
                    }
                    told.send_replace(Some(answer));
                };
                drop(runtime.host().spawn("millrun-http-start", Box::pin(task)));
                outcome
            }
        };
        match outcome.wait_for(Option::is_some).await {
            Ok(outcome) => match outcome.as_ref() {
                Some(Ok(text)) => Ok(Json::raw(text.to_string())),
                Some(Err(problem)) => Err(problem.clone()),
                None => unreachable!("it was waited for"),
            },
            // The host has ended, and the task with it.
            Err(_) => Err(RunError::Stopped(runtime.stop_cause().unwrap_or(StopCause::Shutdown)).into()),
        }
    }

    fn enter(&self, key: &str, fingerprint: Fingerprint) -> Result<Entered, Problem> {
        let mut state = self.lock();
        if let Some(known) = state.known.get(key) {
            return match known.fingerprint == fingerprint {
                true => Ok(Entered::Known(known.outcome.clone())),
                false => Err(Problem::new(
                    "key-reused",
                    format!("{key:?} came with another request before"),
                )),
            };
        }
        if state.known.len() >= self.len_max {
            let Some(first) = state.answered.pop_front() else {
                let detail = format!("there are {}", state.known.len());
                return Err(Problem::new("too-many-starts", detail).retryable());
            };
            state.known.remove(&first);
        }
        let (told, outcome) = watch::channel(None);
        let key: Arc<str> = key.into();
        let known = Known { fingerprint, outcome };
        state.known.insert(Arc::clone(&key), known);
        let ending = Ending {
            keys: self.clone(),
            key,
            is_kept: false,
        };
        Ok(Entered::New(told, ending))
    }
}

enum Entered {
    Known(watch::Receiver<Outcome>),
    New(watch::Sender<Outcome>, Ending),
}

/// A start under way. Dropping it keeps its key with the answer, or forgets the key.
struct Ending {
    keys: Keys,
    key: Arc<str>,
    is_kept: bool,
}

impl Ending {
    /// Notes that the key has an answer.
    fn keep(mut self) {
        self.is_kept = true;
    }
}

impl Drop for Ending {
    fn drop(&mut self) {
        let mut state = self.keys.lock();
        match self.is_kept {
            true => state.answered.push_back(Arc::clone(&self.key)),
            false => drop(state.known.remove(&self.key)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn enter(keys: &Keys, key: &str, body: &[u8]) -> &'static str {
        match keys.enter(key, Fingerprint::of("x", body)) {
            Ok(Entered::New(_, ending)) => {
                ending.keep();
                "new"
            }
            Ok(Entered::Known(_)) => "known",
            Err(_) => "reused",
        }
    }

    #[test]
    fn the_latest_keys_are_known_with_what_they_were_for() {
        let keys = Keys {
            len_max: 2,
            ..Keys::default()
        };
        assert_eq!(enter(&keys, "a", b"1"), "new");
        assert_eq!(enter(&keys, "a", b"1"), "known");
        assert_eq!(enter(&keys, "a", b"2"), "reused");
        assert_eq!(enter(&keys, "b", b"2"), "new");
        assert_eq!(enter(&keys, "c", b"3"), "new");
        assert_eq!(enter(&keys, "a", b"2"), "new", "the oldest was forgotten");
        assert_eq!(enter(&keys, "c", b"3"), "known");
        assert_eq!(keys.lock().known.len(), 2);
    }

    /// Regression: when many more keys had come, one whose start was under way was forgotten: a client that repeated its
    /// request had it performed twice.
    #[test]
    fn a_key_whose_start_is_under_way_is_known_however_many_come_behind_it() {
        let keys = Keys {
            len_max: 3,
            ..Keys::default()
        };
        let begin = |key: &str| match keys.enter(key, Fingerprint::of("x", b"1")) {
            Ok(Entered::New(told, ending)) => (told, ending),
            _ => panic!("{key} is new"),
        };
        let (_told, slow) = begin("slow");
        for later in ["a", "b", "c", "d", "e"] {
            assert_eq!(enter(&keys, later, b"1"), "new");
        }
        assert_eq!(enter(&keys, "slow", b"1"), "known");
        assert_eq!(enter(&keys, "d", b"1"), "known");
        assert_eq!(
            enter(&keys, "c", b"1"),
            "new",
            "the one that was answered first is forgotten"
        );
        let others = [begin("f"), begin("g")];
        let Err(refused) = keys.enter("h", Fingerprint::of("x", b"1")) else {
            panic!("there are too many");
        };
        assert_eq!(refused.code(), "too-many-starts");
        slow.keep();
        assert_eq!(enter(&keys, "h", b"1"), "new");
        drop(others);
        assert_eq!(enter(&keys, "f", b"1"), "new", "it led to nothing");
        assert_eq!(keys.lock().known.len(), 2);
    }

    #[test]
    fn a_key_that_led_to_nothing_is_free_and_does_not_take_a_later_one_along() {
        let keys = Keys {
            len_max: 2,
            ..Keys::default()
        };
        let Ok(Entered::New(_told, ending)) = keys.enter("a", Fingerprint::of("x", b"1")) else {
            panic!("it is new");
        };
        drop(ending);
        assert_eq!(enter(&keys, "a", b"2"), "new");
        assert_eq!(enter(&keys, "b", b"2"), "new");
        assert_eq!(enter(&keys, "a", b"2"), "known", "only its first coming left");
    }

    #[test]
    fn a_key_is_read_with_quotes_or_without() {
        let key = |text: &'static str| {
            let mut headers = HeaderMap::new();
            headers.insert("idempotency-key", text.parse().unwrap());
            key_of(&headers).map(|key| key.map(str::to_owned))
        };
        assert_eq!(key("a-1").unwrap().as_deref(), Some("a-1"));
        assert_eq!(key("\"a-1\"").unwrap().as_deref(), Some("a-1"));
        for text in ["", "\"\"", "a b", "a\"b", "\""] {
            assert!(key(text).is_err(), "{text}");
        }
        assert!(key_of(&HeaderMap::new()).unwrap().is_none());
        assert_ne!(Fingerprint::of("a", b"b").0, Fingerprint::of("", b"ab").0);
    }
}
