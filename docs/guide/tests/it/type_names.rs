//! Each type of the libraries has a name of its own, whatever its visibility: who reads a name knows what it is.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::Path;

/// The crates whose types are compared with each other.
const LIBRARIES: [&str; 7] = [
    "core",
    "broker",
    "workflow",
    "persistence",
    "postgres",
    "runtime",
    "http",
];

/// Names that several types may have, and why. A further one needs a reason here; a name that is no longer that of
/// several must go.
const ALLOWED: &[(&str, &[&str])] = &[
    (
        "a target of the fuzzer, and a page for the documentation's tests: each crate has its own, by convention",
        &["Target", "Readme", "ReadmeExamples"],
    ),
    (
        "what stands in bytes or JSON, named as what it is the body of; each wire format has its own",
        &[
            "AnswerBody",
            "PublishBody",
            "ReasonBody",
            "SignalBody",
            "UpdateBody",
        ],
    ),
    (
        "the runtime's beside the one of a crate that it stands on, as what users see of it: events beside records, a \
         publisher of runs beside one of the broker, a service of HTTP beside one of an inbox",
        &["HistoryPage", "Publisher", "Role", "ServeError"],
    ),
    (
        "a word of the glossary that a helper in another crate, which never meets the first, has as its name; rename the \
         helper when it is touched",
        &["History", "Inbox", "Pending", "State"],
    ),
    (
        "helpers of one file or room each, from before this check; rename one when it is touched, and add none",
        &[
            "Alarm",
            "Asked",
            "Branch",
            "Call",
            "Cell",
            "Clock",
            "Ending",
            "Fields",
            "Found",
            "Group",
            "Handling",
            "Hook",
            "Inner",
            "Key",
            "Known",
            "Lane",
            "Limits",
            "Line",
            "List",
            "Next",
            "Opened",
            "Operation",
            "Outcome",
            "Parts",
            "Patience",
            "Place",
            "Publishing",
            "Request",
            "Running",
            "Scope",
            "Seat",
            "Slot",
            "Slots",
            "Source",
            "Spare",
            "Stage",
            "Standing",
            "Step",
            "Table",
            "Topics",
            "Typed",
            "Waiter",
            "Waiting",
            "Watcher",
        ],
    ),
];

/// The names of the types that a file defines at its outermost level, but for those of its tests and of macros.
fn types(code: &str) -> BTreeSet<&str> {
    let code = code.split("#[cfg(test)]\nmod ").next().unwrap_or_default();
    let visible = |line: &'_ str| -> Option<usize> {
        match line.strip_prefix("pub") {
            None => Some(0),
            Some(rest) if rest.starts_with('(') => rest.find(") ").map(|end| 3 + end + 2),
            Some(rest) => rest.strip_prefix(' ').map(|_| 4),
        }
    };
    let mut types = BTreeSet::new();
    for line in code.lines() {
        let Some(item) = visible(line).and_then(|start| line.get(start..)) else {
            continue;
        };
        let kinds = ["struct ", "enum ", "trait ", "type ", "union "];
        let Some(named) = kinds.iter().find_map(|kind| item.strip_prefix(kind)) else {
            continue;
        };
        let end = named.find(|c: char| !c.is_alphanumeric() && c != '_');
        types.extend(named.get(..end.unwrap_or(named.len())));
    }
    types
}

/// Which files define a type of each name, below a folder.
fn collect(root: &Path, folder: &Path, found: &mut BTreeMap<String, Vec<String>>) {
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        let name = path.file_name().unwrap().to_string_lossy().into_owned();
        if path.is_dir() {
            collect(root, &path, found);
        } else if name.ends_with(".rs") && name != "tests.rs" {
            let code = fs::read_to_string(&path).unwrap();
            let place = path.strip_prefix(root).unwrap().display().to_string();
            for name in types(&code) {
                found.entry(name.to_owned()).or_default().push(place.clone());
            }
        }
    }
}

#[test]
fn no_two_types_of_the_libraries_have_one_name() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let mut found = BTreeMap::new();
    for library in LIBRARIES {
        collect(&root, &root.join(library).join("src"), &mut found);
    }
    assert!(found.len() > 800, "{} names", found.len());
    let mut allowed = BTreeSet::new();
    for name in ALLOWED.iter().flat_map(|(_, names)| *names) {
        assert!(allowed.insert(*name), "{name} is allowed twice");
    }
    let doubled: BTreeMap<_, _> = found.iter().filter(|(_, places)| places.len() > 1).collect();
    let new: Vec<_> = doubled
        .iter()
        .filter(|(name, _)| !allowed.contains(name.as_str()))
        .map(|(name, places)| format!("{name}: {}", places.join(", ")))
        .collect();
    assert!(
        new.is_empty(),
        "these types have the name of another; give one of each a name of its own:\n{}",
        new.join("\n")
    );
    let single: Vec<_> = allowed
        .iter()
        .filter(|name| !doubled.contains_key(&(**name).to_owned()))
        .collect();
    assert!(
        single.is_empty(),
        "these are not double any more, so take them from the list: {single:?}"
    );
}

#[test]
fn a_type_is_found_whatever_its_visibility_and_not_in_tests_or_within_others() {
    let code = "pub struct Run;\npub(in crate::shard) enum Found {\n    struct Not,\n}\ntype Short<T> = Vec<T>;\n\
                trait Kind {\n    type Item;\n}\n// struct Said\n#[cfg(test)]\nmod tests {\nstruct OfATest;\n}\n";
    assert_eq!(types(code), BTreeSet::from(["Run", "Found", "Short", "Kind"]));
}
