//! What is logged in this process, whichever thread logs it: which part notices something first is not known.

use std::fmt::Debug;
use std::sync::{Arc, Mutex, Once};

use tracing::field::Field;
use tracing::span::{Attributes, Id, Record};
use tracing::{Event, Level, Metadata, Subscriber};

/// The warnings and errors with a text that a test listens for.
pub(crate) type Logged = Arc<Mutex<Vec<String>>>;

/// What is listened for.
static WANTED: Mutex<Vec<(String, Logged)>> = Mutex::new(Vec::new());

/// Collects the warnings and errors that hold this text from now on: their target and their fields. Choose one that
/// no other test has.
pub(crate) fn listen_for(text: impl Into<String>) -> Logged {
    static LISTENING: Once = Once::new();
    let logged = Logged::default();
    WANTED.lock().unwrap().push((text.into(), Arc::clone(&logged)));
    LISTENING.call_once(|| {
        tracing::subscriber::set_global_default(Listener).expect("nobody else listens in this program");
    });
    // A place that another test's thread reached for the first time just then is not asked again by itself.
    tracing::callsite::rebuild_interest_cache();
    logged
}

struct Listener;

impl Subscriber for Listener {
    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        metadata.is_event() && *metadata.level() <= Level::WARN
    }

    fn new_span(&self, _: &Attributes<'_>) -> Id {
        Id::from_u64(1)
    }

    fn record(&self, _: &Id, _: &Record<'_>) {}

    fn record_follows_from(&self, _: &Id, _: &Id) {}

    fn event(&self, event: &Event<'_>) {
        let mut text = event.metadata().target().to_owned();
        event.record(&mut |field: &Field, value: &dyn Debug| {
            text.push_str(&format!(" {} {value:?}", field.name()));
        });
        for (wanted, logged) in WANTED.lock().unwrap().iter() {
            if text.contains(wanted) {
                logged.lock().unwrap().push(text.clone());
            }
        }
    }

    fn enter(&self, _: &Id) {}

    fn exit(&self, _: &Id) {}
}
