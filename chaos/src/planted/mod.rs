//! Mistakes that were repaired, planted again: the tests and the suite must find them.
//!
//! ```text
//!   planted/*.toml ──► entries ──► copy of the tree, one edit at a time ──► its test fails ──► the suite fails
//! ```

mod copy;
mod entry;
mod trial;

use std::error::Error;
use std::path::PathBuf;
use std::time::Duration;

use clap::Args;

use copy::Copy;
use trial::Trial;

/// Which mistakes are planted, and how long the suite looks for each.
#[derive(Clone, Debug, Args)]
pub(crate) struct PlantedOptions {
    /// Only these.
    names: Vec<String>,
    /// How long the suite looks for a mistake, in seconds.
    #[arg(long, default_value_t = 180)]
    chaos_seconds: u64,
    /// Only the tests, not the suite.
    #[arg(long)]
    tests_only: bool,
    /// Only the suite, not the tests.
    #[arg(long, conflicts_with = "tests_only")]
    suite_only: bool,
}

/// The root of the workspace.
fn root() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("..")
}

/// Plants each mistake in a copy of the tree, and prints which were found. Gives whether all were.
///
/// # Errors
/// When an entry does not fit the code, or the tree cannot be copied.
pub(crate) fn run(options: &PlantedOptions) -> Result<bool, Box<dyn Error>> {
    let mut entries = entry::all(&root())?;
    if let Some(unknown) = options
        .names
        .iter()
        .find(|name| !entries.iter().any(|entry| entry.name == **name))
    {
        return Err(format!("there is no planted mistake named {unknown:?}").into());
    }
    entries.retain(|entry| options.names.is_empty() || options.names.contains(&entry.name));
    for entry in &entries {
        entry.check(&root())?;
    }
    let copy = Copy::make(&root())?;
    let mut table = Vec::new();
    for entry in &entries {
        println!("==> {}\n    {}", entry.name, entry.story);
        let trial = Trial::of(entry, &copy, options)?;
        println!("    {trial}");
        table.push((entry, trial));
    }
    println!("\nwhat was printed is in {}\n", copy.log.display());
    for (entry, trial) in &table {
        println!("{:44} {trial}", entry.name);
    }
    Ok(table.iter().all(|(_, trial)| trial.is_found()))
}

/// How long a test may take, with what it builds.
const TEST_MAX: Duration = Duration::from_secs(1_800);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_planted_mistake_fits_the_code_and_names_a_test() {
        let entries = entry::all(&root()).unwrap();
        assert!(!entries.is_empty());
        let wrong: Vec<String> = entries
            .iter()
            .filter_map(|entry| entry.check(&root()).err())
            .collect();
        assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    }
}
