//! What stands in an entry, and whether it fits the code.

use std::fs;
use std::path::{Path, PathBuf};

use serde::Deserialize;

use crate::faults::Forecast;

/// A mistake that was repaired, and how it is planted again.
#[derive(Clone, Debug)]
pub(super) struct Entry {
    pub(super) name: String,
    pub(super) story: String,
    pub(super) edits: Vec<Edit>,
    /// The command that fails when the mistake is planted.
    pub(super) test: String,
    /// Whether the suite must find it.
    pub(super) chaos: bool,
    /// The only weather in which it can be found, if there is one.
    pub(super) weather: Option<Forecast>,
    why_not: Option<String>,
}

/// A replacement in a file, of a text that stands there once.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Edit {
    pub(super) file: PathBuf,
    pub(super) find: String,
    pub(super) replace: String,
}

/// The file as it is written.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Written {
    story: String,
    test: String,
    chaos: bool,
    why_not: Option<String>,
    weather: Option<String>,
    file: Option<PathBuf>,
    find: Option<String>,
    replace: Option<String>,
    #[serde(default)]
    edit: Vec<Edit>,
}

/// All entries, in the order of their names.
///
/// # Errors
/// Names the first file that cannot be read.
pub(super) fn all(root: &Path) -> Result<Vec<Entry>, String> {
    let folder = root.join("chaos/planted");
    let files = fs::read_dir(&folder).map_err(|error| format!("{}: {error}", folder.display()))?;
    let mut entries = Vec::new();
    for file in files {
        let path = file.map_err(|error| error.to_string())?.path();
        if path.extension().is_some_and(|extension| extension == "toml") {
            let text = fs::read_to_string(&path).map_err(|error| format!("{}: {error}", path.display()))?;
            let name = path
                .file_stem()
                .unwrap_or_default()
                .to_string_lossy()
                .into_owned();
            entries.push(Entry::parse(name, &text)?);
        }
    }
    entries.sort_by(|a, b| a.name.cmp(&b.name));
    Ok(entries)
}

impl Entry {
    fn parse(name: String, text: &str) -> Result<Self, String> {
        let written: Written = toml::from_str(text).map_err(|error| format!("{name}: {error}"))?;
        let mut edits = written.edit;
        match (written.file, written.find, written.replace) {
            (None, None, None) => {}
            (Some(file), Some(find), Some(replace)) => edits.push(Edit { file, find, replace }),
            _ => return Err(format!("{name}: file, find and replace go together")),
        }
        let weather = written
            .weather
            .map(|weather| clap::ValueEnum::from_str(&weather, true))
            .transpose()
            .map_err(|error| format!("{name}: {error}"))?;
        Ok(Self {
            name,
            story: written.story,
            edits,
            test: written.test,
            chaos: written.chaos,
            weather,
            why_not: written.why_not,
        })
    }

    /// Whether each edit fits the code, and the test exists.
    ///
    /// # Errors
    /// Says what does not fit.
    pub(super) fn check(&self, root: &Path) -> Result<(), String> {
        let wrong = |problem: String| Err(format!("chaos/planted/{}.toml: {problem}", self.name));
        if self.story.trim().is_empty() || self.edits.is_empty() {
            return wrong("an entry has a story and an edit".into());
        }
        if !self.chaos && self.why_not.as_ref().is_none_or(|why| why.trim().is_empty()) {
            return wrong("where the suite need not find it, why_not says why".into());
        }
        for edit in &self.edits {
            let path = root.join(&edit.file);
            let text = match fs::read_to_string(&path) {
                Ok(text) => text,
                Err(error) => return wrong(format!("{}: {error}", edit.file.display())),
            };
            let count = text.matches(&edit.find).count();
            if count != 1 {
                return wrong(format!(
                    "what is to be found stands {count} times in {}",
                    edit.file.display()
                ));
            }
            if edit.find == edit.replace {
                return wrong("the replacement changes nothing".into());
            }
        }
        self.check_test(root).or_else(wrong)
    }

