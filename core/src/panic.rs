//! What a caught panic says.

use std::any::Any;
use std::panic::{AssertUnwindSafe, catch_unwind};

/// The text of a panic that was caught: what it said, if it said it in a string.
///
/// The panic ends here. A payload may itself panic when it is dropped; that is contained too.
///
/// ```
/// let panic = std::panic::catch_unwind(|| panic!("no bread")).unwrap_err();
/// assert_eq!(millrun_core::panic_message(panic), "no bread");
/// ```
#[must_use]
pub fn panic_message(panic: Box<dyn Any + Send>) -> String {
    let message = panic
        .downcast_ref::<&str>()
        .map(ToString::to_string)
        .or_else(|| panic.downcast_ref::<String>().cloned())
        .unwrap_or_else(|| "a panic without a message".into());
    if let Err(second) = catch_unwind(AssertUnwindSafe(|| drop(panic))) {
        std::mem::forget(second);
    }
    message
}
