//! The chapters as text: what they include is there, and none has Rust of its own.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

fn guide() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).to_owned()
}

fn read(path: &Path) -> String {
    fs::read_to_string(path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

/// The files below a folder whose names end like this, as text, by name.
fn files(folder: &str, extension: &str) -> Vec<(String, String)> {
    let entries = fs::read_dir(guide().join(folder)).unwrap();
    let paths = entries.map(|entry| entry.unwrap().path());
    let wanted = paths.filter(|path| path.extension().is_some_and(|found| found == extension));
    let mut files: Vec<_> = wanted
        .map(|path| {
            (
                path.file_stem().unwrap().to_string_lossy().into_owned(),
                read(&path),
            )
        })
        .collect();
    files.sort();
    files
}

/// What stands in `{{#include …}}`.
fn includes(text: &str) -> Vec<&str> {
    let behind = text.split("{{#include ").skip(1);
    behind.map(|rest| rest.split_once("}}").unwrap().0).collect()
}

/// Why an include does not resolve, if it does not: a whole file, or a part between two anchors.
fn problem(include: &str, read: impl Fn(&str) -> Option<String>) -> Option<String> {
    let (file, anchor) = include
        .split_once(':')
        .map_or((include, None), |(file, anchor)| (file, Some(anchor)));
    let Some(text) = read(file) else {
        return Some(format!("{file} is not there"));
    };
    let anchor = anchor?;
    let position = |marker: String| text.lines().position(|line| line.trim() == marker);
    match (
        position(format!("// ANCHOR: {anchor}")),
        position(format!("// ANCHOR_END: {anchor}")),
    ) {
        (Some(begin), Some(end)) if begin + 1 < end => None,
        _ => Some(format!("{file} has no part {anchor}")),
    }
}

/// The first Rust block that is not one include and nothing else.
fn rust_of_its_own(chapter: &str) -> Option<&str> {
    let blocks = chapter.split("```").skip(1).step_by(2);
    blocks
        .filter_map(|block| block.split_once('\n'))
        .filter(|(language, _)| language.starts_with("rust"))
        .map(|(_, code)| code.trim())
        .find(|code| !(code.starts_with("{{#include ") && code.find("}}") == Some(code.len() - 2)))
}

#[test]
fn each_snippet_is_a_part_of_a_program() {
    let mut included = BTreeSet::new();
    for (name, chapter) in files("src", "md") {
        assert_eq!(
            rust_of_its_own(&chapter),
            None,
            "{name}: put it into a program, and include it"
        );
        for include in includes(&chapter) {
            let problem = problem(include, |file| {
                fs::read_to_string(guide().join("src").join(file)).ok()
            });
            assert_eq!(problem, None, "{name}");
            included.insert(include.to_owned());
        }
    }
    for (name, program) in files("programs", "rs") {
        for line in program.lines() {
            let Some(anchor) = line.trim().strip_prefix("// ANCHOR: ") else {
                continue;
            };
            let include = format!("../programs/{name}.rs:{anchor}");
            assert!(included.contains(&include), "no chapter includes {include}");
        }
        let output = format!("../programs/{name}.out");
        assert!(included.contains(&output), "no chapter includes {output}");
    }
}

#[test]
fn each_program_is_run() {
    let programs: Vec<_> = files("programs", "rs")
        .into_iter()
        .map(|(name, _)| name)
        .collect();
    let mut run = super::PROGRAMS.to_vec();
    run.sort_unstable();
    assert_eq!(programs, run);
}

/// Chapters, and the pages beside them that they link to.
#[test]
fn each_chapter_is_in_the_summary_and_each_link_leads_to_a_file() {
    let chapters = files("src", "md");
    let (_, summary) = chapters.iter().find(|(name, _)| name == "SUMMARY").unwrap();
    for (name, chapter) in &chapters {
        assert!(
            name == "SUMMARY" || summary.contains(&format!("({name}.md)")),
            "{name}"
        );
        for link in chapter
            .split("](")
            .skip(1)
            .map(|rest| rest.split_once(')').unwrap().0)
        {
            let file = link.split('#').next().unwrap();
            let is_elsewhere = link.starts_with("https://");
            assert!(
                is_elsewhere || guide().join("src").join(file).exists(),
                "{name}: {link}"
            );
        }
        assert!(
            chapter.lines().count() <= 200,
            "{name} is too long for one sitting"
        );
    }
}

/// The types behind the links: of the crate's first page, or of the room that the link names.
#[test]
fn each_link_to_a_type_names_one_that_is_exported_there() {
    let root = guide().join("../..");
    let mut links_len = 0;
    for (name, chapter) in files("src", "md") {
        for link in chapter
            .lines()
            .filter_map(|line| line.split_once("]: https://docs.rs/millrun"))
        {
            let path: Vec<_> = link.1.split('/').skip(3).collect();
            let lib = match link.1.split('/').next().unwrap() {
                "" => "runtime/src/lib.rs",
                "-broker" => "broker/src/lib.rs",
                "-testkit" => "testkit/src/lib.rs",
                other => panic!("{name}: a crate millrun{other}"),
            };
            let lib = read(&root.join(lib));
            assert!(is_exported(&lib, &path), "{name}: {}", link.1);
            links_len += 1;
        }
    }
    assert!(links_len > 30, "{links_len}");
}

/// Whether `room/struct.Name.html`, or the like, is a page of the crate whose `lib.rs` this is.
fn is_exported(lib: &str, path: &[&str]) -> bool {
    let mut parts = lib.split("\npub mod ");
    let mut first_page = parts.next().unwrap().to_owned();
    let mut room = String::new();
    for part in parts {
        let (name, rest) = part.split_once([' ', ';']).unwrap();
        let (inside, outside) = match rest.strip_prefix('{') {
            Some(rest) => rest.split_once("\n}").unwrap(),
            None => (name, rest), // in a file of its own
        };
        first_page.push_str(outside);
        if path.len() > 1 && path[0] == name {
            room.push_str(inside);
        }
    }
    let place = if path.len() > 1 { room } else { first_page };
    let Some((_, item)) = path.last().unwrap().trim_end_matches(".html").split_once('.') else {
        return !place.is_empty();
    };
    let mut words = place.split(|c: char| !c.is_alphanumeric() && c != '_');
    words.any(|word| word == item)
}

#[test]
fn a_type_is_found_at_its_place_and_nowhere_else() {
    let lib = "pub mod host;\npub use a::{Run, Start};\n\npub mod store {\n    pub use b::Journal;\n}\n\npub use c as d;\n";
    let lib = format!("\n{lib}");
    for (path, is_there) in [
        (&["struct.Run.html"][..], true),
        (&["struct.Journal.html"], false),
        (&["store", "trait.Journal.html"], true),
        (&["store", "struct.Run.html"], false),
        (&["host", "index.html"], true),
        (&["inn", "index.html"], false),
    ] {
        assert_eq!(is_exported(&lib, path), is_there, "{path:?}");
    }
}

#[test]
fn what_does_not_resolve_is_found() {
    let program = |file: &str| {
        let text = "// ANCHOR: a\nlet a = 1;\n// ANCHOR_END: a\n// ANCHOR: b\n// ANCHOR_END: b\n";
        (file == "a.rs").then(|| text.to_owned())
    };
    assert_eq!(problem("a.rs", program), None);
    assert_eq!(problem("a.rs:a", program), None);
    for broken in ["b.rs", "b.rs:a", "a.rs:b", "a.rs:c"] {
        assert!(problem(broken, program).is_some(), "{broken}");
    }
    assert_eq!(
        rust_of_its_own("```rust\n{{#include a.rs:a}}\n```\n```sh\ncargo run\n```"),
        None
    );
    for own in [
        "```rust\nlet a = 1;\n```",
        "```rust\n{{#include a.rs:a}}\nlet b = 1;\n```",
    ] {
        assert!(rust_of_its_own(own).is_some(), "{own}");
    }
}
