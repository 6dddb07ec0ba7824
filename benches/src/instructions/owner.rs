//! Whose a function is: parts of the program, by the names of their functions.

const OTHERS: usize = OWNERS.len() - 1;

/// Each owner, and what the names of its functions contain.
const OWNERS: [(&str, &[&str]); 16] = [
    (
        "memory: allocating and freeing",
        &[
            "malloc",
            "free",
            "realloc",
            "calloc",
            "unlink_chunk",
            "alloc_perturb",
            "sysmalloc",
            "systrim",
            "__rustc::",
            "tcache",
            "alloc::raw_vec",
        ],
    ),
    (
        "memory: copying and comparing",
        &["__mem", "memcpy", "memmove", "memset", "memcmp", "bcmp"],
    ),
    ("engine: machine, history, replay", &["millrun_workflow::"]),
    ("engine: contexts and operations", &["millrun_workflow::context"]),
    (
        "engine: events and payloads as bytes",
        &[
            "millrun_workflow::wire",
            "millrun_workflow::payload",
            "rmp_serde",
            "rmp::",
            "serde::",
            "serde_core::",
            "bytes::",
        ],
    ),
    ("runtime: shard", &["millrun::shard"]),
    ("runtime: pools and activities", &["millrun::activity"]),
    (
        "runtime: handles, questions, answers",
        &["millrun::handle", "millrun::runtime", "millrun::reader"],
    ),
    (
        "runtime: host, timers, watch",
        &[
            "millrun::host",
            "millrun::timers",
            "millrun::watch",
            "millrun::",
            "millrun_core::",
        ],
    ),
    ("broker: envelopes, mailboxes", &["millrun_broker::"]),
    ("journal", &["millrun_persistence::", "crc32c", "redb::"]),
    (
        "async runtime and actors",
        &["tokio::", "ractor::", "futures_", "tracing::"],
    ),
    (
        "tables and locks",
        &[
            "hashbrown::",
            "collections::",
            "rustc_hash",
            "std::sync",
            "parking_lot",
            "spin::",
            "indexmap",
        ],
    ),
    (
        "the program that measures",
        &["millrun_benches::", "hdrhistogram"],
    ),
    ("the kernel: disk, wake-ups, page faults", &[]),
    ("everything else", &[]),
];

/// The list of owners.
pub(crate) struct Owners;

impl Owners {
    pub(crate) const COUNT: usize = OWNERS.len();
    /// The owner of what the kernel does.
    pub(crate) const KERNEL: usize = OWNERS.len() - 2;

    pub(crate) const fn name(owner: usize) -> &'static str {
        OWNERS[owner].0
    }

    /// The owner whose name stands first in that of the function; of names that begin at the same
    /// place, the longest.
    pub(crate) fn of(function: &str) -> usize {
        let mut found = (usize::MAX, 0, OTHERS);
        for (place, (_, names)) in OWNERS.iter().enumerate() {
            for name in *names {
                if let Some(at) = function.find(name)
                    && (at < found.0 || at == found.0 && name.len() > found.1)
                {
                    found = (at, name.len(), place);
                }
            }
        }
        found.2
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_function_belongs_to_the_first_name_that_is_known() {
        for (function, expected) in [
            (
                "core::ptr::drop_in_place<millrun::shard::instances::Place>",
                "runtime: shard",
            ),
            (
                "tokio::runtime::task::raw::poll<millrun::activity::Pool>",
                "async runtime and actors",
            ),
            (
                "millrun_workflow::wire::v1::encode",
                "engine: events and payloads as bytes",
            ),
            (
                "millrun_workflow::machine::Instance::apply",
                "engine: machine, history, replay",
            ),
            ("_int_malloc", "memory: allocating and freeing"),
            ("__memcpy_avx_unaligned_erms", "memory: copying and comparing"),
            ("(below main)", "everything else"),
        ] {
            assert_eq!(Owners::name(Owners::of(function)), expected, "{function}");
        }
    }
}
