//! `millrun salvage`: a damaged store, and what the program says of it.

use crate::support::Folder;

/// The demo's store with one flipped bit in the middle: what is whole is in a new store, on which the same
/// demo goes on.
#[test]
fn the_demo_goes_on_on_a_store_that_was_salvaged() {
    let folder = Folder::new();
    for number in 0..40 {
        folder.write(format!("tree/{number}"), &[number; 100]);
    }
    let demo = |store| {
        let arguments = ["demo", "tree", "--store", store, "--manifest", "manifest"];
        folder.run(&arguments).expect(0)
    };
    demo("store");
    let manifest = folder.read("manifest");
    let sound = folder.run(&["salvage", "store", "sound"]).expect(0);
    assert!(
        sound.out.contains("Nothing is known to be missing."),
        "{}",
        sound.out
    );

    let mut damaged = folder.read("store");
    damaged[4_096..4_416].fill(0);
    folder.write("damaged", &damaged);
    let refused = folder
        .run(&["demo", "tree", "--store", "damaged", "--manifest", "manifest"])
        .expect(1);
    assert!(refused.err.contains("salvage"), "{}", refused.err);
    let salvaged = folder.run(&["salvage", "damaged", "salvaged"]).expect(3);
    assert!(salvaged.out.contains("In the new store:"), "{}", salvaged.out);
    assert_eq!(folder.read("damaged"), damaged, "it is not written to");
    demo("salvaged");
    assert_eq!(folder.read("manifest"), manifest);

    let again = folder.run(&["salvage", "damaged", "salvaged"]).expect(1);
    assert!(again.err.contains("salvaged exists"), "{}", again.err);
    assert!(
        folder
            .run(&["salvage", "tree", "new"])
            .expect(1)
            .err
            .contains("could not be read")
    );
    assert!(
        folder
            .run(&["salvage", "tree/3", "new"])
            .expect(1)
            .err
            .contains("no store")
    );
    assert!(!folder.names().contains(&"new".to_owned()));
}
