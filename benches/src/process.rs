//! What the operating system knows of this process and its disk, and does for it.

use std::fs;
use std::path::Path;
use std::time::Duration;

/// Resident memory, in bytes; `None` where `/proc` does not tell.
#[must_use]
pub fn resident_bytes() -> Option<u64> {
    resident_bytes_in("/proc/self/status")
}

/// Resident memory of another process, in bytes; `None` where `/proc` does not tell.
#[must_use]
pub fn resident_bytes_of(process: u32) -> Option<u64> {
    resident_bytes_in(&format!("/proc/{process}/status"))
}

fn resident_bytes_in(status: &str) -> Option<u64> {
    let kib: u64 = field(status, "VmRSS:")?.trim_end_matches(" kB").parse().ok()?;
    Some(kib * 1_024)
}

/// The time that this process has had on all cores; `None` where the system does not tell.
#[cfg(unix)]
#[must_use]
pub fn cpu_time() -> Option<Duration> {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::ProcessCPUTime);
    time.try_into().ok()
}

/// The time that this process has had on all cores; `None` where the system does not tell.
#[cfg(not(unix))]
#[must_use]
pub fn cpu_time() -> Option<Duration> {
    None
}

/// Bytes that this process has had its disks write since it began; `None` where `/proc` does not
/// tell.
#[must_use]
pub fn written_bytes() -> Option<u64> {
    field("/proc/self/io", "write_bytes:")?.parse().ok()
}

/// Bytes that can still be written in a folder; `None` where the system does not tell.
#[cfg(unix)]
#[must_use]
pub fn free_bytes(folder: &Path) -> Option<u64> {
    let disk = rustix::fs::statvfs(folder).ok()?;
    Some(disk.f_bavail.saturating_mul(disk.f_frsize))
}

/// Bytes that can still be written in a folder; `None` where the system does not tell.
#[cfg(not(unix))]
#[must_use]
pub fn free_bytes(_folder: &Path) -> Option<u64> {
    None
}

/// Asks that this process be terminated when the one that started it ends, however that ends. Where the
/// system cannot do so, it goes on to its own end.
pub fn end_with_parent() {
    #[cfg(target_os = "linux")]
    if let Err(error) = rustix::process::set_parent_process_death_signal(Some(rustix::process::Signal::TERM))
    {
        eprintln!("this goes on if its parent is killed: {error}");
    }
}

/// Lets this process, and those that it starts, have as many files open as the system allows it. Where it allows no
/// more, what needs them fails and says so.
pub fn raise_file_limit() {
    #[cfg(unix)]
    {
        use rustix::process::{Resource, getrlimit, setrlimit};
        let mut limit = getrlimit(Resource::Nofile);
        limit.current = limit.maximum;
        if let Err(error) = setrlimit(Resource::Nofile, limit) {
            eprintln!("the limit of open files stays as it is: {error}");
        }
    }
}

fn field(path: &str, name: &str) -> Option<String> {
    let text = fs::read_to_string(path).ok()?;
    let value = text.lines().find_map(|line| line.strip_prefix(name))?;
    Some(value.trim().to_owned())
}
