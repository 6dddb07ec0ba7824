//! The lines for curl in the README of millrun-http run. Without curl the test is skipped, loudly; where
//! `MILLRUN_REQUIRE` names it, that is a failure.

use std::process::Command;

use crate::serve::serve;
use crate::support::Folder;

#[test]
fn the_lines_for_curl_in_the_readme_run() {
    let is_there = Command::new("curl").arg("--version").output();
    if !is_there.is_ok_and(|output| output.status.success()) {
        let required = std::env::var("MILLRUN_REQUIRE").unwrap_or_default();
        assert!(!required.contains("curl"), "MILLRUN_REQUIRE asks for curl");
        eprintln!("SKIPPED: there is no curl");
        return;
    }
    let readme = include_str!("../../../http/README.md");
    let (_, section) = readme.split_once("\n## With curl\n").unwrap();
    let (_, lines) = section.split_once("```sh\n").unwrap();
    let (lines, _) = lines.split_once("```").unwrap();
    assert_eq!(
        lines.lines().filter(|line| line.starts_with("curl ")).count(),
        10,
        "{lines}"
    );

    let folder = Folder::new();
    let (running, address) = serve(&folder, &[], &[]);
    let script = lines.replace("127.0.0.1:7070", &address);
    for line in script.lines() {
        let output = Command::new("sh")
            .arg("-c")
            .arg(line)
            .current_dir(folder.path(""))
            .output()
            .unwrap();
        assert!(
            output.status.success() && !output.stdout.is_empty(),
            "{line}: {output:?}"
        );
    }
    drop(running);
}
