//! A copy of the tree to plant mistakes in, and what is built of it, both kept from one run to the next.

use std::collections::BTreeSet;
use std::error::Error;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use super::entry::Entry;

/// The copy.
#[derive(Debug)]
pub(super) struct Copy {
    root: PathBuf,
    /// Where the copy is.
    pub(super) tree: PathBuf,
    /// Where what is built of it goes.
    pub(super) target: PathBuf,
    /// What commands in the copy print.
    pub(super) log: PathBuf,
}

impl Copy {
    /// Brings the copy up to what stands in the tree now, committed or not. A file that is the same is left
    /// alone, so that it is not built again.
    ///
    /// # Errors
    /// When git does not list the tree, or a file cannot be copied.
    pub(super) fn make(root: &Path) -> Result<Self, Box<dyn Error>> {
        let home = root.join("target/planted");
        let copy = Self {
            root: root.to_owned(),
            tree: home.join("tree"),
            target: home.join("target"),
            log: home.join("log"),
        };
        let files = listed(root)?;
        fs::create_dir_all(&home)?;
        fs::write(&copy.log, "")?;
        for file in &files {
            copy.bring(file)?;
        }
        if copy.tree.join(".copied").exists() {
            let before = fs::read_to_string(copy.tree.join(".copied"))?;
            for gone in before.lines().filter(|file| !files.contains(*file)) {
                drop(fs::remove_file(copy.tree.join(gone)));
            }
        }
        let list: String = files.iter().map(|file| format!("{file}\n")).collect();
        fs::write(copy.tree.join(".copied"), list)?;
        Ok(copy)
    }

    fn bring(&self, file: &str) -> std::io::Result<()> {
        let (from, to) = (self.root.join(file), self.tree.join(file));
        if let Some(folder) = to.parent() {
            fs::create_dir_all(folder)?;
        }
        let text = fs::read(from)?;
        if fs::read(&to).is_ok_and(|copied| copied == text) {
            return Ok(());
        }
        fs::write(to, text)
    }

    /// Plants a mistake.
    ///
    /// # Errors
    /// When a file cannot be written.
    pub(super) fn plant(&self, entry: &Entry) -> std::io::Result<()> {
        for edit in &entry.edits {
            let path = self.tree.join(&edit.file);
            let text = fs::read_to_string(&path)?;
            fs::write(path, text.replacen(&edit.find, &edit.replace, 1))?;
        }
        Ok(())
    }

    /// Takes the mistake out again.
    ///
    /// # Errors
    /// When a file cannot be written.
    pub(super) fn restore(&self, entry: &Entry) -> std::io::Result<()> {
        for edit in &entry.edits {
            self.bring(&edit.file.to_string_lossy())?;
        }
        Ok(())
    }
}

/// All files of the tree, but for those that git ignores, and those that are gone.
fn listed(root: &Path) -> Result<BTreeSet<String>, Box<dyn Error>> {
    let output = Command::new("git")
        .args(["ls-files", "-z", "--cached", "--others", "--exclude-standard"])
        .current_dir(root)
        .output()?;
    if !output.status.success() {
        return Err(String::from_utf8_lossy(&output.stderr).into_owned().into());
    }
    let names = String::from_utf8(output.stdout)?;
    let files = names
        .split('\0')
        .filter(|file| !file.is_empty() && root.join(file).is_file());
    Ok(files.map(str::to_owned).collect())
}
