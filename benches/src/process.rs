//! What this process holds and has written, as the operating system counts it.

use std::fs;

/// Resident memory, in bytes; `None` where `/proc` does not tell.
#[must_use]
pub fn resident_bytes() -> Option<u64> {
    let kib: u64 = field("/proc/self/status", "VmRSS:")?
        .trim_end_matches(" kB")
        .parse()
        .ok()?;
    Some(kib * 1_024)
}

/// Bytes that this process has had its disks write since it began; `None` where `/proc` does not
/// tell.
#[must_use]
pub fn written_bytes() -> Option<u64> {
    field("/proc/self/io", "write_bytes:")?.parse().ok()
}

fn field(path: &str, name: &str) -> Option<String> {
    let text = fs::read_to_string(path).ok()?;
    let value = text.lines().find_map(|line| line.strip_prefix(name))?;
    Some(value.trim().to_owned())
}
