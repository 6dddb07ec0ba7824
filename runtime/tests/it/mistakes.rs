//! What the compiler tells a user who makes a common mistake: each program in `tests/mistakes` is refused, and
//! the refusal says what stands at its top behind `says:`.
//!
//! Whole messages are not compared, which would tie the test to one version of the compiler.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;
use std::process::Command;

/// The programs, with what the compiler must say of each.
fn mistakes() -> BTreeMap<String, (String, Vec<String>)> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/mistakes");
    let programs = fs::read_dir(folder).unwrap().map(|entry| {
        let path = entry.unwrap().path();
        let name = path.file_stem().unwrap().to_str().unwrap().to_owned();
        let code = fs::read_to_string(&path).unwrap();
        let says = code.lines().filter_map(|line| line.strip_prefix("//! says: "));
        let says: Vec<_> = says.map(str::to_owned).collect();
        assert!(!says.is_empty(), "{name} does not say what the compiler must");
        (name, (code, says))
    });
    programs.collect()
}

#[test]
fn a_common_mistake_is_refused_with_words_that_say_what_to_do() {
    let mistakes = mistakes();
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let project = Path::new(env!("CARGO_TARGET_TMPDIR")).join("mistakes");
    let programs = project.join("src/bin");
    // What an earlier run left of a program that is gone would be compiled too.
    fs::remove_dir_all(&programs).ok();
    fs::create_dir_all(&programs).unwrap();
    let manifest = format!(
        "[package]\nname = \"mistakes\"\nedition = \"2024\"\n[dependencies]\nmillrun.path = {root:?}\nserde.version = \"1\"\n[workspace]\n"
    );
    fs::write(project.join("Cargo.toml"), manifest).unwrap();
    // The versions that the workspace has: nothing is looked up or downloaded.
    fs::copy(root.join("../Cargo.lock"), project.join("Cargo.lock")).unwrap();
    for (name, (code, _)) in &mistakes {
        fs::write(programs.join(name).with_extension("rs"), code).unwrap();
    }

    let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let checked = Command::new(cargo)
        .args([
            "check",
            "--offline",
            "--quiet",
            "--keep-going",
            "--bins",
            "--message-format=json",
        ])
        .current_dir(&project)
        .env("CARGO_TARGET_DIR", project.join("target"))
        .output()
        .unwrap();
    let mut said = BTreeMap::<String, String>::new();
    for line in String::from_utf8(checked.stdout).unwrap().lines() {
        let message: serde_json::Value = serde_json::from_str(line).unwrap();
        let text = message["message"]["rendered"].as_str();
        if let (Some(name), Some(text)) = (message["target"]["name"].as_str(), text) {
            said.entry(name.to_owned()).or_default().push_str(text);
        }
    }
    let errors = String::from_utf8_lossy(&checked.stderr);
    for (name, (_, says)) in &mistakes {
        let Some(said) = said.get(name) else {
            panic!("{name} compiles, or was not compiled:\n{errors}");
        };
        assert!(said.contains("error"), "{name} is not refused:\n{said}");
        for says in says {
            assert!(
                said.contains(says),
                "{name}: the compiler does not say {says:?}:\n{said}"
            );
        }
    }
}