    /// Whether there is something of the test's name in its package.
    fn check_test(&self, root: &Path) -> Result<(), String> {
        let words: Vec<&str> = self.test.split_whitespace().collect();
        if !words.starts_with(&["cargo", "test"]) {
            return Err("the test is a command that begins with cargo test".into());
        }
        let package = words
            .iter()
            .position(|word| *word == "-p")
            .and_then(|at| words.get(at + 1));
        let Some(package) = package else {
            return Err("the test names its package with -p".into());
        };
        let folder = package.strip_prefix("millrun-").unwrap_or("runtime");
        let filter = words.last().copied().unwrap_or_default();
        let mut sources = String::new();
        read_sources(&root.join(folder), &mut sources).map_err(|error| error.to_string())?;
        for part in filter.split("::").filter(|part| !part.is_empty()) {
            let is_there = sources.lines().map(str::trim_start).any(|line| {
                let line = line.trim_start_matches("pub ").trim_start_matches("pub(crate) ");
                let line = line.trim_start_matches("async ");
                let named = line.strip_prefix("fn ").or_else(|| line.strip_prefix("mod "));
                named.is_some_and(|named| {
                    named
                        .split(['(', '<', ';', ' '])
                        .next()
                        .is_some_and(|name| name.contains(part))
                })
            });
            // A macro may make the function.
            if !is_there && !sources.contains(part) {
                return Err(format!("there is no test {filter:?} in {folder}"));
            }
        }
        Ok(())
    }
}

/// Reads all Rust files below a folder, but for what was built.
fn read_sources(folder: &Path, all: &mut String) -> std::io::Result<()> {
    for entry in fs::read_dir(folder)? {
        let path = entry?.path();
        if path.is_dir() && path.file_name().is_none_or(|name| name != "target") {
            read_sources(&path, all)?;
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            all.push_str(&fs::read_to_string(&path)?);
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    const ENTRY: &str = "story = 's'\nfile = 'code.rs'\nfind = 'is_right'\nreplace = 'is_wrong'\n\
        test = 'cargo test -p millrun-code it_is_right'\nchaos = true\n";

    /// What is wrong with this entry, in a tree of one package.
    fn problem(text: &str) -> Option<String> {
        let tree = tempfile::tempdir().unwrap();
        fs::create_dir(tree.path().join("code")).unwrap();
        fs::write(tree.path().join("code.rs"), "if is_right { twice twice }").unwrap();
        fs::write(tree.path().join("code/tests.rs"), "    fn it_is_right() {}").unwrap();
        let entry = Entry::parse("entry".into(), text);
        entry.and_then(|entry| entry.check(tree.path())).err()
    }

    #[test]
    fn an_entry_that_fits_is_taken() {
        assert_eq!(problem(ENTRY), None);
        let tables = ENTRY.replace("file =", "[[edit]]\nfile =");
        let (head, edit) = tables.split_once("[[edit]]").unwrap();
        let (edit, rest) = edit.split_once("test =").unwrap();
        assert_eq!(problem(&format!("{head}test ={rest}[[edit]]{edit}")), None);
    }

    #[test]
    fn an_entry_that_does_not_fit_is_refused() {
        for (from, to) in [
            ("find = 'is_right'", "find = 'is_gone'"),
            ("find = 'is_right'", "find = 'twice'"),
            ("'is_wrong'", "'is_right'"),
            ("'code.rs'", "'other.rs'"),
            ("it_is_right'", "it_is_gone'"),
            ("-p millrun-code ", ""),
            ("chaos = true", "chaos = false"),
            ("chaos = true", "chaos = true\nkaos = 1"),
            ("chaos = true", "chaos = true\nweather = 'sunny'"),
            ("file = 'code.rs'\n", ""),
        ] {
            assert!(ENTRY.contains(from), "{from}");
            assert!(problem(&ENTRY.replace(from, to)).is_some(), "{from} -> {to}");
        }
    }
}
