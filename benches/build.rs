//! Hands the compiler's own version to the programs, so that a report can name it.

use std::process::Command;

fn main() {
    println!("cargo:rerun-if-changed=build.rs");
    let rustc = std::env::var("RUSTC").unwrap_or_else(|_| "rustc".into());
    let version = Command::new(rustc)
        .arg("--version")
        .output()
        .ok()
        .and_then(|output| String::from_utf8(output.stdout).ok())
        .map_or_else(|| "unknown".into(), |version| version.trim().to_owned());
    println!("cargo:rustc-env=BENCH_RUSTC={version}");
}
