//! The glossary of ARCHITECTURE.md: each word stands there once, and the types that carry it are there.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;

/// All Rust code below a folder, in one text.
fn code_below(folder: &Path, code: &mut String) {
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            code_below(&path, code);
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            code.push_str(&fs::read_to_string(&path).unwrap());
        }
    }
}

/// The names of the types that a code defines, and of those that its crates export: some are made by macros.
fn types(code: &str) -> BTreeSet<&str> {
    let is_name = |c: char| c.is_alphanumeric() || c == '_';
    let mut types = BTreeSet::new();
    for line in code.lines().filter(|line| !line.trim().starts_with("//")) {
        let mut words = line.split(|c| !is_name(c)).filter(|word| !word.is_empty());
        while let Some(word) = words.next() {
            if ["struct", "enum", "trait", "type"].contains(&word) {
                types.extend(words.next());
            }
        }
    }
    let exports = code
        .split("pub use ")
        .skip(1)
        .filter_map(|rest| rest.split(';').next());
    types.extend(exports.flat_map(|names| names.split(|c| !is_name(c))));
    types
}

#[test]
fn each_word_of_the_glossary_has_one_meaning_and_its_types_are_there() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let architecture = fs::read_to_string(root.join("ARCHITECTURE.md")).unwrap();
    let (_, glossary) = architecture.split_once("\n## Glossary\n").unwrap();
    let glossary = glossary.split("\n## ").next().unwrap();
    let mut code = String::new();
    for name in ["core", "broker", "workflow", "persistence", "runtime", "testkit"] {
        code_below(&root.join(name).join("src"), &mut code);
    }
    let defined = types(&code);
    let mut words = BTreeSet::new();
    for row in glossary.lines().filter(|line| line.starts_with("| ")).skip(1) {
        let cells: Vec<_> = row.trim_matches('|').split('|').map(str::trim).collect();
        assert_eq!(cells.len(), 3, "{row}");
        for word in cells[0].split(", ") {
            assert!(words.insert(word.to_owned()), "{word} stands there twice");
        }
        for name in cells[2].split('`').skip(1).step_by(2) {
            assert!(defined.contains(name), "{}: there is no type {name}", cells[0]);
        }
    }
    assert!(words.len() > 60, "{}", words.len());
}

#[test]
fn a_type_is_known_by_its_definition_or_its_export() {
    let code = "pub struct Run;\npub use identity::{Epoch, Offset};\nlet x: Vec<Step> = y;\n";
    let types = types(code);
    assert!(["Run", "Epoch", "Offset"].iter().all(|name| types.contains(name)));
    assert!(!types.contains("Vec") && !types.contains("Step"));
}
