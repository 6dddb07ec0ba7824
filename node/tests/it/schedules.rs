//! `millrun schedule`: runs that start by the calendar, of a program that serves.

use serde_json::Value;

use crate::serve::serve;
use crate::support::{Ended, Folder};

fn run(folder: &Folder, arguments: &[&str]) -> Ended {
    let arguments: Vec<_> = ["schedule"].iter().chain(arguments).copied().collect();
    folder.run(&arguments)
}

#[test]
fn a_schedule_is_made_shown_paused_triggered_and_deleted() {
    let folder = Folder::new();
    let (running, _) = serve(&folder, &[], &[]);
    let make = |line: &'static str| {
        let order = r#"{"customer":"ada","cents":5}"#;
        let what = ["sample-order", order, "--cron", line, "--zone", "Europe/Berlin"];
        move |command: &'static str| [&[command, "nightly"], &what[..], &["--every", "86400+60"]].concat()
    };
    let at_two = make("0 2 * * *");
    for _ in 0..2 {
        assert_eq!(run(&folder, &at_two("make")).expect(0).out.trim(), "made");
    }
    let differs = run(&folder, &make("0 3 * * *")("make")).expect(1).err;
    assert!(differs.contains("update it"), "{differs}");
    assert_eq!(
        run(&folder, &make("0 3 * * *")("update")).expect(0).out.trim(),
        "updated"
    );
    let wrong = run(&folder, &make("0 25 * * *")("update")).expect(1).err;
    assert!(wrong.contains("give 0 to 23"), "{wrong}");

    let shown = run(&folder, &["show", "nightly"]).expect(0).out;
    for part in [
        "nightly starts sample-order, skip",
        "due: 0 3 * * * (Europe/Berlin)",
        "every 86400 s, phase 60 s",
        "next (UTC): 20",
        "0 started",
    ] {
        assert!(shown.contains(part), "{part} is not in\n{shown}");
    }
    assert_eq!(
        run(&folder, &["pause", "nightly", "--note", "enough"])
            .expect(0)
            .out
            .trim(),
        "paused"
    );
    assert!(
        run(&folder, &["show", "nightly"])
            .expect(0)
            .out
            .contains("paused: enough")
    );
    let id = run(&folder, &["trigger", "nightly", "--overlap", "allow"])
        .expect(0)
        .out;
    assert!(
        id.starts_with("nightly/20") && id.trim().ends_with("/trigger-1"),
        "{id}"
    );
    let back = ["backfill", "nightly", "3d", "1d", "--overlap", "allow"];
    assert_eq!(run(&folder, &back).expect(0).out.trim(), "recorded");
    let told: Value =
        serde_json::from_str(&run(&folder, &["show", "nightly", "--json"]).expect(0).out).unwrap();
    assert!(told["started"].as_u64().unwrap() >= 3, "{told}");
    assert_eq!(
        run(&folder, &["resume", "nightly"]).expect(0).out.trim(),
        "resumed"
    );
    assert!(run(&folder, &["list"]).expect(0).out.contains("nightly"));

    running.kill();
    // Of the file, too.
    assert!(run(&folder, &["list"]).expect(0).out.contains("nightly"));
    let (running, _) = serve(&folder, &[], &[]);
    assert_eq!(
        run(&folder, &["delete", "nightly"]).expect(0).out.trim(),
        "deleted"
    );
    assert_eq!(
        run(&folder, &["delete", "nightly"]).expect(0).out.trim(),
        "there was none"
    );
    let gone = run(&folder, &["show", "nightly"]).expect(1).err;
    assert!(gone.contains("no schedule"), "{gone}");
    running.kill();
}
